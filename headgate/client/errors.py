"""What can go wrong between a client and a gateway, as exceptions whose text a user can read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, ClassVar


class HeadgateError(Exception):
    """Anything this client raises about the service; `str()` is one sentence or two."""


class UnreachableError(HeadgateError):
    """No answer within the call's deadline. What was asked may or may not have happened."""


class UnexpectedAnswerError(HeadgateError):
    """Somebody answered, and it is not a headgate gateway, or not one this client understands."""


class WaitTimeoutError(HeadgateError):
    """A job did not end within the time that was given; it goes on."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong in a request: a JSON pointer (RFC 6901) and a sentence."""

    pointer: str
    detail: str


@dataclass(frozen=True, slots=True)
class ProblemDetails:
    """A problem document (RFC 9457). `members` holds its extension members.

    `retryable`: the same request may succeed later. `request_id` finds it in the site's logs.
    """

    status: int
    code: str
    title: str
    detail: str
    errors: Sequence[Fault] = ()
    retryable: bool = False
    request_id: str = ""
    type: str = "about:blank"
    members: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of_document(cls, status: int, document: Mapping[str, Any]) -> "ProblemDetails":
        """Read a problem document; members of a wrong type count as absent."""
        title = _text(document, "title") or _phrase(status)
        faults = document.get("errors")
        return cls(
            status=status,
            code=_text(document, "code"),
            title=title,
            detail=_text(document, "detail") or f"The server answered: {title}.",
            errors=tuple(
                Fault(_text(item, "pointer"), _text(item, "detail"))
                for item in (faults if isinstance(faults, list) else [])
                if isinstance(item, dict)
            ),
            retryable=document.get("retryable") is True,
            request_id=_text(document, "request_id"),
            type=_text(document, "type") or "about:blank",
            members={k: v for k, v in document.items() if k not in _STANDARD},
        )

    @classmethod
    def without_document(cls, status: int) -> "ProblemDetails":
        """What to say about a failure that came without a problem document (a proxy's page)."""
        title = _phrase(status)
        return cls(
            status=status,
            code="",
            title=title,
            detail=f"The server answered {status} {title} and gave no reason.",
            retryable=status in GATEWAY_STATUSES,
        )

    def document(self) -> dict[str, Any]:
        """The problem as a JSON object again."""
        return {
            "type": self.type,
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
            "code": self.code,
            "retryable": self.retryable,
            **({"request_id": self.request_id} if self.request_id else {}),
            **(
                {"errors": [{"pointer": f.pointer, "detail": f.detail} for f in self.errors]}
                if self.errors
                else {}
            ),
            **self.members,
        }


GATEWAY_STATUSES = frozenset({429, 502, 503, 504})
"""Statuses that say "not now": nothing is wrong with the request itself."""

_STANDARD = frozenset(
    {"type", "title", "status", "detail", "code", "retryable", "request_id", "errors"}
)


def _text(document: Mapping[str, Any], name: str) -> str:
    value = document.get(name)
    return value if isinstance(value, str) else ""


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "an unknown status"


class ProblemError(HeadgateError):
    """The service refused or failed, and said why: `problem`. Subclasses are by HTTP status.

    `retry_after` is how many seconds the service asked to wait, None if it did not say.
    """

    status: ClassVar[int] = 0

    def __init__(self, problem: ProblemDetails, *, retry_after: float | None = None) -> None:
        super().__init__(problem.detail)
        self.problem = problem
        self.retry_after = retry_after

    @property
    def code(self) -> str:
        """The problem's stable code; compare this, never the sentence."""
        return self.problem.code


class RequestProblemError(ProblemError):
    """4xx: sent again unchanged, it will be refused again (except `TooManyRequestsError`)."""


class InvalidRequestError(RequestProblemError):
    """400: the body or a parameter is not what the interface asks for; see `problem.errors`."""

    status = 400


class AuthenticationError(RequestProblemError):
    """401: no token, or one that the service does not take; the token callback was asked again."""

    status = 401


class StepUpError(AuthenticationError):
    """401: the token is good, but the login behind it is too weak or too old (RFC 9470).

    `acr_values`: one of these would do, best first; empty: any. `max_age`: seconds that may have
    passed since the person signed in; None: any.
    """

    def __init__(
        self,
        problem: ProblemDetails,
        *,
        acr_values: Sequence[str] = (),
        max_age: int | None = None,
    ) -> None:
        super().__init__(problem)
        self.acr_values = tuple(acr_values)
        self.max_age = max_age


class ForbiddenError(RequestProblemError):
    """403: the caller is known and may not do this (`account_unknown`, `account_blocked`, …)."""

    status = 403


class NotFoundError(RequestProblemError):
    """404: there is no such thing, or the caller may not know of it."""

    status = 404


class ConflictError(RequestProblemError):
    """409: the request contradicts what is there already."""

    status = 409


class TooLargeError(RequestProblemError):
    """413: the body is larger than the service reads."""

    status = 413


class UnprocessableError(RequestProblemError):
    """422: well-formed, and this site cannot fulfil it (an unknown queue, too many GPUs)."""

    status = 422


class TooManyRequestsError(RequestProblemError):
    """429, and it did not get better within the call's deadline."""

    status = 429


class ServerProblemError(ProblemError):
    """5xx: a fault of the service; `problem.request_id` is what its administrators need."""


class UnavailableError(ServerProblemError):
    """502, 503 or 504, and it did not get better within the call's deadline."""

    status = 503


_BY_STATUS: Mapping[int, type[ProblemError]] = {
    kind.status: kind
    for kind in (
        InvalidRequestError,
        AuthenticationError,
        ForbiddenError,
        NotFoundError,
        ConflictError,
        TooLargeError,
        UnprocessableError,
        TooManyRequestsError,
    )
}


def problem_error(problem: ProblemDetails, retry_after: float | None = None) -> ProblemError:
    """The exception of a problem, by its HTTP status."""
    kind = _BY_STATUS.get(problem.status)
    if kind is None and problem.status in GATEWAY_STATUSES:
        kind = UnavailableError
    if kind is None:
        kind = ServerProblemError if problem.status >= 500 else RequestProblemError  # noqa: PLR2004 - HTTP's own border
    return kind(problem, retry_after=retry_after)
