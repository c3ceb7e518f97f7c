"""Forgetting in the HTTP service's database: what is old enough, and one person at once."""

from collections.abc import Mapping
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, Table, and_, delete, select, tuple_
from sqlalchemy.ext.asyncio import AsyncEngine

from headgate.identity import Identity
from token_translator.tables import (
    ACCOUNT_REQUESTS,
    CHANGES,
    HOLDS,
    HOST_ENROLMENTS,
    ONE_TIME_PASSWORDS,
    SEALS,
)

BATCH = 1000
"""Rows of one transaction: a database of one writer is not held up for long."""


async def retain(
    engine: AsyncEngine, *, now: datetime, age: timedelta, seal_max_age: timedelta
) -> Mapping[str, int]:
    """Delete what is older than `age`, and what has expired anyway; how many rows of which table.

    A seal is kept as long as it is good for something, a hold as long as it is in force.
    """
    before = int((now - age).timestamp())
    expired = int(now.timestamp())
    sealed_before = int((now - max(age, seal_max_age)).timestamp())
    return {
        table.name: await _delete(engine, table, old)
        for table, old in (
            (SEALS, SEALS.c.sealed_at < sealed_before),
            (HOLDS, HOLDS.c.lifted_at < before),
            (CHANGES, CHANGES.c.at < before),
            (ACCOUNT_REQUESTS, ACCOUNT_REQUESTS.c.asked_again_at < before),
            (ONE_TIME_PASSWORDS, ONE_TIME_PASSWORDS.c.expires_at < expired),
            (HOST_ENROLMENTS, HOST_ENROLMENTS.c.expires_at < expired),
        )
    }


async def erase(engine: AsyncEngine, identity: Identity) -> tuple[Mapping[str, int], int]:
    """Delete what is kept of a person: how many rows of which table, and the holds that stay.

    Their seals go with them, so nothing is done for them without a token any more. A hold that is
    in force stays: without it they could come back.
    """
    removed = {
        table.name: await _delete(engine, table, _of(table, identity))
        for table in (SEALS, CHANGES, ACCOUNT_REQUESTS, ONE_TIME_PASSWORDS)
    }
    lifted = and_(_of(HOLDS, identity), HOLDS.c.lifted_at.is_not(None))
    removed[HOLDS.name] = await _delete(engine, HOLDS, lifted)
    async with engine.connect() as connection:
        staying = await connection.execute(select(HOLDS.c.id).where(_of(HOLDS, identity)))
        return removed, len(staying.all())


def _of(table: Table, identity: Identity) -> ColumnElement[bool]:
    return and_(table.c.iss == identity.iss, table.c.sub == identity.sub)


async def _delete(engine: AsyncEngine, table: Table, condition: ColumnElement[bool]) -> int:
    key = tuple(table.primary_key.columns)
    some = select(*key).where(condition).limit(BATCH)
    removed = 0
    while True:
        async with engine.begin() as connection:
            done = await connection.execute(delete(table).where(tuple_(*key).in_(some)))
        removed += done.rowcount
        if done.rowcount < BATCH:
            return removed
