"""What the HTTP service's database forgets: the old of everybody, and everything of one person."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import Table, func, insert, select
from sqlalchemy.ext.asyncio import AsyncEngine

from headgate.identity import Identity
from token_translator import retention
from token_translator.database import open_async_database, upgrade
from token_translator.retention import erase, retain
from token_translator.tables import CHANGES, HOLDS, ONE_TIME_PASSWORDS, SEALS

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
AGE, SEAL_AGE = timedelta(days=10), timedelta(days=30)
ISS = "https://iam.example/"


@pytest.fixture
async def engine(empty_url: str) -> AsyncIterator[AsyncEngine]:
    """A migrated database."""
    one = open_async_database(empty_url)
    async with one.begin() as connection:
        await connection.run_sync(upgrade, "seals")
    yield one
    await one.dispose()


def ago(days: float) -> int:
    """A moment in the past."""
    return int((NOW - timedelta(days=days)).timestamp())


async def put(engine: AsyncEngine, table: Table, **row: Any) -> None:
    """A row of a person."""
    async with engine.begin() as connection:
        await connection.execute(insert(table), {"iss": ISS, "sub": "alice", "realm": "r", **row})


async def seal(engine: AsyncEngine, days: float, sub: str = "alice") -> None:
    """A seal of so many days ago."""
    fixed = {"instance": "gateway", "digest": "ab" * 32, "client_id": "c", "token": "t"}
    await put(engine, SEALS, row=uuid4(), sub=sub, sealed_at=ago(days), **fixed)


async def hold(engine: AsyncEngine, lifted: float | None, sub: str = "alice") -> None:
    """A hold that was lifted so many days ago, or is in force."""
    at = None if lifted is None else ago(lifted)
    fixed = {"owner": f"local:{uuid4()}", "reason": "x", "created_at": ago(90)}
    await put(engine, HOLDS, id=uuid4(), sub=sub, lifted_at=at, **fixed)


async def count(engine: AsyncEngine, table: Table) -> int:
    """How many rows there are."""
    async with engine.connect() as connection:
        return int(await connection.scalar(select(func.count()).select_from(table)) or 0)


async def test_what_is_old_goes_and_what_is_good_for_something_stays(engine: AsyncEngine) -> None:
    """Seals live as long as they are good, holds while in force, passwords until they expire."""
    for days in (1, 29, 31):
        await seal(engine, days)
    for lifted in (None, 1, 11):
        await hold(engine, lifted)
    for version, days in enumerate((1, 11), start=1):
        fixed = {"effective": True, "reason": ""}
        await put(engine, CHANGES, version=version, at=ago(days), **fixed)
    for days in (-1, 0.001):
        fixed = {"account": "alice", "host": "h"}
        await put(engine, ONE_TIME_PASSWORDS, digest=str(days), expires_at=ago(days), **fixed)
    removed = await retain(engine, now=NOW, age=AGE, seal_max_age=SEAL_AGE)
    assert {name: number for name, number in removed.items() if number} == {
        "seals": 1,
        "holds": 1,
        "changes": 1,
        "one_time_passwords": 1,
    }
    again = await retain(engine, now=NOW, age=AGE, seal_max_age=SEAL_AGE)
    assert set(again.values()) == {0}


async def test_many_rows_go_in_batches(
    engine: AsyncEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More than one transaction's worth is all gone, too."""
    monkeypatch.setattr(retention, "BATCH", 3)
    for _ in range(7):
        await seal(engine, 31)
    assert (await retain(engine, now=NOW, age=AGE, seal_max_age=SEAL_AGE))["seals"] == 7
    assert await count(engine, SEALS) == 0


async def test_one_person_is_forgotten_and_no_other(engine: AsyncEngine) -> None:
    """All of theirs is gone but a hold in force: without it they could come back."""
    for sub in ("alice", "bob"):
        await seal(engine, 1, sub)
        await hold(engine, None, sub)
        await hold(engine, 1, sub)
    removed, staying = await erase(engine, Identity(ISS, "alice"))
    assert ({name: n for name, n in removed.items() if n}, staying) == ({"seals": 1, "holds": 1}, 1)
    assert (await count(engine, SEALS), await count(engine, HOLDS)) == (1, 3)
    assert await erase(engine, Identity("https://other.example/", "bob")) == (
        dict.fromkeys(removed, 0),
        0,
    )
