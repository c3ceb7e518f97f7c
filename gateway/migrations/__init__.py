"""The history of the gateway's database, applied by hand: `headgate-gateway migrate`."""

from pathlib import Path

import structlog
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy.exc import DBAPIError

from gateway.store import Store, create_engine
from headgate.problems import Unavailable
from headgate.settings import SettingsError

log = structlog.get_logger(__name__)

REMEDY = "run headgate-gateway migrate"


class DatabaseError(Exception):
    """The database does not do what it is asked; the message says what it said."""


def upgrade(url: str) -> None:
    """Bring a database (a SQLAlchemy URL) to this release's tables.

    Raises:
        SettingsError: the URL is not one of a database that we know. DatabaseError: it refuses.
    """
    create_engine(url)
    try:
        command.upgrade(configuration(url), "head")
    except (DBAPIError, CommandError, OSError) as error:
        raise DatabaseError(f"database: {getattr(error, 'orig', None) or error}") from error


async def check_tables(store: Store) -> None:
    """Return if this release can serve on the database's tables.

    Migrations only expand, so that a replica of the release before goes on beside a newer one:
    newer tables are taken. A database that is away may come back, and readiness tells of it.

    Raises:
        SettingsError: there are no tables, or older ones.
    """
    head = ScriptDirectory.from_config(configuration("")).get_current_head() or ""
    try:
        found = await store.revision()
    except Unavailable as problem:
        log.warning("database_away", error=str(problem.__cause__))
        return
    if not found:
        raise SettingsError(f"the database has no tables yet: {REMEDY}")
    if found < head:
        raise SettingsError(f"the database's tables are at {found}, not at {head}: {REMEDY}")
    if found > head:
        log.warning("database_newer", found=found, own=head)


def configuration(url: str) -> Config:
    """The configuration of alembic for a database; there is no ini file."""
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent))
    config.set_main_option("sqlalchemy.url", url.replace("%", "%%"))
    return config
