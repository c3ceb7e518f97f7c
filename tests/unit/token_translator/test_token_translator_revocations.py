"""Orders to revoke reach a signer that comes and goes; its list is asked for seldom."""

import asyncio
import hashlib
from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from headgate.clock import HeldClock
from headgate.identity import Identity
from headgate.problems import Forbidden, Invalid, TooMany, Unavailable
from token_translator import wire
from token_translator.changes import SETTLED_SECONDS
from token_translator.holds import Hold
from token_translator.revocations import (
    FRESH_SECONDS,
    UNDER_WAY,
    Order,
    Revocation,
    RevocationLists,
    Revocations,
)
from token_translator.suspending import Suspended, Suspending

ISS = "https://iam.example.org/"
ALICE = Identity(ISS, "alice")
CA = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIPJvcT9YopMz4mLpzG4FFAMAT0e1iig5fPivZ0TEqpo/"


class Orders:
    """An outbox in memory."""

    def __init__(self) -> None:
        self.kept: dict[UUID, Order] = {}

    async def add(self, order: Order) -> None:
        """Keep."""
        self.kept[order.id] = order

    async def pending(self) -> Sequence[Order]:
        """All."""
        return list(self.kept.values())

    async def done(self, order: UUID) -> None:
        """Forget."""
        self.kept.pop(order, None)


class Signer:
    """Records what it is asked; fails as it is told."""

    def __init__(self) -> None:
        self.revocations: list[dict[str, Any]] = []
        self.failure: Exception | None = None
        self.fails_for: tuple[int, ...] = ()
        self.alive: list[wire.LiveCertificate] = []
        self.asked = self.sent = 0
        self.version = 0

    async def revoke(self, **wanted: Any) -> wire.Revoked:
        """One more entry."""
        if self.failure is not None:
            raise self.failure
        if wanted["serials"] == self.fails_for != ():
            raise AWAY
        self.revocations.append(wanted)
        self.version += 1
        return wire.Revoked(1, self.version, wanted["serials"])

    async def live(self, identity: Identity) -> Sequence[wire.LiveCertificate]:
        """Alice's."""
        assert identity == ALICE
        if self.failure is not None:
            raise self.failure
        return self.alive

    async def revoked(self, known: str = "") -> wire.RevokedNow:
        """A list that says how many revocations there were."""
        await asyncio.sleep(0)
        if self.failure is not None:
            raise self.failure
        self.asked += 1
        body = b"list %d" % self.version
        digest = hashlib.sha256(body).hexdigest()
        self.sent += known != digest
        return wire.RevokedNow(
            1, self.version, digest, None if known == digest else body, digest, (b"signature",)
        )


class Holds:
    """Remembers one hold."""

    def __init__(self, log: list[str]) -> None:
        self.log = log
        self.hold: Hold | None = None

    async def place(self, hold: Hold) -> tuple[Hold, Order | None]:
        """Place it."""
        self.log.append("held")
        if self.hold is not None:
            return self.hold, None
        self.hold = hold
        return hold, Order(uuid4(), hold.created_at, Revocation(hold.reason, hold.owner))


class Bench:
    """Everything around the orders."""

    def __init__(self) -> None:
        self.clock = HeldClock()
        self.orders = Orders()
        self.signer = Signer()
        self.lists = RevocationLists(signer=self.signer, clock=self.clock)
        self.revocations = Revocations(
            orders=self.orders, signer=self.signer, lists=self.lists, clock=self.clock
        )
        self.log: list[str] = []
        self.suspending = Suspending(
            holds=Holds(self.log),  # type: ignore[arg-type] # what is asked of it here
            revocations=self.revocations,
            clock=self.clock,
            realms=["site1"],
            issuers=[ISS],
            tell=self._tell,
        )

    async def suspend(self, realm: str = "") -> Suspended:
        """Suspend alice; the time that it waits for the replicas passes."""
        before = len(self.signer.revocations)
        task = asyncio.create_task(
            self.suspending.suspend(ALICE, realm, reason="lost", by="peer:x")
        )
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert len(self.signer.revocations) == before
        self.clock.advance(SETTLED_SECONDS)
        return await task

    async def _tell(self) -> None:
        self.log.append(f"told, {len(self.signer.revocations)} revoked")

    def order(self, *serials: int) -> Order:
        """An order of this moment."""
        return Order(uuid4(), self.clock.now(), Revocation("lost", "local:root", serials=serials))


@pytest.fixture
def bench() -> Bench:
    """Fresh."""
    return Bench()


