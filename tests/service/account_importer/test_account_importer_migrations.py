"""The database's history leads to exactly the tables the code uses."""

from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy.engine import Connection

from account_importer.migrations import migrate, require_current
from account_importer.store import Store
from account_importer.tables import metadata
from headgate.settings import SettingsError


async def test_the_newest_revision_is_the_tables(tmp_path: Path) -> None:
    """An empty database is refused; migrated, it has the models' tables; again is harmless."""
    store = Store(f"sqlite+aiosqlite:///{tmp_path}/accounts.db")
    try:
        with pytest.raises(SettingsError, match="headgate-accounts migrate"):
            await require_current(store)
        for _ in range(2):
            await migrate(store)
        await require_current(store)

        def difference(connection: Connection) -> list[object]:
            return list(compare_metadata(MigrationContext.configure(connection), metadata))

        async with store.connection() as connection:
            assert await connection.run_sync(difference) == []
    finally:
        await store.close()
