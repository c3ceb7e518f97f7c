"""Holds in a database: who is held, who may lift, and a feed without gaps, at several replicas."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest

from headgate.changes import Change
from headgate.clock import HeldClock
from headgate.identity import Identity
from headgate.problems import Forbidden, NotFound, Unavailable
from token_translator.database import open_async_database, upgrade
from token_translator.hold_store import DatabaseHolds
from token_translator.holds import Hold
from token_translator.revocation_store import DatabaseOrders

ISS = "https://iam.example.org/"
ALICE, BOB = Identity(ISS, "alice"), Identity(ISS, "bob")
IMPORTER, ADMIN = "peer:headgate-accounts", f"admin:{ISS}#carol"


class Bench:
    """A database that several replicas share."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.clock = HeldClock()
        self.engines = [open_async_database(url) for _ in range(2)]
        self.one, self.other = (DatabaseHolds(engine) for engine in self.engines)
        self.orders = DatabaseOrders(self.engines[0])

    def hold(self, identity: Identity = ALICE, realm: str = "", owner: str = IMPORTER) -> Hold:
        """A hold of this moment; time goes on."""
        self.clock.advance(1)
        return Hold(uuid4(), identity, realm, owner, f"said {owner}", self.clock.now())

    async def lift(self, hold: Hold, by: str = IMPORTER, *, force: bool = False) -> Hold:
        """Lift at this moment."""
        self.clock.advance(1)
        return await self.one.lift(hold.id, by=by, at=self.clock.now(), force=force)

    async def feed(self) -> list[tuple[int, str, str, bool]]:
        """All changes."""
        changes = await self.other.changes(after=0, limit=1000)
        return [(c.version, c.identity.sub, c.realm, c.effective) for c in changes]


@pytest.fixture
async def bench(empty_url: str) -> AsyncIterator[Bench]:
    """With migrated tables."""
    made = Bench(empty_url)
    async with made.engines[0].begin() as connection:
        await connection.run_sync(upgrade, "seals")
    yield made
    for engine in made.engines:
        await engine.dispose()


@pytest.mark.parametrize(
    ("owner", "reason", "told"),
    [
        (IMPORTER, "left", "left (by the service headgate-accounts)"),
        (ADMIN, "stolen laptop", "stolen laptop (by an administrator)"),
        ("local:root", "", "by this site's operators"),
        (f"peer:{'x' * 500}", "r" * 1000, f"{'r' * 900} (by the service {'x' * 60})"),
    ],
)
def test_a_person_is_told_the_reason_and_whose_word_it_is(owner: str, reason: str, told: str):
    """Who can lift it is named by what they are; the names of administrators are not told."""
    hold = Hold(uuid4(), ALICE, "", owner, reason, HeldClock().now())
    assert hold.told == told


async def test_nobody_is_held_at_first(bench: Bench):
    """An empty database holds nobody, and its feed is at version 0."""
    assert await bench.one.denial(ALICE, "site1") is None
    assert await bench.one.everybody_held() == (0, [])


async def test_a_hold_counts_at_once_at_every_replica(bench: Bench):
    """With the return of `place` another replica refuses; others are not concerned."""
    hold, order = await bench.one.place(bench.hold())
    assert await bench.other.denial(ALICE, "site1") == hold.told
    assert await bench.other.denial(BOB, "site1") is None
    assert await bench.other.denial(Identity("https://x.example/", "alice"), "site1") is None
    assert order is not None


async def test_a_hold_concerns_its_realm(bench: Bench):
    """One of a realm leaves the others alone; one without a realm is for all."""
    hold, _ = await bench.one.place(bench.hold(realm="site1"))
    assert await bench.one.denial(ALICE, "site1") == hold.told
    assert await bench.one.denial(ALICE, "site2") is None
    everywhere, _ = await bench.one.place(bench.hold())
    assert await bench.one.denial(ALICE, "site2") == everywhere.told


async def test_placing_leaves_an_order_to_revoke(bench: Bench):
    """With the hold comes, in one transaction, an order in its name to revoke what lives."""
    hold, order = await bench.one.place(bench.hold())
    assert order is not None
    assert (await bench.orders.pending()) == [order]
    assert order.revocation.identity == ALICE
    assert (order.revocation.by, order.revocation.reason) == (IMPORTER, hold.reason)
    await bench.orders.done(order.id)
    assert await bench.orders.pending() == []


