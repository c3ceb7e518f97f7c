"""Who is calling: a person with a token of ours, or a service of this site on somebody's behalf."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Protocol

from headgate.clock import Clock
from headgate.identity import Principal
from headgate.oidc import IssuerSettings, TokenVerifier
from headgate.peers import SKEW, Peer, PeerVerifier
from headgate.problems import Unauthenticated
from headgate.signatures import unverified


class Services(Protocol):
    """Which services may do anything at all."""

    async def require_running(self, instance: str) -> None:
        """Return if it is not stopped; raises `Forbidden` (`service_stopped`), `Unavailable`."""


class Used(Protocol):
    """Which credentials of services were shown before, here or at another replica."""

    async def once(self, issuer: str, jti: str, *, until: datetime, now: datetime) -> bool:
        """Whether this one was not; raises `Unavailable`."""


class Callers:
    """Turns credentials into a `Principal` and a `Peer`.

    A token for another service's audience counts only when that service hands it in, and one with
    a foreign or no audience (`client_audiences` of its issuer) only from any authenticated service.
    """

    def __init__(
        self,
        *,
        tokens: TokenVerifier,
        peers: PeerVerifier,
        services: Services,
        used: Used,
        clock: Clock,
        issuers: Sequence[IssuerSettings],
        audience: str,
    ) -> None:
        self._tokens = tokens
        self._peers = peers
        self._services = services
        self._used = used
        self._clock = clock
        self._audience = audience
        self._own: Mapping[str, frozenset[str]] = {
            issuer.url: frozenset({audience, *issuer.audiences}) for issuer in issuers
        }

    async def service(self, header: str, verb: str) -> Peer:
        """The calling service, if it may do that and is not stopped.

        Raises:
            Unauthenticated: no valid peer credential. Forbidden: it lacks the verb, or is stopped.
            Unavailable: the database is away.
        """
        peer = self._peers.verify(header)
        # What is verified by now: our own process has seen it once, others may have before.
        _, claims = unverified(header)
        until = datetime.fromtimestamp(claims["exp"], UTC) + SKEW
        now = self._clock.now()
        if not await self._used.once(peer.instance, claims["jti"], until=until, now=now):
            raise Unauthenticated("The calling service's credential was used before.", code="peer")
        peer.require(verb)
        await self._services.require_running(peer.instance)
        return peer

    async def person(self, token: str) -> Principal:
        """The holder of a token that is meant for this very service.

        Raises:
            Unauthenticated: it is not valid, or for another. Unavailable: the issuer is away.
        """
        return self._meant(await self._tokens.verify(token), frozenset())

    async def login(self, peer: Peer, token: str) -> Principal:
        """The holder of a token that a login service hands in: meant for it or for us by name.

        Raises:
            Unauthenticated: it is not valid, or for a third. Unavailable: the issuer is away.
        """
        also = frozenset({peer.audience} if peer.audience else ())
        return self._meant(await self._tokens.verify(token, also_accept=also), also)

    async def behind(self, peer: Peer, token: str) -> Principal:
        """The holder of a token that a service hands in, meant for it or for us.

        Raises:
            Unauthenticated: it is not valid, or for a third. Unavailable: the issuer is away.
        """
        also = frozenset({peer.audience} if peer.audience else ())
        return await self._tokens.verify(token, also_accept=also)

    def _meant(self, principal: Principal, also: frozenset[str]) -> Principal:
        # `client_audiences` are for jobs: a login needs a token that names whom it is for.
        if principal.audience.isdisjoint(self._own[principal.identity.iss] | also):
            raise Unauthenticated(
                f"The token is meant for another service; ask for the audience {self._audience}."
            )
        return principal
