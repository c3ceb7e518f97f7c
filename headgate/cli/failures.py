"""Failures of the command itself, in the shape that `--json` shows them."""

from typing import Any

from headgate.cli import exits
from headgate.client import HeadgateError, ProblemError, UnexpectedAnswerError, UnreachableError


class CommandFailure(Exception):  # noqa: N818 - said to a person, with what to do next
    """Something the command cannot do: `str()` says what, `advice` what to do next."""

    def __init__(
        self, sentence: str, *, advice: str = "", code: str = "failed", status: int = exits.FAILED
    ) -> None:
        super().__init__(sentence)
        self.advice = advice
        self.code = code
        self.status = status


class NotLoggedIn(CommandFailure):
    """There is no token for the site."""

    def __init__(self, sentence: str, *, advice: str) -> None:
        super().__init__(sentence, advice=advice, code="not_logged_in")


def document(error: HeadgateError | CommandFailure) -> dict[str, Any]:
    """A failure as a problem document (RFC 9457): the service's own, else one of the same shape.

    `code` of a failure that never reached a service: `unreachable`, `unexpected_answer`,
    `not_logged_in`, `no_site`, `ambiguous`, `foreign_name` (a site named what is not its own),
    `no_such_audience`, `failed`.
    """
    if isinstance(error, ProblemError):
        return error.problem.document()
    if isinstance(error, CommandFailure):
        detail = f"{error} {error.advice}".strip()
        return {"type": "about:blank", "title": "Failed", "detail": detail, "code": error.code}
    code, title = "failed", "Failed"
    if isinstance(error, UnreachableError):
        code, title = "unreachable", "Unreachable"
    elif isinstance(error, UnexpectedAnswerError):
        code, title = "unexpected_answer", "Unexpected answer"
    return {"type": "about:blank", "title": title, "detail": str(error), "code": code}
