"""The services of one site as a command reaches them: which site, and with which token."""

import contextlib
import shlex
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

import aiohttp
import msgspec
from yarl import URL

from headgate import __version__
from headgate.cli import claims, token_variables
from headgate.cli.failures import CommandFailure, NotLoggedIn
from headgate.cli.login_flow import log_in
from headgate.cli.logins import EXPIRY_MARGIN, Logins
from headgate.cli.oauth import Demand
from headgate.cli.oidc_agent import OidcAgent
from headgate.cli.places import Places
from headgate.cli.saved_login import SavedLogin, Service, issuer_client
from headgate.cli.screen import Screen
from headgate.cli.site_names import FOREIGN, check_resource, check_services
from headgate.cli.sites import SavedSite, SavedSites, normal
from headgate.cli.token_sources import TokenSource, asks_agent, choose
from headgate.cli.wording import harmless
from headgate.client import Client, Retrying, RetryPolicy, Site, StepUpError, TokenTranslator
from headgate.client.service import ServiceClient
from headgate.client.transport import is_private
from headgate.clock import Clock

S = TypeVar("S", bound=ServiceClient)

SITE_VARIABLE = "HEADGATE_SITE"
ACCEPT_VARIABLE = "HEADGATE_ACCEPT"
"""What `login --accept` says, in words, for a site where nobody logged in."""
FIRST_LOOK = RetryPolicy(deadline=8.0, attempt=5.0)
"""A mistyped address should not be retried for a minute."""


@dataclass(frozen=True, slots=True)
class Workplace:
    """What the composition root hands to every command."""

    places: Places
    clock: Clock
    screen: Screen


@dataclass(frozen=True, slots=True)
class _At:
    """One service of a site, and how it is asked."""

    site: SavedSite
    url: str
    session: aiohttp.ClientSession
    source: TokenSource | None
    policy: RetryPolicy | None


