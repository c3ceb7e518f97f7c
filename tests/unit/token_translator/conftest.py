"""Ledgers on both databases."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.postgresql import Postgresql
from tests.unit.token_translator.ledger_books import Books, migrate


@pytest.fixture(scope="session")
def migrated(postgresql: Postgresql) -> tuple[str, str]:
    """Databases with the tables of ledger and persons, empty between tests."""
    urls = (postgresql.create_database(), postgresql.create_database())
    migrate(*urls)
    return urls


@pytest.fixture
def sqlite_books(tmp_path: Path) -> Iterator[Books]:
    """A ledger on SQLite."""
    urls = [f"sqlite:///{tmp_path}/{history}.sqlite" for history in ("ledger", "persons")]
    migrate(*urls)
    books = Books.make(tmp_path, *urls)
    yield books
    books.close()


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.site)])
def books(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Books]:
    """A ledger on each database that a site may have."""
    if request.param == "sqlite":
        yield request.getfixturevalue("sqlite_books")
        return
    books = Books.make(tmp_path, *request.getfixturevalue("migrated"))
    yield books
    books.empty()
    books.close()


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.site)])
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database for the HTTP service, of each kind that a site may have."""
    if request.param == "sqlite":
        return f"sqlite+aiosqlite:///{tmp_path}/tokens.sqlite"
    made: str = request.getfixturevalue("postgresql").create_database()
    return made
