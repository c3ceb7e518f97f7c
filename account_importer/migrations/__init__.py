"""The database's history (alembic): `headgate-accounts migrate` brings it up to date."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy.engine import Connection

from account_importer.store import Store
from headgate.settings import SettingsError


def configuration() -> Config:
    """Where alembic finds the revisions; there is no alembic.ini."""
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent))
    config.set_main_option("path_separator", "os")
    return config


async def migrate(store: Store) -> None:
    """Bring the database to the newest revision."""

    def upgrade(connection: Connection) -> None:
        config = configuration()
        config.attributes["connection"] = connection
        command.upgrade(config, "head")

    async with store.connection() as connection:
        await connection.run_sync(upgrade)


async def require_current(store: Store) -> None:
    """Raise SettingsError unless the database is at the newest revision."""

    def current(connection: Connection) -> str | None:
        return MigrationContext.configure(connection).get_current_revision()

    async with store.connection() as connection:
        found = await connection.run_sync(current)
    newest = ScriptDirectory.from_config(configuration()).get_current_head()
    if found != newest:
        raise SettingsError("the database is not up to date: run `headgate-accounts migrate`")