class Services:
    """A site and how it is asked. `as_json`: results are one JSON document on standard output.

    `quiet`: nothing is said but failures, and nobody is asked anything.
    """

    def __init__(
        self, workplace: Workplace, *, site: str, token_file: Path | None, as_json: bool
    ) -> None:
        self.places = workplace.places
        self.clock = workplace.clock
        self.screen = workplace.screen
        self.as_json = as_json
        self.sites = SavedSites(self.places.config)
        self.logins = Logins(self.places.state)
        self.quiet = False
        self._site_option = site
        self._site_wish = site or self.places.environ.get(SITE_VARIABLE, "").strip()
        self._token_file = token_file
        self.source: TokenSource | None = None
        self._told = ""
        self._site: SavedSite | None = None

    @property
    def site_named(self) -> bool:
        """Whether the person named a site, by option or variable."""
        return bool(self._site_wish)

    def use(self, site: SavedSite) -> None:
        """Talk to that site, whichever the environment names.

        Raises:
            CommandFailure: --site names another one.
        """
        if self._site_option and self.named_site().url != site.url:
            raise CommandFailure(f"That is {site.url}'s, not {self.named_site().url}'s.")
        self._site = site

    def site(self) -> SavedSite:
        """The site to talk to: --site, $HEADGATE_SITE, else the one logged in to last.

        Raises:
            CommandFailure: no site is known at all.
        """
        return self._site or self.named_site()

    def named_site(self) -> SavedSite:
        """The site that was named, else the last; raises as `site`."""
        saved = self.sites.find(self._site_wish)
        if saved is not None:
            return saved
        if self._site_wish:
            words = self.places.environ.get(ACCEPT_VARIABLE, "").split()
            return SavedSite(
                url=normal(self._site_wish), issuer="", client_id="", accepted=tuple(words)
            )
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
            self.source = await self._choose(site, session, Service(audience=site.audience))
            async with self.gateway(site, session, self.source) as client:
                yield client

    async def token(self, audience: str = "") -> str:
        """A token for the site's gateway, or for another service of the site.

        Raises:
            CommandFailure: no site, no token, or an audience that is not the site's.
        """
        site = self.site()
        check_services(site.url, (audience,), self.sites.domain(site), by_person=True)
        async with self.http() as session:
            service = Service(audience=audience or site.audience)
            self.source = await self._choose(site, session, service)
            return await self.source()

    @contextlib.asynccontextmanager
    async def translator(
        self, margin: timedelta = EXPIRY_MARGIN, policy: RetryPolicy | None = None
    ) -> AsyncIterator[tuple[TokenTranslator, SavedSite]]:
        """The site's token translator with a token that lives for `margin`, and the site.

        Raises:
            CommandFailure: no site, no token, or a site without such a service.
        """
        async with self.http() as session:
            site = await self.described(self.site(), session)
            if not site.token_translator:
                raise CommandFailure(
                    f"{site.url} names no service that gives SSH certificates.",
                    advice="Ask the site whether it has one.",
                    code="no_token_translator",
                )
            if _own_machine(site.token_translator) and not _own_machine(site.url):
                # A token sent there would be read by whoever listens on this machine.
                raise CommandFailure(
                    f"{site.url} names {site.token_translator}, which is on this machine.",
                    advice="Tell the site: its gateway's [people] section is wrong.",
                    code="no_token_translator",
                )
            check_services(site.url, [site.token_translator], self.sites.domain(site))
            # Its audience is its address, unless the site has another name for it: then all there
            # is to know is that the login asked for it.
            known = site.token_translator in site.audiences or not site.audiences
            service = Service(audience=site.token_translator if known else "", margin=margin)
            self.source = await self._choose(site, session, service)
            at = _At(site, site.token_translator, session, self.source, policy)
            async with self._service(TokenTranslator, at) as client:
                yield client, site

    @contextlib.asynccontextmanager
    async def anybodys_translator(
        self, site: SavedSite, policy: RetryPolicy
    ) -> AsyncIterator[TokenTranslator]:
        """The translator of a described site without a token, for what it tells everybody.

        Raises:
            CommandFailure: an address that is none.
        """
        async with self.http() as session:
            at = _At(site, site.token_translator, session, None, policy)
            async with self._service(TokenTranslator, at) as client:
                yield client

    def token_given(self) -> bool:
        """Whether a token was given, by option or variable, that goes before all that is saved."""
        environ = self.places.environ
        if self._token_file is not None or token_variables.given(environ, logged_in=True):
            return True
        others = token_variables.given(environ, logged_in=False)
        return others and self.logins.load(self.site().url) is None

    async def person(self) -> claims.Person:
        """Whose the tokens are that the service is asked with.

        Raises:
            CommandFailure: there is no token.
        """
        if isinstance(self.source, SavedLogin):
            return self.source.person()
        if self.source is None:
            raise NotLoggedIn("There is no token.", advice="Run: headgate login https://GATEWAY")
        return claims.person(await self.source())

    async def described(self, site: SavedSite, session: aiohttp.ClientSession) -> SavedSite:
        """The site with what its gateway says of it, asked once and remembered."""
        if site.token_translator:
            return site
        described, _ = await self._asked(site, session)
        self.sites.update(described)
        return described

    async def _asked(
        self, site: SavedSite, session: aiohttp.ClientSession
    ) -> tuple[SavedSite, Site]:
        """The site with what its gateway says of it now, as far as that is the site's to say.

        Raises:
            CommandFailure: it calls itself something else.
        """
        async with self.gateway(site, session, policy=FIRST_LOOK) as client:
            said = await client.site()
        domain = self.sites.domain(site)
        check_resource(site.url, said.url, domain)
        return site.described(said).within(domain), said

    async def _choose(
        self, site: SavedSite, session: aiohttp.ClientSession, service: Service
    ) -> TokenSource:
        if not site.issuer and self._token_file is None and asks_agent(self.places.environ):
            site, said = await self._asked(site, session)
            first = said.issuers[0].issuer if said.issuers else ""
            site = msgspec.structs.replace(site, issuer=first)
            service = replace(service, audience=service.audience or site.audience or site.url)
        domain = self.sites.domain(site)
        check_resource(site.url, site.audience, domain)
        source = choose(
            site=site,
            service=service,
            token_file=self._token_file,
            environ=self.places.environ,
            logins=self.logins,
            session=session,
            clock=self.clock,
        )
        renewed = site.audiences if isinstance(source, SavedLogin) else ()
        check_services(site.url, (service.audience, *renewed), domain)
        if not isinstance(source, SavedLogin | OidcAgent):
            self._check_meant(site, source, claims.audiences(await source()))
        return source

    def _check_meant(
        self, site: SavedSite, source: TokenSource, audiences: tuple[str, ...]
    ) -> None:
        """Refuse to send a given token to one site that says it is for another one of the person's.

        Raises:
            CommandFailure: naming the other one.
        """
        sites = [*self.sites.all(), *([self.named_site()] if self.site_named else [])]
        others = [other for other in sites if other.url != site.url]
        domain = self.sites.domain(site)
        if any(domain.has_service(audience) for audience in audiences):
            return
        for other in others:
            if any(self.sites.domain(other).has_service(audience) for audience in audiences):
                raise CommandFailure(
                    f"The token from {source.label} is for {other.url}; it was not sent to "
                    f"{site.url}.",
                    advice=source.advice,
                    code=FOREIGN,
                )

    def gateway(
        self,
        site: SavedSite,
        session: aiohttp.ClientSession,
        source: TokenSource | None = None,
        policy: RetryPolicy | None = None,
    ) -> Client:
        """A client for the site's gateway, not yet open."""
        return self._service(Client, _At(site, site.url, session, source, policy))

    def _service(self, kind: type[S], at: "_At") -> S:
        async def step_up(error: StepUpError) -> bool:
            return await self._step_up(at, error)

        try:
            return kind(
                at.url,
                token=at.source,
                insecure=at.site.insecure,
                session=at.session,
                clock=self.clock,
                policy=at.policy,
                on_retry=self._retrying,
                on_step_up=step_up,
            )
        except ValueError as error:
            raise CommandFailure(str(error)) from error

    async def _step_up(self, at: "_At", error: StepUpError) -> bool:
        """Log in again as strongly as the service asks, if somebody is there to do it."""
        demand = Demand(error.acr_values, error.max_age)
        if not isinstance(at.source, SavedLogin):
            return False
        if self.as_json or self.quiet or not self.places.attended:
            at.source.advice = stronger(at.site.url, demand)
            return False
        self.screen.note(("The site asks for a stronger login: ", "yellow"), harmless(str(error)))
        self.screen.note("")
        oauth = issuer_client(at.site, at.session, self.clock)
        made = await log_in(
            oauth, demand, screen=self.screen, environ=self.places.environ, as_json=False
        )
        self.logins.save(at.site.url, made)
        return True

    @property
    def token_label(self) -> str:
        """Where the token came from, in words."""
        return self.source.label if self.source else "none"

    def _retrying(self, retry: Retrying) -> None:
        if (
            self.as_json
            or self.quiet
            or not self.screen.err.is_terminal
            or retry.reason == self._told
        ):
            return
        self._told = retry.reason
        self.screen.note((f"{harmless(retry.reason)} Trying again (Ctrl-C to stop).", "yellow"))


def _own_machine(url: str) -> bool:
    try:
        return URL(url).scheme == "http" and is_private(URL(url))
    except ValueError:
        return False  # no address at all


def stronger(url: str, demand: Demand) -> str:
    """What a person runs to log in as strongly as a service asks."""
    acr = "".join(f" --acr {shlex.quote(value)}" for value in demand.acr_values)
    age = "" if demand.max_age is None else f" --max-age {demand.max_age}"
    return f"Run: headgate login {url}{acr}{age}"
