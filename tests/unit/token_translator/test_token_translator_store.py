"""Seals in both databases that a site may have."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest

from headgate.identity import Identity
from headgate.problems import Conflict, Unavailable
from token_translator.database import open_async_database, upgrade
from token_translator.revocation_store import DatabaseOrders
from token_translator.seals import Place, Seal
from token_translator.store import DatabaseSeals

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
ALICE = Identity("https://iam.example/", "alice")


@pytest.fixture
async def url(empty_url: str) -> str:
    """A migrated database."""
    engine = open_async_database(empty_url)
    async with engine.begin() as connection:
        await connection.run_sync(upgrade, "seals")
    await engine.dispose()
    return empty_url


@pytest.fixture
async def store(url: str) -> AsyncIterator[DatabaseSeals]:
    """The store of one replica."""
    one = DatabaseSeals(open_async_database(url))
    yield one
    await one.close()


def seal(row: UUID, digest: str = "ab" * 32, sub: str = "alice") -> Seal:
    """A seal of the gateway's."""
    return Seal(
        instance="gateway",
        row=row,
        digest=digest,
        identity=Identity("https://iam.example/", sub),
        realm="site1",
        client_id="laptop",
        token="0123456789abcdef",
        sealed_at=NOW,
    )


async def test_pages_of_a_second(store: DatabaseSeals) -> None:
    """Seals of one second come in pages, too: each once, in one order."""
    await asyncio.gather(*(store.add(seal(uuid4())) for _ in range(7)))
    since, seen = NOW - timedelta(days=1), list[Seal]()
    while page := await store.of(
        ALICE, since=since, limit=2, after=Place.of(seen[-1]) if seen else None
    ):
        seen += page
    assert len({one.row for one in seen}) == len(seen) == 7
    assert seen == list(await store.of(ALICE, since=since, limit=100))


async def test_made_once(store: DatabaseSeals) -> None:
    """New, the same again, and in conflict with what is there."""
    row = uuid4()
    assert await store.add(seal(row)) is True
    assert await store.add(replace(seal(row), sealed_at=NOW + timedelta(hours=1))) is False
    with pytest.raises(Conflict):
        await store.add(seal(row, "cd" * 32))
    with pytest.raises(Conflict):
        await store.add(seal(row, sub="bob"))
    assert await store.find("gateway", row) == seal(row)
    assert await store.find("other", row) is None
    assert await store.ready() == ""


async def test_many_at_once(store: DatabaseSeals) -> None:
    """Seals that come together are each made, and each conflict is its own."""
    rows = [uuid4() for _ in range(300)]
    twice = [seal(row, digest) for row in rows for digest in ("ab" * 32, "cd" * 32)]
    outcomes = await asyncio.gather(*map(store.add, twice), return_exceptions=True)
    assert outcomes.count(True) == 300
    assert sum(isinstance(outcome, Conflict) for outcome in outcomes) == 300


async def test_two_replicas(store: DatabaseSeals, url: str) -> None:
    """Two replicas that seal the same rows for something else: one of them has each."""
    other = DatabaseSeals(open_async_database(url))
    rows = [uuid4() for _ in range(50)]

    async def seal_all(replica: DatabaseSeals, digest: str) -> int:
        done = 0
        for row in rows:
            done += await seal_one(replica, seal(row, digest))
        return done

    async def seal_one(replica: DatabaseSeals, wanted: Seal) -> bool:
        while True:
            # The other one may be there at just this moment: once more, as callers do.
            with contextlib.suppress(Unavailable):
                try:
                    return await replica.add(wanted)
                except Conflict:
                    return False

    made = await asyncio.gather(seal_all(store, "ab" * 32), seal_all(other, "cd" * 32))
    await other.close()
    assert sum(made) == 50
    assert len(await store.of(ALICE, since=NOW - timedelta(days=1), limit=100)) == 50


async def test_a_persons_own(store: DatabaseSeals) -> None:
    """A person's seals are found, by when they were made, and ended for good."""
    old, new = uuid4(), uuid4()
    await store.add(replace(seal(old), sealed_at=NOW - timedelta(days=2)))
    await store.add(seal(new))
    await store.add(seal(uuid4(), sub="bob"))
    for days, rows in ((3, [new, old]), (1, [new])):
        found_then = await store.of(ALICE, since=NOW - timedelta(days=days), limit=9)
        assert [one.row for one in found_then] == rows
    assert await store.end(ALICE, new, NOW) is not None
    assert await store.end(ALICE, new, NOW + timedelta(hours=1)) is not None
    found = await store.find("gateway", new)
    assert found is not None
    assert found.ended_at == NOW
    assert await store.end(Identity("https://iam.example/", "bob"), old, NOW) is None


async def test_an_end_leaves_one_order(url: str, store: DatabaseSeals) -> None:
    """What is to be revoked is written down with the end, once; asked again it is that order."""
    one, other = uuid4(), uuid4()
    for row in (one, other):
        await store.add(seal(row))
    first = await store.end(ALICE, one, NOW)
    second = await store.end(ALICE, other, NOW)
    assert first is not None
    assert second is not None
    assert first.revocation.by == "owner:https://iam.example/#alice"
    assert (first.revocation.identity, first.revocation.row) == (ALICE, str(one))
    assert await store.end(ALICE, one, NOW + timedelta(hours=1)) == first
    engine = open_async_database(url)
    orders = DatabaseOrders(engine)
    assert {order.id: order for order in await orders.pending()} == {
        first.id: first,
        second.id: second,
    }
    await orders.done(first.id)
    again = await store.end(ALICE, one, NOW)
    assert again is not None
    assert again.revocation == first.revocation
    assert await orders.pending() == [second]
    await engine.dispose()
