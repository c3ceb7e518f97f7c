"""The use cases of denial: suspend and resume an identity, revoke certificates."""

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Annotated, Any
from uuid import UUID, uuid4

import msgspec
import structlog

from headgate.clock import Clock
from headgate.identity import SUBJECT, Identity
from headgate.problems import Fault, Invalid, Unavailable
from token_translator import wire
from token_translator.changes import SETTLED_SECONDS
from token_translator.holds import EVERYWHERE, Hold, HoldStore, suspended
from token_translator.revocations import Order, Revocation, Revocations

log = structlog.get_logger(__name__)

MAX_SHOWN = 1000

SubjectName = Annotated[str, msgspec.Meta(pattern=SUBJECT)]
# It ends up in logs: no line breaks, no control characters. Not `$`: see `SealRequest`.
Reason = Annotated[
    str, msgspec.Meta(min_length=1, max_length=1000, pattern=r"^[^\x00-\x1f\x7f-\x9f]+\Z")
]
_By = Annotated[str, msgspec.Meta(min_length=1, max_length=1400)]
"""These three are within the bounds of `wire.Revoke`."""

Tell = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Suspended:
    """A hold that is in force; whether it is new, and whether live certificates are revoked yet.

    `certificates` is how many were revoked just now.
    """

    hold: Hold
    new: bool
    revoked: bool
    certificates: int = 0


async def nobody() -> None:
    """Tell nobody: the services see it in the database."""


class Suspending:
    """Denies at once. `tell` wakes the change feed; `realms` and `issuers` are those of the site.

    Order matters. A replica that has just signed hands the certificate out only if it knows of no
    hold, by what it saw in the database `KNOWN_SECONDS` ago at most. Once the hold has been there
    for longer, whatever was handed out was signed already: it is revoked with all that lives.
    """

    def __init__(
        self,
        *,
        holds: HoldStore,
        revocations: Revocations,
        clock: Clock,
        realms: Collection[str],
        issuers: Collection[str],
        tell: Tell = nobody,
    ) -> None:
        self._holds = holds
        self._revocations = revocations
        self._clock = clock
        self._realms = realms
        self._issuers = issuers
        self._tell = tell

    async def suspend(self, identity: Identity, realm: str, *, reason: str, by: str) -> Suspended:
        """Put a hold in force, tell the services, revoke what lives; said again, the hold is found.

        The certificates of all realms are revoked: who may act in another gets a new one there.
        Said again they are revoked again, which changes nothing unless the first order was lost.

        Raises:
            Invalid: no such realm or issuer, or words that the signer would refuse.
            Unavailable: the database is away; said again, all that is missing is done.
        """
        _check_words(sub=identity.sub, reason=reason, by=by)
        self._check(identity, realm)
        made = Hold(uuid4(), identity, realm, by, reason, self._clock.now())
        hold, order = await self._holds.place(made)
        await self._told()
        new = order is not None
        if order is None:
            wanted = Revocation(reason, by, identity=identity)
            order = Order(uuid4(), made.created_at, wanted)
            await self._revocations.write(order)
        else:
            log.warning("suspended", hold=str(hold.id), by=by, realm=realm or "all")
        await self._clock.sleep(SETTLED_SECONDS)
        revoked = await self._revocations.carry_out(order)
        count = 0 if revoked is None else len(revoked.serials)
        return Suspended(hold, new=new, revoked=revoked is not None, certificates=count)

    async def resume(self, hold: UUID, *, by: str, force: bool = False) -> Hold:
        """Lift a hold: from now on there are new certificates; what was revoked stays revoked.

        Raises:
            NotFound, Forbidden, Unavailable: as `HoldStore.lift`.
        """
        lifted = await self._holds.lift(hold, by=by, at=self._clock.now(), force=force)
        forced = force and by != lifted.owner
        log.warning("resumed", hold=str(hold), by=by, owner=lifted.owner, forced=forced)
        await self._told()
        return lifted

    async def in_force(self, *, owner: str | None, identity: Identity | None) -> Sequence[Hold]:
        """At most `MAX_SHOWN` holds, the newest first; raises `Unavailable`."""
        return await self._holds.in_force(owner=owner, identity=identity, limit=MAX_SHOWN)

    async def require_free(self, identity: Identity) -> None:
        """Return if no hold at all is in force: one in any realm takes away what is for the site.

        The database is asked, not what is known from memory: these are seldom questions.

        Raises:
            Forbidden: `suspended`. Unavailable: the database is away.
        """
        held = await self._holds.in_force(identity=identity, limit=1)
        if held:
            raise suspended(held[0].told)

    async def revoke(self, wanted: Revocation) -> tuple[Order, wire.Revoked | None]:
        """Revoke for good; the order as it was written, and None while the signer is away.

        Raises:
            Invalid: nothing to revoke is named, or the signer can revoke no such thing.
            Forbidden: the signer refuses it. Unavailable: the database is away.
        """
        if not (wanted.serials or wanted.identity or wanted.keys or wanted.authority):
            raise Invalid("Name serials, keys, an identity or an authority.", code="nothing_named")
        sub = {} if wanted.identity is None else {"sub": wanted.identity.sub}
        _check_words(**sub, reason=wanted.reason, by=wanted.by)
        if wanted.identity is not None:
            self._check(wanted.identity, EVERYWHERE)
        order = Order(uuid4(), self._clock.now(), wanted)
        return order, await self._revocations.order(order)

    async def _told(self) -> None:
        try:
            await self._tell()
        except Unavailable as problem:
            log.warning("change_told_later", why=str(problem))

    def _check(self, identity: Identity, realm: str) -> None:
        faults = []
        if realm != EVERYWHERE and realm not in self._realms:
            faults.append(Fault("/realm", f"There is {', '.join(self._realms)}; empty means all."))
        if identity.iss not in self._issuers:
            faults.append(Fault("/iss", f"Nobody of it comes here; {', '.join(self._issuers)}."))
        if faults:
            raise Invalid("This would suspend nobody.", code="suspendsnobody", faults=faults)


_WORDS: dict[str, Any] = {"sub": SubjectName, "reason": Reason, "by": _By}


def _check_words(**words: str) -> None:
    """Before anything is written: an order that the signer refuses revokes nothing, ever."""
    faults = []
    for name, word in words.items():
        try:
            msgspec.convert(word, _WORDS[name])
        except msgspec.ValidationError as error:
            faults.append(Fault(f"/{name}", str(error)))
    if faults:
        raise Invalid("The signer would refuse to revoke in these words.", faults=faults)
