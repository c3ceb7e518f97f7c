"""Revoking for good: orders that reach the signer however often it is away, and the list of it."""

import asyncio
import base64
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import Protocol
from uuid import UUID

import structlog

from headgate.clock import Clock
from headgate.identity import Identity
from headgate.problems import Forbidden, Invalid, Problem, Unavailable
from token_translator import wire

log = structlog.get_logger(__name__)

FRESH_SECONDS = 1.0
"""A list is served that long before the signer is asked again, however many nodes come."""
RETRY_SECONDS = 1.0
UNDER_WAY = timedelta(seconds=3)
"""A younger order is left to whoever wrote it down: two replicas need not carry out each one."""


@dataclass(frozen=True, slots=True)
class Revocation:
    """What is to be revoked, why and by whose word (`peer:…`, `admin:…`, `local:…`).

    `identity`: all of its unexpired certificates; with `row` those that were made for that row
    alone. `keys` and `authority` are fingerprints.
    """

    reason: str
    by: str
    serials: tuple[int, ...] = ()
    identity: Identity | None = None
    keys: tuple[str, ...] = ()
    authority: str = ""
    row: str = ""


@dataclass(frozen=True, slots=True)
class Order:
    """A revocation that is written down, since when."""

    id: UUID
    at: datetime
    revocation: Revocation


class OrderStore(Protocol):
    """Where orders wait. All methods raise `Unavailable`."""

    async def add(self, order: Order) -> None:
        """Write an order down."""

    async def pending(self) -> Sequence[Order]:
        """The oldest orders that the signer has still to hear of."""

    async def done(self, order: UUID) -> None:
        """Forget an order."""


class Signer(Protocol):
    """What the signer is asked here."""

    async def revoke(
        self,
        *,
        reason: str,
        by: str,
        serials: tuple[int, ...] = (),
        identity: Identity | None = None,
        keys: tuple[str, ...] = (),
        authority: str = "",
    ) -> wire.Revoked:
        """Revoke; raises `Unavailable`, `Forbidden`, `Invalid`."""

    async def revoked(self, known: str = "") -> wire.RevokedNow:
        """The list of now, without its bytes where they are `known`; raises `Unavailable`."""

    async def live(self, identity: Identity) -> Sequence[wire.LiveCertificate]:
        """All of one identity's unexpired certificates; raises `Unavailable`."""


@dataclass(frozen=True, slots=True)
class ServedList:
    """A revocation list as it is served; `etag` is a hash of its bytes.

    `statement` and `signatures` (in base64) are the signer's word for it: a node believes no other.
    """

    version: int
    body: bytes
    etag: str
    statement: str
    signatures: tuple[str, ...]


class RevocationLists:
    """The list for the nodes, as the signer made it: nothing here could alter it unnoticed."""

    def __init__(self, *, signer: Signer, clock: Clock) -> None:
        self._signer = signer
        self._clock = clock
        self._asking = asyncio.Lock()
        self._body: tuple[str, bytes] = ("", b"")
        self._served: ServedList | None = None
        self._good_until = float("-inf")

    def expire(self) -> None:
        """Ask the signer at the next occasion: something was revoked."""
        self._good_until = float("-inf")

    async def current(self) -> ServedList:
        """The list as of now, give or take `FRESH_SECONDS`.

        Raises:
            Unavailable: the signer is away. An old list is not served instead: the nodes keep
                theirs, and know its age.
        """
        async with self._asking:
            if self._served is not None and self._clock.monotonic() < self._good_until:
                return self._served
            asked_at = self._clock.monotonic()
            now = await self._signer.revoked(self._body[0])
            if now.body is not None:
                self._body = (now.digest, now.body)
            if self._served is None or now.statement != self._served.statement:
                self._served = ServedList(
                    now.version,
                    self._body[1],
                    now.digest[:32],
                    now.statement,
                    tuple(base64.b64encode(one).decode() for one in now.signatures),
                )
            self._good_until = asked_at + FRESH_SECONDS
            return self._served


class Revocations:
    """Has orders carried out: at once where the signer is there, else as soon as it is."""

    def __init__(
        self, *, orders: OrderStore, signer: Signer, lists: RevocationLists, clock: Clock
    ) -> None:
        self._orders = orders
        self._signer = signer
        self._lists = lists
        self._clock = clock
        self._failed: Counter[UUID] = Counter()

    async def order(self, order: Order) -> wire.Revoked | None:
        """Write an order down and carry it out; None: it will be, once the signer answers.

        Raises:
            Forbidden, Invalid: the signer refuses it, and always will. Unavailable: the database.
        """
        await self.write(order)
        return await self.carry_out(order)

    async def write(self, order: Order) -> None:
        """Write an order down, to be carried out whatever happens to us; raises `Unavailable`."""
        await self._orders.add(order)

    async def carry_out(self, order: Order) -> wire.Revoked | None:
        """Carry out what is written down already; as `order`. Done twice, it is done once."""
        wanted = order.revocation
        try:
            revoked = await self._revoke(wanted)
        except (Forbidden, Invalid) as refusal:
            log.warning("revocation_refused", order=str(order.id), by=wanted.by, why=str(refusal))
            await self._orders.done(order.id)
            raise
        except Problem as problem:
            log.warning("revocation_waits", order=str(order.id), by=wanted.by, why=str(problem))
            return None
        finally:
            self._lists.expire()
        log.info("revoked", order=str(order.id), by=wanted.by, version=revoked.version)
        await self._orders.done(order.id)
        return revoked

    async def _revoke(self, wanted: Revocation) -> wire.Revoked:
        if wanted.identity is not None and wanted.row:
            return await self._revoke_row(wanted, wanted.identity)
        return await self._signer.revoke(
            reason=wanted.reason,
            by=wanted.by,
            serials=wanted.serials,
            identity=wanted.identity,
            keys=wanted.keys,
            authority=wanted.authority,
        )

    async def _revoke_row(self, wanted: Revocation, identity: Identity) -> wire.Revoked:
        """What lives by the time this is carried out, not by the time it was ordered."""
        revoked = wire.Revoked(0, 0, (), "nothing")
        live = await self._signer.live(identity)
        mine = (one.serial for one in live if one.row == wanted.row and not one.revoked)
        for serials in _batched(mine, wire.MAX_REVOKED_AT_ONCE):
            revoked = await self._signer.revoke(reason=wanted.reason, by=wanted.by, serials=serials)
        return revoked

    async def catch_up(self) -> None:
        """Carry out what has waited, until one fails; that comes behind the others next time."""
        try:
            pending = await self._orders.pending()
            self._failed = Counter({one.id: self._failed[one.id] for one in pending})
            for order in sorted(pending, key=lambda one: self._failed[one.id]):
                # From the future: the clock was set back, and whoever gave it is long done.
                if timedelta(0) <= self._clock.now() - order.at < UNDER_WAY:
                    continue
                if await self._try(order) is None:
                    self._failed[order.id] += 1
                    return
        except Unavailable as problem:
            log.warning("revocations_wait", why=str(problem))

    async def _try(self, order: Order) -> object:
        try:
            return await self.carry_out(order)
        except (Forbidden, Invalid) as refusal:
            return refusal


def _batched(numbers: Iterable[int], size: int) -> Iterator[tuple[int, ...]]:
    """The numbers in tuples of at most that many."""
    rest = iter(numbers)
    while part := tuple(islice(rest, size)):
        yield part
