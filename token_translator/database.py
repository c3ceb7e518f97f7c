"""Opening this package's databases, and bringing their tables to the current version by hand."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TypeVar

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import ArgumentError, InterfaceError, OperationalError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import ConnectionPoolEntry

from headgate.problems import Unavailable
from headgate.settings import SettingsError

T = TypeVar("T")

AWAY = (OperationalError, InterfaceError)
"""How drivers say that their database is away."""
BUSY_MILLISECONDS = 5000
ANSWER_SECONDS = 6.0
"""Longer than a write on SQLite waits for another one."""
READ_ONLY = {"headgate_read_only": True}
"""Execution options of connections that only look: on SQLite they take no write lock."""


def open_database(url: str) -> Engine:
    """A blocking engine, for a process that writes one thing in one order."""
    engine = _engine(create_engine, url)
    _prepare(engine)
    if engine.dialect.name == "postgresql":
        _bound_waits(engine)
    return engine


def open_async_database(url: str) -> AsyncEngine:
    """An engine for a service's event loop."""
    engine = _engine(create_async_engine, url)
    _prepare(engine.sync_engine)
    if engine.dialect.name == "postgresql":
        _bound_waits(engine.sync_engine)
    return engine


@contextlib.asynccontextmanager
async def answering() -> AsyncIterator[None]:
    """Whatever the driver says when its database is away, or that it says nothing, `Unavailable`.

    Nobody who asks waits for longer than `ANSWER_SECONDS`.
    """
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            yield
    except (*AWAY, TimeoutError) as error:
        raise Unavailable(
            "The database does not answer.", code="database_away", retry_after=1
        ) from error


def _engine(make: Callable[[str], T], url: str) -> T:
    try:
        return make(url)
    except (ArgumentError, ImportError, ValueError) as error:
        # The URL itself may hold a password.
        raise SettingsError(f"database: this URL cannot be used: {error}") from error


def require_place(engine: AsyncEngine) -> None:
    """Refuse a file that SQLite could not open; its driver says so less well, and too late.

    Raises:
        SettingsError: naming it.
    """
    url = engine.url
    if url.get_backend_name() != "sqlite" or url.database in {None, "", ":memory:"}:
        return
    path = Path(str(url.database))
    if not os.access(path.parent, os.R_OK | os.W_OK | os.X_OK):
        raise SettingsError(f"database: {path.parent}: no folder of ours to write in")
    if path.exists() and not os.access(path, os.R_OK | os.W_OK):
        raise SettingsError(f"database: {path}: not ours to read and write")


def _prepare(engine: Engine) -> None:
    if engine.dialect.name != "sqlite":
        return

    @event.listens_for(engine, "connect")
    def connect(connection: DBAPIConnection, _: ConnectionPoolEntry) -> None:
        # We say BEGIN ourselves: the driver's implicit one comes too late to lock anything.
        connection.isolation_level = None
        cursor = connection.cursor()
        cursor.execute("PRAGMA journal_mode = WAL")
        cursor.execute("PRAGMA synchronous = FULL")  # what is committed has reached the disk
        cursor.execute(f"PRAGMA busy_timeout = {BUSY_MILLISECONDS}")
        cursor.close()

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        looking = connection.get_execution_options().get("headgate_read_only", False)
        connection.exec_driver_sql("BEGIN" if looking else "BEGIN IMMEDIATE")


def _bound_waits(engine: Engine) -> None:
    """Nobody waits for ever for a process that hangs with what others need."""

    @event.listens_for(engine, "connect")
    def connect(connection: DBAPIConnection, _: ConnectionPoolEntry) -> None:
        cursor = connection.cursor()
        cursor.execute("SET lock_timeout = '5s'")
        cursor.execute("SET idle_in_transaction_session_timeout = '30s'")
        cursor.close()
        connection.commit()


def upgrade(connection: Connection, history: str) -> None:
    """Bring a database to the newest version of one history: `seals`, `ledger` or `persons`."""
    config = _config(history)
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def require_current(connection: Connection, history: str, remedy: str) -> None:
    """Refuse a database whose tables are of another version; `remedy` is the command to run.

    Raises:
        SettingsError: saying what is there and what to do.
    """
    head = ScriptDirectory.from_config(_config(history)).get_current_head()
    found = MigrationContext.configure(connection).get_current_revision()
    if found != head:
        if found is None:
            raise SettingsError(f"the database has no tables yet: run {remedy}")
        raise SettingsError(f"the database of {history} is at {found}, not at {head}: run {remedy}")


def require_durable(connection: Connection) -> None:
    """Refuse a database whose commits are not on its disk when they return.

    Raises:
        SettingsError: PostgreSQL is set to `synchronous_commit = off` for us.
    """
    if connection.dialect.name != "postgresql":
        return  # SQLite is told so by ourselves, above
    found = connection.exec_driver_sql("SHOW synchronous_commit").scalar()
    if found == "off":
        raise SettingsError("synchronous_commit is off in the database: what we sign could be lost")


def _config(history: str) -> Config:
    folder = Path(__file__).parent / "migrations"
    config = Config()
    config.set_main_option("script_location", str(folder))
    config.set_main_option("version_locations", str(folder / history))
    config.set_main_option("path_separator", "newline")
    return config
