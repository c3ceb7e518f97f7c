"""A ledger with its persons and its position, as tests of the signer open it."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from sqlalchemy import Engine

from headgate.clock import rfc3339
from headgate.identity import Identity
from token_translator.database import open_database, upgrade
from token_translator.signer import persons, tables
from token_translator.signer.entries import Head, Record
from token_translator.signer.ledger import Ledger
from token_translator.signer.persons import Persons
from token_translator.signer.position import Position, encode

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
ALICE = Identity("https://iam.example/", "alice-subject")
BOB = Identity("https://iam.example/", "bob-subject")


def migrate(ledger: str, persons: str) -> None:
    """Make the tables."""
    for url, history in ((ledger, "ledger"), (persons, "persons")):
        engine = open_database(url)
        with engine.begin() as connection:
            upgrade(connection, history)
        engine.dispose()


@dataclass(slots=True)
class Books:
    """Two migrated databases, and the file with the position."""

    engine: Engine
    persons_engine: Engine
    persons: Persons
    position: Position

    @classmethod
    def make(cls, folder: Path, *urls: str) -> "Books":
        """Fresh ones in databases that have tables only."""
        engines = [open_database(url) for url in urls]
        path = folder / "ledger.position"
        path.write_bytes(encode(Head()))
        return cls(
            engines[0],
            engines[1],
            Persons(engine=engines[1], index_key=b"i" * 32),
            Position(path),
        )

    def ledger(self, serial_floor: int = 0) -> Ledger:
        """The ledger, as after a restart."""
        return Ledger(
            engine=self.engine,
            persons=self.persons,
            position=self.position,
            serial_floor=serial_floor,
        )

    def empty(self) -> None:
        """Delete every row."""
        for engine, metadata in (
            (self.engine, tables.METADATA),
            (self.persons_engine, persons.METADATA),
        ):
            with engine.begin() as connection:
                for table in metadata.sorted_tables:
                    connection.execute(table.delete())

    def close(self) -> None:
        """Close everything."""
        self.position.close()
        self.engine.dispose()
        self.persons_engine.dispose()


def issued(
    identity: Identity = ALICE, *, minutes: int = 60, at: datetime = NOW, **personal: str
) -> Record:
    """A certificate's record."""
    until = at + timedelta(minutes=minutes)
    public = {
        "profile": "person",
        "valid_after": rfc3339(at),
        "valid_before": rfc3339(until),
    }
    named = {"iss": identity.iss, "sub": identity.sub, "account": identity.sub[:5], **personal}
    return Record("issued", identity, public, named, valid_before=int(until.timestamp()))


def refused(identity: Identity = ALICE) -> Record:
    """A refusal's record."""
    return Record("refused", identity, {"code": "ceiling"}, {"sub": identity.sub})
