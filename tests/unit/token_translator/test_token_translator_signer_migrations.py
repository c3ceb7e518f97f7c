"""The tables of the ledger: made in steps, and what is in them is carried along."""

import json
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Engine, MetaData, insert, select, table, text

from headgate.settings import SettingsError
from testbed.postgresql import Postgresql
from token_translator import database
from token_translator.database import open_database, require_durable, upgrade
from token_translator.signer import persons, tables


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.site)])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Engine:
    """An empty database."""
    if request.param == "sqlite":
        return open_database(f"sqlite:///{tmp_path}/one.sqlite")
    return open_database(request.getfixturevalue("postgresql").create_database())


@pytest.mark.parametrize(
    ("history", "metadata"), [("ledger", tables.METADATA), ("persons", persons.METADATA)]
)
def test_the_tables_are_those_of_the_code(engine: Engine, history: str, metadata: MetaData) -> None:
    """After all steps nothing differs from what the code reads and writes."""
    with engine.begin() as connection:
        upgrade(connection, history)
        context = MigrationContext.configure(connection)
        differences = [
            one
            for one in compare_metadata(context, metadata)
            if not (one[0] == "remove_table" and one[1].name == "alembic_version")
        ]
    engine.dispose()
    assert differences == []


def test_entries_of_the_first_release(engine: Engine) -> None:
    """Certificates from before learn when they expire, so that they can be revoked."""
    entry = {"kind": "issued", "valid_before": "2026-11-21T13:00:00Z"}
    with engine.begin() as connection:
        config = database._config("ledger")
        config.attributes["connection"] = connection
        command.upgrade(config, "ledger_0001")
        old = table("ledger", *(c._copy() for c in tables.LEDGER.c if c.name != "valid_before"))
        row = {"at": 1, "person": "p", "hash": "h", "entry": json.dumps(entry).encode()}
        connection.execute(
            insert(old), [{**row, "seq": n, "serial": n if n % 2 else None} for n in range(1, 2500)]
        )
        command.upgrade(config, "ledger_0002")
        found = connection.execute(
            select(tables.LEDGER.c.serial, tables.LEDGER.c.valid_before)
        ).all()
    engine.dispose()
    assert len(found) == 2499
    assert {row.valid_before for row in found if row.serial} == {1795266000}
    assert {row.valid_before for row in found if not row.serial} == {None}


@pytest.mark.site  # postgresql
def test_commits_that_do_not_last(postgresql: Postgresql) -> None:
    """A database that answers before its disk has it is refused."""
    url = postgresql.create_database()
    engine = open_database(url)
    with engine.begin() as connection:
        require_durable(connection)
        name = connection.exec_driver_sql("SELECT current_database()").scalar_one()
        connection.execute(text(f"ALTER DATABASE {name} SET synchronous_commit = off"))
    engine.dispose()
    with engine.connect() as connection, pytest.raises(SettingsError, match="synchronous_commit"):
        require_durable(connection)
    engine.dispose()
