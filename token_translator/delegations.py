"""What a person's jobs may still do without a token: seen by the person, and ended by them."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol
from uuid import UUID

from headgate.clock import Clock
from headgate.identity import Identity
from headgate.problems import NotFound, Unavailable
from token_translator import wire
from token_translator.revocations import Order
from token_translator.seals import Place, Seal, SealStore


class Certificates(Protocol):
    """The signer's knowledge of certificates that have not expired."""

    async def live(self, identity: Identity) -> Sequence[wire.LiveCertificate]:
        """All of one identity's."""


class Orders(Protocol):
    """Who has orders to revoke carried out that are written down."""

    async def carry_out(self, order: Order) -> wire.Revoked | None:
        """Carry one out; None: it will be, once the signer answers."""


@dataclass(frozen=True, slots=True)
class Delegation:
    """One sealed row of a person, and the certificates that live for it now."""

    seal: Seal
    expires_at: datetime
    certificates: Sequence[wire.LiveCertificate]

    @property
    def state(self) -> str:
        """`active` or `ended`; one that has expired is not shown at all."""
        return "active" if self.seal.ended_at is None else "ended"


class Delegations:
    """Lists and ends. `max_age` is how long a seal is good for."""

    def __init__(
        self,
        *,
        seals: SealStore,
        certificates: Certificates,
        orders: Orders,
        clock: Clock,
        max_age: timedelta,
    ) -> None:
        self._seals = seals
        self._certificates = certificates
        self._orders = orders
        self._clock = clock
        self._max_age = max_age

    async def of(
        self, identity: Identity, *, limit: int, after: Place | None = None
    ) -> tuple[list[Delegation], Place | None]:
        """A page of a person's delegations, the newest first; where the next begins, if there is.

        Raises:
            Unavailable: the database or the signer is away.
        """
        since = self._clock.now() - self._max_age
        found = await self._seals.of(identity, since=since, limit=limit + 1, after=after)
        seals = found[:limit]
        following = Place.of(seals[-1]) if len(found) > limit else None
        live: dict[tuple[str, str], list[wire.LiveCertificate]] = defaultdict(list)
        for certificate in await self._certificates.live(identity) if seals else ():
            live[certificate.instance, certificate.row].append(certificate)
        page = [
            Delegation(
                seal, seal.sealed_at + self._max_age, tuple(live[seal.instance, str(seal.row)])
            )
            for seal in seals
        ]
        return page, following

    async def end(self, identity: Identity, row: UUID) -> None:
        """End what was sealed for a row: no certificate any more, the living ones revoked.

        Where the signer is away, they are revoked once it answers, asked again or not.

        Raises:
            NotFound: `seal_unknown`: nobody sealed this row for this person.
            Unavailable: the database or the signer is away.
        """
        order = await self._seals.end(identity, row, self._clock.now())
        if order is None:
            raise NotFound("There is no such delegation of yours.", code="seal_unknown")
        if await self._orders.carry_out(order) is None:
            raise Unavailable(
                "It is ended; certificates that live are revoked once the signer answers.",
                code="signer_away",
                retry_after=1,
            )
