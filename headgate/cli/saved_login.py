"""The login of a site on this machine: renewed when it is about to end, exchanged where needed."""

from dataclasses import dataclass
from datetime import timedelta

import aiohttp
import msgspec

from headgate.cli import claims, private_files
from headgate.cli.failures import NotLoggedIn
from headgate.cli.logins import EXPIRY_MARGIN, Login, Logins
from headgate.cli.oauth import AWAY, IssuerClient, IssuerFailure
from headgate.cli.sites import SavedSite
from headgate.clock import Clock


@dataclass(frozen=True, slots=True)
class Service:
    """Whom a token is for: `audience` (empty: not known), and how long it should still live."""

    audience: str = ""
    margin: timedelta = EXPIRY_MARGIN


class SavedLogin:
    """Tokens of a saved login, for one service."""

    def __init__(
        self,
        site: SavedSite,
        logins: Logins,
        session: aiohttp.ClientSession,
        clock: Clock,
        service: Service | None = None,
    ) -> None:
        self.label = "your login"
        self.advice = f"Run: headgate login {site.url}"
        self._site = site
        self._logins = logins
        self._clock = clock
        self._service = service or Service()
        self._oauth = issuer_client(site, session, clock)
        self._handed = ""

    async def __call__(self) -> str:
        """A token that lives, and is another one than the last time it was asked for.

        Raises:
            NotLoggedIn: there is no login, or it can be renewed no more.
        """
        # Two commands at once must not spend one refresh token twice: issuers rotate it.
        with private_files.lock(self._logins.path(self._site.url)):
            login = self._logins.load(self._site.url)
            if login is None:
                raise NotLoggedIn(f"You are not logged in at {self._site.url}.", advice=self.advice)
            if self._outworn(login):
                login = await self._renewed(login)
                # At once: the old refresh token may be worth nothing any more.
                self._logins.save(self._site.url, login)
            token, directed = await self._directed(login)
            if directed != login:
                self._logins.save(self._site.url, directed)
        self._handed = token
        return token

    def person(self) -> claims.Person:
        """Whose login it is.

        Raises:
            NotLoggedIn: there is no login.
        """
        login = self._logins.load(self._site.url)
        if login is None:
            raise NotLoggedIn(f"You are not logged in at {self._site.url}.", advice=self.advice)
        return login.whose()

    def _outworn(self, login: Login) -> bool:
        now = self._clock.now()
        handed = {login.access_token, *(token.access_token for token in login.exchanged)}
        if self._handed in handed or not login.fresh(now):
            return True
        return bool(login.refresh_token) and not login.fresh(now, self._service.margin)

    async def _renewed(self, login: Login) -> Login:
        over = f"Your login at {self._site.url} has ended."
        if not login.refresh_token:
            raise NotLoggedIn(over, advice=self.advice)
        try:
            renewed = await self._oauth.refresh(login.refresh_token)
        except IssuerFailure as failure:
            if failure.error == "invalid_grant":
                raise NotLoggedIn(over, advice=self.advice) from failure
            # What still lives will do while the issuer is away.
            if failure.error == AWAY and not self._handed and login.fresh(self._clock.now()):
                return login
            raise
        # A refresh is for the same person, also where the tokens are opaque.
        return msgspec.structs.replace(renewed, person=login.whose())

    async def _directed(self, login: Login) -> tuple[str, Login]:
        """The token for the service: the login's own, or one exchanged for its audience."""
        audience = self._service.audience
        if not audience or audience in claims.audiences(login.access_token):
            return login.access_token, login
        known = login.for_audience(audience)
        if known is not None and known.fresh(self._clock.now(), self._service.margin):
            return known.access_token, login
        if not claims.of(login.access_token) or not (await self._oauth.endpoints()).exchanges:
            return login.access_token, login
        try:
            exchanged = await self._oauth.exchange(login.access_token, audience)
        except IssuerFailure as failure:
            if failure.error == AWAY:
                raise
            # Not for this client or audience: whether the token will do is the service's to say.
            return login.access_token, login
        return exchanged.access_token, login.with_exchanged(exchanged)


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
