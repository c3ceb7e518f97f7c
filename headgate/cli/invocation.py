"""One run of a command: what it works with, and how its errors become words."""

import asyncio
import functools
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import click

from headgate.cli import exits
from headgate.cli.failures import CommandFailure
from headgate.cli.private_files import PrivateFileError
from headgate.cli.services import Services, Workplace
from headgate.client import AuthenticationError, HeadgateError

T = TypeVar("T")


class Invocation(Services):
    """What a command is given. `refused_status`: the least exit status of a failure."""

    def __init__(
        self, workplace: Workplace, *, site: str, token_file: Path | None, as_json: bool
    ) -> None:
        super().__init__(workplace, site=site, token_file=token_file, as_json=as_json)
        self.refused_status = exits.FAILED

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a command's coroutine; what goes wrong is said on standard error.

        Raises:
            click.exceptions.Exit: with the documented status, after the words.
        """
        try:
            return asyncio.run(work)
        except PrivateFileError as error:
            self._fail(CommandFailure(str(error), code="private_file"), exits.FAILED)
        except CommandFailure as error:
            self._fail(error, error.status)
        except HeadgateError as error:
            self._fail(error, exits.FAILED)
        except (ArithmeticError, RecursionError) as error:
            words = f"An answer came that makes no sense ({type(error).__name__}: {error})."
            self._fail(CommandFailure(words, code="unexpected_answer"), exits.FAILED)

    def _fail(self, error: HeadgateError | CommandFailure, status: int) -> NoReturn:
        refused = isinstance(error, AuthenticationError) and self.source is not None
        advice = self.source.advice if refused and self.source else ""
        if self.quiet and not self.as_json:
            self.screen.failure_line(error, advice=advice)
        else:
            self.screen.failure(error, as_json=self.as_json, advice=advice)
        raise click.exceptions.Exit(max(status, self.refused_status))


def invocation(
    *, site: bool = True, token: bool = True
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Hand a command its `Invocation`, made from --json and, if wished, --site and --token-file."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def wrapped(
            workplace: Workplace,
            /,
            *,
            as_json: bool,
            site: str = "",
            token_file: Path | None = None,
            **options: Any,  # noqa: ANN401 - what click parsed for the command
        ) -> None:
            run = Invocation(workplace, site=site, token_file=token_file, as_json=as_json)
            command(run, **options)

        decorated: Callable[..., None] = click.pass_obj(wrapped)
        for wished, option in ((token, _TOKEN_OPTION), (site, _SITE_OPTION), (True, _JSON_OPTION)):
            decorated = option(decorated) if wished else decorated
        return decorated

    return decorate


_JSON_OPTION = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON; problems go to stderr."
)
_SITE_OPTION = click.option(
    "--site", default="", metavar="URL", help="Another site than the last one."
)
_TOKEN_OPTION = click.option(
    "--token-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Take the token from a file.",
)
