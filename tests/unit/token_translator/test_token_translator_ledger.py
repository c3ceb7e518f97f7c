"""The ledger: chained, with serials that only grow, and people who can be erased."""

import hashlib
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import Engine, delete, select, update

from headgate.identity import Identity
from token_translator.database import open_database, upgrade
from token_translator.signer.ledger import GENESIS, LEDGER, ChainError, Ledger, Record
from token_translator.signer.persons import PERSONS, Persons

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
ALICE = Identity("https://iam.example/", "alice-subject")
BOB = Identity("https://iam.example/", "bob-subject")


@pytest.fixture
def engines(tmp_path: Path) -> Iterator[tuple[Engine, Engine]]:
    """Two migrated databases, ledger and persons."""
    pair = []
    for history in ("ledger", "persons"):
        engine = open_database(f"sqlite:///{tmp_path}/{history}.sqlite")
        with engine.begin() as connection:
            upgrade(connection, history)
        pair.append(engine)
    yield pair[0], pair[1]
    for engine in pair:
        engine.dispose()


def open_ledger(engines: tuple[Engine, Engine], serial_floor: int = 0) -> Ledger:
    """A ledger on these databases, as after a restart."""
    persons = Persons(engine=engines[1], index_key=b"i" * 32)
    return Ledger(engine=engines[0], persons=persons, serial_floor=serial_floor)


def issued(identity: Identity = ALICE) -> Record:
    """A certificate's record."""
    personal = {"iss": identity.iss, "sub": identity.sub, "account": identity.sub[:5]}
    return Record("issued", identity, {"profile": "person"}, personal)


def refused(identity: Identity = ALICE) -> Record:
    """A refusal's record."""
    return Record("refused", identity, {"code": "ceiling"}, {"sub": identity.sub})


def test_serials_grow_over_groups_and_restarts(engines: tuple[Engine, Engine]) -> None:
    """Refusals take no serial; a reopened ledger goes on where the last one ended."""
    assert open_ledger(engines).append([issued(), refused(), issued(BOB)], NOW) == [1, 0, 2]
    assert open_ledger(engines).append([issued()], NOW) == [3]
    assert open_ledger(engines).verify()[0] == 4


def test_serials_after_a_restore(engines: tuple[Engine, Engine]) -> None:
    """With a floor above what was seen anywhere, no serial comes a second time."""
    open_ledger(engines).append([issued()], NOW)
    assert open_ledger(engines, serial_floor=1000).append([issued()], NOW) == [1001]
    assert open_ledger(engines).append([issued()], NOW) == [1002]


def test_an_empty_ledger_is_intact(engines: tuple[Engine, Engine]) -> None:
    """Nothing written is nothing broken."""
    assert open_ledger(engines).verify() == (0, GENESIS)


@pytest.mark.parametrize("column", ["entry", "hash", "serial", "person"])
def test_a_change_is_seen(engines: tuple[Engine, Engine], column: str) -> None:
    """Whatever column of a row is changed, the chain names the row."""
    ledger = open_ledger(engines)
    ledger.append([issued(), issued(), issued()], NOW)
    value = {"entry": b"{}", "hash": "0" * 64, "serial": 99, "person": "f" * 32}[column]
    with engines[0].begin() as connection:
        connection.execute(update(LEDGER).where(LEDGER.c.seq == 2).values({column: value}))
    with pytest.raises(ChainError, match="entry 2"):
        ledger.verify()


def test_a_gap_is_seen(engines: tuple[Engine, Engine]) -> None:
    """An entry taken out of the middle is missed by the next one."""
    ledger = open_ledger(engines)
    ledger.append([issued(), issued(), issued()], NOW)
    with engines[0].begin() as connection:
        connection.execute(delete(LEDGER).where(LEDGER.c.seq == 2))
    with pytest.raises(ChainError, match="entry 3"):
        ledger.verify()


def test_a_rewritten_entry_is_seen(engines: tuple[Engine, Engine]) -> None:
    """An entry rewritten with a hash that fits it is betrayed by its successor."""
    ledger = open_ledger(engines)
    ledger.append([issued(), issued(), issued()], NOW)
    with engines[0].begin() as connection:
        row = connection.execute(select(LEDGER).where(LEDGER.c.seq == 2)).one()
        forged = row.entry.replace(b'"profile":"person"', b'"profile":"forger"')
        values = {"entry": forged, "hash": hashlib.sha256(forged).hexdigest()}
        connection.execute(update(LEDGER).where(LEDGER.c.seq == 2).values(values))
    with pytest.raises(ChainError, match="entry 3"):
        ledger.verify()


def test_personal_fields_are_encrypted(engines: tuple[Engine, Engine], tmp_path: Path) -> None:
    """Names are in no file in clear, and come back for who holds the keys."""
    ledger = open_ledger(engines)
    ledger.append([issued(), issued(BOB)], NOW)
    opened = list(ledger.entries())
    assert [entry["personal"]["sub"] for entry in opened] == ["alice-subject", "bob-subject"]
    files = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    for secret in (b"alice-subject", b"bob-subject", b"iam.example"):
        assert secret not in files


def test_an_erased_person(engines: tuple[Engine, Engine]) -> None:
    """Deleting the key erases the person; the chain verifies, others are still readable."""
    ledger = open_ledger(engines)
    ledger.append([issued(), issued(BOB)], NOW)
    (first, _) = ledger.entries()
    with engines[1].begin() as connection:
        connection.execute(delete(PERSONS).where(PERSONS.c.person == first["person"]))
    again = list(ledger.entries())
    assert again[0]["personal"] is None
    assert again[1]["personal"]["sub"] == "bob-subject"
    assert ledger.verify()[0] == 2
    ledger.append([issued()], NOW)
    assert list(ledger.entries())[2]["person"] != first["person"]


def test_personal_fields_belong_to_their_entry(engines: tuple[Engine, Engine]) -> None:
    """A ciphertext moved to another entry of the same person does not open there."""
    ledger = open_ledger(engines)
    ledger.append([issued(), issued()], NOW)
    with engines[0].begin() as connection:
        rows = connection.execute(select(LEDGER).order_by(LEDGER.c.seq)).all()
        first, second = (json.loads(row.entry) for row in rows)
        second["personal"] = first["personal"]
        entry = json.dumps(second, sort_keys=True, separators=(",", ":")).encode()
        connection.execute(update(LEDGER).where(LEDGER.c.seq == 2).values(entry=entry))
    with pytest.raises(ChainError, match="entry 2"):
        list(ledger.entries())