async def test_the_same_again_changes_nothing(bench: Bench):
    """A caller that repeats itself finds its own hold: no second one, no change, no order."""
    first, _ = await bench.one.place(bench.hold())
    again, order = await bench.other.place(bench.hold())
    assert (again, order) == (first, None)
    assert len(await bench.orders.pending()) == 1
    assert await bench.feed() == [(1, "alice", "", False)]


async def test_each_owner_has_a_hold_of_its_own(bench: Bench):
    """Who is held by two may act only after both have let go."""
    hers, _ = await bench.one.place(bench.hold(owner=ADMIN))
    its, _ = await bench.one.place(bench.hold(owner=IMPORTER))
    await bench.lift(its)
    assert await bench.one.denial(ALICE, "site1") == hers.told
    await bench.lift(hers, ADMIN)
    assert await bench.one.denial(ALICE, "site1") is None
    assert await bench.feed() == [
        (1, "alice", "", False),
        (2, "alice", "", False),
        (3, "alice", "", False),
        (4, "alice", "", True),
    ]


async def test_only_the_owner_lifts(bench: Bench):
    """Another party is refused, whoever it is, unless root says so by force."""
    hold, _ = await bench.one.place(bench.hold(owner=ADMIN))
    with pytest.raises(Forbidden) as refusal:
        await bench.lift(hold, IMPORTER)
    assert refusal.value.code == "not_owner"
    assert await bench.one.denial(ALICE, "site1") == hold.told
    await bench.lift(hold, "local:root", force=True)
    assert await bench.one.denial(ALICE, "site1") is None


async def test_lifting_again_changes_nothing(bench: Bench):
    """An owner whose answer was lost may ask once more."""
    hold, _ = await bench.one.place(bench.hold())
    await bench.lift(hold)
    assert (await bench.lift(hold)).lifted_at is not None
    assert len(await bench.feed()) == 2
    with pytest.raises(NotFound):
        await bench.lift(bench.hold())


async def test_holds_are_listed_by_owner_and_by_person(bench: Bench):
    """Those in force, the newest first."""
    lifted, _ = await bench.one.place(bench.hold(BOB))
    await bench.lift(lifted)
    first, _ = await bench.one.place(bench.hold())
    second, _ = await bench.one.place(bench.hold(BOB, owner=ADMIN))
    assert await bench.one.in_force(limit=10) == [second, first]
    assert await bench.one.in_force(limit=1) == [second]
    assert await bench.one.in_force(owner=ADMIN, limit=10) == [second]
    assert await bench.one.in_force(identity=ALICE, limit=10) == [first]


async def test_versions_have_no_gap_however_many_write(bench: Bench):
    """Two replicas that suspend and resume at the same time give every version once."""
    people = [Identity(ISS, f"user{number}") for number in range(12)]

    async def come_and_go(store: DatabaseHolds, identity: Identity) -> None:
        hold, _ = await store.place(bench.hold(identity))
        await store.lift(hold.id, by=IMPORTER, at=bench.clock.now() + timedelta(seconds=1))

    stores = itertools.cycle((bench.one, bench.other))
    await asyncio.gather(*(come_and_go(next(stores), person) for person in people))
    assert [change[0] for change in await bench.feed()] == list(range(1, 25))
    assert await bench.one.head() == 24
    assert await bench.one.everybody_held() == (24, [])


async def test_a_change_says_why(bench: Bench):
    """The feed has the reason of the oldest hold, and none once there is none."""
    hold, _ = await bench.one.place(bench.hold(realm="site1", owner=ADMIN))
    await bench.one.place(bench.hold(realm="site1"))
    changes = await bench.one.changes(after=1, limit=10)
    assert changes == [Change(2, ALICE, "site1", effective=False, reason=hold.told)]
    assert [held.reason for held in (await bench.one.everybody_held())[1]][-1] == hold.reason


async def test_a_database_that_is_away_is_said_to_be(tmp_path: Path):
    """Whether somebody is held cannot be known then: nothing is signed, and nobody is to blame."""
    engine = open_async_database(f"sqlite+aiosqlite:///{tmp_path}/nowhere/tokens.sqlite")
    store = DatabaseHolds(engine)
    with pytest.raises(Unavailable):
        await store.denial(ALICE, "site1")
    with pytest.raises(Unavailable):
        await DatabaseOrders(engine).pending()
    await engine.dispose()
