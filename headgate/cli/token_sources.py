"""Which token a command uses, and where it came from, so that a refusal can say so."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import aiohttp

from headgate.cli import private_files, token_variables
from headgate.cli.failures import CommandFailure, NotLoggedIn
from headgate.cli.logins import Logins
from headgate.cli.oidc_agent import ACCOUNT_VARIABLE, SOCKET_VARIABLE, OidcAgent
from headgate.cli.saved_login import SavedLogin, Service
from headgate.cli.sites import SavedSite
from headgate.clock import Clock

TEMPORARY = Path("/tmp")  # noqa: S108 - where WLCG's discovery looks; only a private file is read


class TokenSource(Protocol):
    """A token callback for the client, and its name in a sentence."""

    label: str
    advice: str

    async def __call__(self) -> str:
        """The token; asked again after a refusal."""


class GivenToken:
    """A token that somebody put into the environment."""

    def __init__(self, variable: str, token: str) -> None:
        self.label = f"${variable}"
        self.advice = f"The token came from {self.label}; put a fresh one there or unset it."
        self._token = token

    async def __call__(self) -> str:
        """The same token each time."""
        return self._token


class TokenFile:
    """A token in a file that something else renews (oidc-agent, htgettoken, a mounted secret)."""

    def __init__(self, path: Path) -> None:
        self.label = f"the file {path}"
        self.advice = f"The token came from {self.label}; put a fresh one there."
        self._path = path

    async def __call__(self) -> str:
        """The file's present content."""
        try:
            token = self._path.read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it holds no token"
            raise CommandFailure(f"{self._path} cannot be read: {reason}.") from error
        if not token:
            raise CommandFailure(f"{self._path} is empty.", advice="It should hold a token.")
        return token


class DiscoveredFile(TokenFile):
    """The file that WLCG tools leave for each other; anybody could put one there in our name."""

    async def __call__(self) -> str:
        """The file's present content; raises PrivateFileError if others may have written it."""
        content = private_files.read(self._path)
        if not content or not content.strip().isascii():
            raise CommandFailure(f"{self._path} holds no token.")
        return content.decode("ascii").strip()


def choose(
    *,
    site: SavedSite,
    service: Service,
    token_file: Path | None,
    environ: Mapping[str, str],
    logins: Logins,
    session: aiohttp.ClientSession,
    clock: Clock,
) -> TokenSource:
    """The first of: --token-file, $HEADGATE_TOKEN, the saved login, what other tools offer.

    Raises:
        NotLoggedIn: none of them is there.
    """
    if token_file is not None:
        return TokenFile(token_file)
    if token := environ.get(token_variables.OWN, "").strip():
        return GivenToken(token_variables.OWN, token)
    if logins.load(site.url) is not None:
        return SavedLogin(site, logins, session, clock, service)
    found = _of_other_tools(site, service, environ)
    if found is None:
        raise NotLoggedIn(
            f"You are not logged in at {site.url}.", advice=f"Run: headgate login {site.url}"
        )
    return found


def _of_other_tools(
    site: SavedSite, service: Service, environ: Mapping[str, str]
) -> TokenSource | None:
    for variable in token_variables.OTHERS:
        if token := environ.get(variable, "").strip():
            return GivenToken(variable, token)
    if path := environ.get(token_variables.OTHER_FILE, "").strip():
        return TokenFile(Path(path))
    account, socket = environ.get(ACCOUNT_VARIABLE, ""), environ.get(SOCKET_VARIABLE, "")
    if socket and (account or site.issuer):
        return OidcAgent(socket, account=account, issuer=site.issuer, audience=service.audience)
    # WLCG Bearer Token Discovery, version 1.0: the last two places.
    name = f"bt_u{os.geteuid()}"
    directory = Path(environ.get("XDG_RUNTIME_DIR") or "/nonexistent")
    for path_found in (directory / name, TEMPORARY / name):
        if path_found.is_file():
            return DiscoveredFile(path_found)
    return None


def asks_agent(environ: Mapping[str, str]) -> bool:
    """Whether, without a login, oidc-agent will be asked: it wants to know issuer and audience."""
    socket = bool(environ.get(SOCKET_VARIABLE))
    return socket and not token_variables.given(environ, logged_in=False)
