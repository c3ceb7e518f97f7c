"""alembic's entry: runs the history on one connection of our own engine."""

import asyncio

from alembic import context
from sqlalchemy import Connection

from gateway.store import create_engine
from gateway.tables import metadata


def _migrate(connection: Connection) -> None:
    context.configure(connection=connection, target_metadata=metadata, render_as_batch=True)
    with context.begin_transaction():
        context.run_migrations()


async def _online() -> None:
    engine = create_engine(context.config.get_main_option("sqlalchemy.url") or "")
    try:
        async with engine.begin() as connection:
            await connection.run_sync(_migrate)
    finally:
        await engine.dispose()


asyncio.run(_online())