AWAY = Unavailable("The signer cannot be reached.")
LOST = Revocation("lost", "local:root", serials=(7,))


async def test_an_order_is_carried_out_and_forgotten(bench: Bench):
    """The signer hears exactly what was ordered; nothing is left to do."""
    revoked = await bench.revocations.order(bench.order(7, 9))
    assert revoked is not None
    assert bench.signer.revocations == [
        {
            "reason": "lost",
            "by": "local:root",
            "serials": (7, 9),
            "identity": None,
            "keys": (),
            "authority": "",
        }
    ]
    assert bench.orders.kept == {}


@pytest.mark.parametrize("failure", [AWAY, TooMany("Too many in this minute.")])
async def test_an_order_waits_for_a_signer_that_is_away(bench: Bench, failure: Exception):
    """It is kept, told to be pending, and carried out once the signer answers."""
    bench.signer.failure = failure
    assert await bench.revocations.order(bench.order(7)) is None
    bench.clock.advance(UNDER_WAY.total_seconds())
    await bench.revocations.catch_up()
    assert len(bench.orders.kept) == 1
    bench.signer.failure = None
    await bench.revocations.catch_up()
    assert [one["serials"] for one in bench.signer.revocations] == [(7,)]
    assert bench.orders.kept == {}


async def test_an_order_for_a_row_finds_what_lives_when_it_is_carried_out(bench: Bench):
    """Of that row and not revoked yet; a signer that was away is asked once it is back."""
    expiry = bench.clock.now() + timedelta(minutes=5)
    ended = Revocation("ended", "owner:x", identity=ALICE, row="this")
    bench.signer.failure = AWAY
    assert await bench.revocations.order(Order(uuid4(), bench.clock.now(), ended)) is None
    bench.signer.failure = None
    bench.signer.alive = [
        wire.LiveCertificate(4, expiry, "sealed", row="this"),
        wire.LiveCertificate(3, expiry, "sealed", row="other"),
        wire.LiveCertificate(2, expiry, "sealed", revoked=True, row="this"),
        wire.LiveCertificate(1, expiry, "sealed", row="this"),
    ]
    bench.clock.advance(UNDER_WAY.total_seconds())
    await bench.revocations.catch_up()
    assert bench.signer.revocations == [{"reason": "ended", "by": "owner:x", "serials": (4, 1)}]
    assert bench.orders.kept == {}


async def test_an_order_under_way_is_left_to_who_gave_it(bench: Bench):
    """The sweep of this or another replica does not do it a second time."""
    await bench.orders.add(bench.order(7))
    await bench.revocations.catch_up()
    assert bench.signer.revocations == []


async def test_an_order_from_the_future_is_carried_out(bench: Bench):
    """A clock that was set back stops no order: nobody is at work on it since then."""
    await bench.orders.add(Order(uuid4(), bench.clock.now() + timedelta(hours=1), LOST))
    await bench.revocations.catch_up()
    assert bench.orders.kept == {}


async def test_an_order_that_keeps_failing_holds_up_no_other(bench: Bench):
    """The others come first the next time; it is tried again, and at last forgotten."""
    for serial in (1, 2, 3):
        await bench.orders.add(bench.order(serial))
    bench.signer.fails_for = (1,)
    bench.clock.advance(UNDER_WAY.total_seconds())
    for _ in range(3):
        await bench.revocations.catch_up()
    assert [one["serials"] for one in bench.signer.revocations] == [(2,), (3,)]
    bench.signer.fails_for = ()
    await bench.revocations.catch_up()
    assert bench.orders.kept == {}


@pytest.mark.parametrize("refusal", [Forbidden("No such authority."), Invalid("No serial.")])
async def test_a_refused_order_is_told_and_stops_nobody(bench: Bench, refusal: Exception):
    """What the signer will never do is said to who asked, and does not hold up the others."""
    bench.signer.failure = refusal
    with pytest.raises(type(refusal)):
        await bench.revocations.order(bench.order(1))
    assert bench.orders.kept == {}
    await bench.orders.add(bench.order(2))
    bench.clock.advance(UNDER_WAY.total_seconds())
    await bench.revocations.catch_up()
    assert bench.orders.kept == {}


async def test_suspending_holds_first_then_tells_then_revokes(bench: Bench):
    """In this order no certificate slips through."""
    done = await bench.suspend()
    assert (done.new, done.revoked) == (True, True)
    assert bench.log == ["held", "told, 0 revoked"]


