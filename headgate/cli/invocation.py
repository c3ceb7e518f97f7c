"""One run of a command: its site, its token, its screen, and how its errors become words."""

import asyncio
import contextlib
import functools
import re
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import aiohttp
import click

from headgate import __version__
from headgate.cli import exits
from headgate.cli.failures import CommandFailure
from headgate.cli.logins import Logins
from headgate.cli.places import Places
from headgate.cli.private_files import PrivateFileError
from headgate.cli.screen import Screen
from headgate.cli.sites import SavedSite, SavedSites, normal
from headgate.cli.token_sources import TokenSource, choose
from headgate.cli.wording import harmless
from headgate.client import AuthenticationError, Client, HeadgateError, Retrying, RetryPolicy
from headgate.clock import Clock

T = TypeVar("T")

SITE_VARIABLE = "HEADGATE_SITE"
PREFIX_SEARCH = 500
"""How many of the newest jobs a short id is looked for in."""


@dataclass(frozen=True, slots=True)
class Workplace:
    """What the composition root hands to every command."""

    places: Places
    clock: Clock
    screen: Screen


class Invocation:
    """What a command works with. `as_json`: results are one JSON document on standard output."""

    def __init__(
        self, workplace: Workplace, *, site: str, token_file: Path | None, as_json: bool
    ) -> None:
        self.places = workplace.places
        self.clock = workplace.clock
        self.screen = workplace.screen
        self.as_json = as_json
        self.sites = SavedSites(self.places.config)
        self.logins = Logins(self.places.state)
        self.refused_status = exits.FAILED
        self._site_wish = site or self.places.environ.get(SITE_VARIABLE, "").strip()
        self._token_file = token_file
        self._source: TokenSource | None = None
        self._told = ""

    def site(self) -> SavedSite:
        """The site to talk to: --site, $HEADGATE_SITE, else the one logged in to last.

        Raises:
            CommandFailure: no site is known at all.
        """
        saved = self.sites.find(self._site_wish)
        if saved is not None:
            return saved
        if self._site_wish:
            return SavedSite(url=normal(self._site_wish), issuer="", client_id="")
        raise CommandFailure(
            "No site is known yet.",
            advice="Run: headgate login https://GATEWAY (or set HEADGATE_SITE)",
            code="no_site",
        )

    @contextlib.asynccontextmanager
    async def http(self) -> AsyncIterator[aiohttp.ClientSession]:
        """A session for one command."""
        headers = {"User-Agent": f"headgate/{__version__}"}
        async with aiohttp.ClientSession(headers=headers, trust_env=True) as session:
            yield session

    @contextlib.asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        """The site's gateway with the chosen token.

        Raises:
            CommandFailure: no site, no token, or an address that is none.
        """
        site = self.site()
        async with self.http() as session:
            self._source = choose(
                site=site,
                token_file=self._token_file,
                environ=self.places.environ,
                logins=self.logins,
                session=session,
                clock=self.clock,
            )
            async with self.gateway(site, session, self._source) as client:
                yield client

    def gateway(
        self,
        site: SavedSite,
        session: aiohttp.ClientSession,
        source: TokenSource | None = None,
        policy: RetryPolicy | None = None,
    ) -> Client:
        """A client for the site's gateway, not yet open."""
        try:
            return Client(
                site.url,
                token=source,
                insecure=site.insecure,
                session=session,
                clock=self.clock,
                policy=policy,
                on_retry=self._retrying,
            )
        except ValueError as error:
            raise CommandFailure(str(error)) from error

    @property
    def token_label(self) -> str:
        """Where the token came from, in words."""
        return self._source.label if self._source else "none"

    def _retrying(self, retry: Retrying) -> None:
        if self.as_json or not self.screen.err.is_terminal or retry.reason == self._told:
            return
        self._told = retry.reason
        self.screen.note((f"{harmless(retry.reason)} Trying again (Ctrl-C to stop).", "yellow"))

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

    def _fail(self, error: HeadgateError | CommandFailure, status: int) -> NoReturn:
        refused = isinstance(error, AuthenticationError) and self._source is not None
        advice = self._source.advice if refused and self._source else ""
        self.screen.failure(error, as_json=self.as_json, advice=advice)
        raise click.exceptions.Exit(max(status, self.refused_status))


async def job_id(client: Client, text: str) -> str:
    """The full id of a job of the caller's from what a person typed: the id, or its beginning.

    Raises:
        CommandFailure: no job, or several, begin like that.
    """
    wish = text.strip().lower()
    if not re.fullmatch(r"[0-9a-f-]{4,35}", wish):
        if re.fullmatch(r"[A-Za-z0-9_-]{1,64}", text):
            return text
        raise CommandFailure(f"{text!r} is no job id.", code="not_found")
    found: list[str] = []
    seen = 0
    async for job in client.jobs():
        seen += 1
        if job.id.startswith(wish):
            found.append(job.id)
        if seen >= PREFIX_SEARCH:
            break
    if not found:
        raise CommandFailure(
            f"No job of yours begins with {wish}.",
            advice="Run: headgate job list",
            code="not_found",
        )
    if len(found) > 1:
        raise CommandFailure(
            f"Several jobs begin with {wish}: {', '.join(found[:4])}.",
            advice="Give more of the id.",
            code="ambiguous",
        )
    return found[0]


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
