"""Which token a command uses, and where it came from, so that a refusal can say so."""

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import aiohttp

from headgate.cli import private_files
from headgate.cli.failures import CommandFailure, NotLoggedIn
from headgate.cli.logins import Login, Logins
from headgate.cli.oauth import IssuerClient, IssuerFailure
from headgate.cli.sites import SavedSite
from headgate.clock import Clock

OWN_VARIABLE = "HEADGATE_TOKEN"
OTHER_VARIABLES = (
    "ACCESS_TOKEN",
    "OIDC_ACCESS_TOKEN",
    "OS_ACCESS_TOKEN",
    "BEARER_TOKEN",
    "OIDC",
    "WATTS_TOKEN",
    "WATTSON_TOKEN",
)
"""What other tools of the field export: oidc-agent, oinit, WLCG bearer token discovery."""
OTHER_FILE_VARIABLE = "BEARER_TOKEN_FILE"


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


class SavedLogin:
    """The login of a site on this machine; renewed when it is about to end, or was refused."""

    def __init__(
        self, site: SavedSite, logins: Logins, session: aiohttp.ClientSession, clock: Clock
    ) -> None:
        self.label = "your login"
        self.advice = f"Run: headgate login {site.url}"
        self._site = site
        self._logins = logins
        self._session = session
        self._clock = clock
        self._handed = ""

    async def __call__(self) -> str:
        """A token that lives, and is another one than the last time it was asked for.

        Raises:
            NotLoggedIn: there is no login, or it can be renewed no more.
        """
        # Two commands at once must not spend one refresh token twice: issuers may rotate it.
        with private_files.lock(self._logins.path(self._site.url)):
            login = self._logins.load(self._site.url)
            if login is None:
                raise NotLoggedIn(f"You are not logged in at {self._site.url}.", advice=self.advice)
            if login.access_token == self._handed or not login.fresh(self._clock.now()):
                login = await self._renewed(login)
                self._logins.save(self._site.url, login)
        self._handed = login.access_token
        return login.access_token

    async def _renewed(self, login: Login) -> Login:
        over = f"Your login at {self._site.url} has ended."
        if not login.refresh_token:
            raise NotLoggedIn(over, advice=self.advice)
        try:
            return await issuer_client(self._site, self._session, self._clock).refresh(
                login.refresh_token
            )
        except IssuerFailure as failure:
            if failure.error == "invalid_grant":
                raise NotLoggedIn(over, advice=self.advice) from failure
            raise


def issuer_client(site: SavedSite, session: aiohttp.ClientSession, clock: Clock) -> IssuerClient:
    """A client of the site's issuer."""
    return IssuerClient(
        session=session,
        clock=clock,
        issuer=site.issuer,
        client_id=site.client_id,
        audiences=site.audiences,
        scopes=site.scopes,
        insecure=site.insecure,
    )


def choose(
    *,
    site: SavedSite,
    token_file: Path | None,
    environ: Mapping[str, str],
    logins: Logins,
    session: aiohttp.ClientSession,
    clock: Clock,
) -> TokenSource:
    """The first of: --token-file, $HEADGATE_TOKEN, the saved login, what other tools export.

    Raises:
        NotLoggedIn: none of them is there.
    """
    if token_file is not None:
        return TokenFile(token_file)
    if token := environ.get(OWN_VARIABLE, "").strip():
        return GivenToken(OWN_VARIABLE, token)
    if logins.load(site.url) is not None:
        return SavedLogin(site, logins, session, clock)
    for variable in OTHER_VARIABLES:
        if token := environ.get(variable, "").strip():
            return GivenToken(variable, token)
    if path := environ.get(OTHER_FILE_VARIABLE, "").strip():
        return TokenFile(Path(path))
    raise NotLoggedIn(
        f"You are not logged in at {site.url}.", advice=f"Run: headgate login {site.url}"
    )