async def test_suspending_again_revokes_again(bench: Bench):
    """The same hold is found, and the signer has the word on whether all is revoked."""
    done = await bench.suspend()
    again = await bench.suspend()
    assert (again.new, again.hold, again.revoked) == (False, done.hold, True)
    assert [one["identity"] for one in bench.signer.revocations[1:]] == [ALICE]
    assert bench.orders.kept == {}


async def test_suspending_again_is_not_done_while_the_signer_is_away(bench: Bench):
    """A repetition says pending as the first did, and leaves an order of its own behind."""
    bench.signer.failure = AWAY
    await bench.suspend()
    again = await bench.suspend()
    assert (again.new, again.revoked) == (False, False)
    [order] = bench.orders.kept.values()
    assert order.revocation == Revocation("lost", "peer:x", identity=ALICE)


@pytest.mark.parametrize(
    ("words", "pointer"),
    [
        ({"reason": ""}, "/reason"),
        ({"reason": "x" * 1001}, "/reason"),
        ({"reason": "two\nlines"}, "/reason"),
        ({"identity": Identity(ISS, "")}, "/sub"),
        ({"identity": Identity(ISS, "x" * 256)}, "/sub"),
        ({"by": ""}, "/by"),
        ({"by": "x" * 1401}, "/by"),
    ],
)
async def test_what_the_signer_would_refuse_is_no_suspension(
    bench: Bench, words: dict[str, Any], pointer: str
):
    """A hold whose order the signer refuses would leave the certificates alive: none is placed."""
    asked = {"identity": ALICE, "reason": "lost", "by": "peer:x"} | words
    with pytest.raises(Invalid) as refusal:
        await bench.suspending.suspend(
            asked["identity"], "", reason=asked["reason"], by=asked["by"]
        )
    with pytest.raises(Invalid) as other:
        await bench.suspending.revoke(Revocation(**asked))
    for problem in (refusal.value, other.value):
        assert [fault.pointer for fault in problem.faults] == [pointer]
    assert (bench.log, bench.orders.kept) == ([], {})


async def test_a_suspension_counts_while_the_signer_is_away(bench: Bench):
    """The hold is in force and told; the revocation is pending, and said to be."""
    bench.signer.failure = AWAY
    done = await bench.suspend("site1")
    assert (done.new, done.revoked) == (True, False)
    assert bench.log == ["held", "told, 0 revoked"]


@pytest.mark.parametrize(
    ("identity", "realm", "pointer"),
    [(Identity(ISS.rstrip("/"), "alice"), "", "/iss"), (ALICE, "site2", "/realm")],
)
async def test_a_slip_of_the_pen_is_no_suspension(
    bench: Bench, identity: Identity, realm: str, pointer: str
):
    """A hold on an issuer without its slash, or on no realm of ours, would suspend nobody."""
    with pytest.raises(Invalid) as refusal:
        await bench.suspending.suspend(identity, realm, reason="lost", by="peer:x")
    assert [fault.pointer for fault in refusal.value.faults] == [pointer]
    assert bench.log == []


async def test_revoking_nothing_is_refused(bench: Bench):
    """An order that names nothing is a mistake."""
    with pytest.raises(Invalid):
        await bench.suspending.revoke(Revocation("lost", "local:root"))
    assert bench.orders.kept == {}


async def test_many_nodes_cost_one_question(bench: Bench):
    """A hundred fetches at a time, and those of the next moment, ask the signer once."""
    served = await asyncio.gather(*(bench.lists.current() for _ in range(100)))
    assert bench.signer.asked == 1
    assert len({one.etag for one in served}) == 1
    bench.clock.advance(FRESH_SECONDS / 2)
    assert await bench.lists.current() is served[0]
    bench.clock.advance(FRESH_SECONDS / 2)
    assert await bench.lists.current() is served[0]
    assert bench.signer.asked == 2


async def test_a_revocation_of_ours_is_in_the_next_list(bench: Bench):
    """Nobody waits for the list to grow old; its version and its ETag are new."""
    before = await bench.lists.current()
    await bench.revocations.order(bench.order(1))
    after = await bench.lists.current()
    assert (before.version, after.version) == (0, 1)
    assert before.etag != after.etag


async def test_no_list_is_better_than_an_old_one(bench: Bench):
    """Without the signer there is none: nodes keep theirs and know how old it is."""
    await bench.lists.current()
    bench.signer.failure = AWAY
    bench.clock.advance(FRESH_SECONDS)
    with pytest.raises(Unavailable):
        await bench.lists.current()
    bench.signer.failure = None
    assert (await bench.lists.current()).version == 0
