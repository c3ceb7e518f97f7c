"""Credentials that were used, in both databases that a site may have."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import func, select

from token_translator.database import open_async_database, upgrade
from token_translator.tables import USED_CREDENTIALS
from token_translator.used_credentials import UsedCredentials

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
UNTIL = NOW + timedelta(seconds=120)


@pytest.fixture
async def replicas(empty_url: str) -> AsyncIterator[tuple[UsedCredentials, UsedCredentials]]:
    """Two processes on one database."""
    engines = [open_async_database(empty_url) for _ in range(2)]
    async with engines[0].begin() as connection:
        await connection.run_sync(upgrade, "seals")
    one, other = (UsedCredentials(engine) for engine in engines)
    yield one, other
    for credentials, engine in zip((one, other), engines, strict=True):
        await credentials.close()
        await engine.dispose()


async def test_each_once_however_many_come(
    replicas: tuple[UsedCredentials, UsedCredentials],
) -> None:
    """Of all who show one at a time, at any replica, one is let through."""
    shown = [
        replica.once("gateway", f"id{number}", until=UNTIL, now=NOW)
        for number in range(100)
        for replica in (*replicas, *replicas)
    ]
    outcomes = await asyncio.gather(*shown)
    assert [outcomes[4 * n : 4 * n + 4].count(True) for n in range(100)] == [1] * 100


async def test_two_services_may_choose_the_same_words(
    replicas: tuple[UsedCredentials, UsedCredentials],
) -> None:
    """One service cannot use up what another one will show."""
    assert await replicas[0].once("gateway", "1", until=UNTIL, now=NOW)
    assert await replicas[1].once("frontdoor", "1", until=UNTIL, now=NOW)


async def test_what_has_expired_is_forgotten(
    replicas: tuple[UsedCredentials, UsedCredentials],
) -> None:
    """The table holds no more than what was used in the last minutes."""
    for minute in range(10):
        now = NOW + timedelta(minutes=minute)
        until = now + timedelta(seconds=120)
        await replicas[0].once("gateway", f"id{minute}", until=until, now=now)
    async with replicas[0].engine.connect() as connection:
        kept = await connection.scalar(select(func.count()).select_from(USED_CREDENTIALS))
    assert kept is not None
    assert kept <= 4
