"""A key for each person, apart from the ledger: without it their fields there are noise."""

import hashlib
import hmac
import secrets
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import (
    BigInteger,
    Column,
    Engine,
    LargeBinary,
    MetaData,
    String,
    Table,
    delete,
    insert,
    select,
)

from headgate.identity import Identity
from token_translator.database import READ_ONLY

KEY_BYTES = 32

METADATA = MetaData()
PERSONS = Table(
    "persons",
    METADATA,
    Column("lookup", String(64), primary_key=True),
    Column("person", String(32), unique=True, nullable=False),
    Column("key", LargeBinary(KEY_BYTES), nullable=False),
    Column("created_at", BigInteger, nullable=False),
)


@dataclass(frozen=True, slots=True)
class Person:
    """A random name that stands for an identity in the ledger, and its AES-256 field key."""

    person: str
    key: bytes


class Persons:
    """Finds and makes person keys; blocking, durable when a call returns.

    Identities are not in the table: they are found by an HMAC under `index_key`, so that neither
    the table nor the ledger alone says who was here.
    """

    def __init__(self, *, engine: Engine, index_key: bytes) -> None:
        self._engine = engine
        self._reader = engine.execution_options(**READ_ONLY)
        self._index_key = index_key

    def of(self, identities: Collection[Identity], now: datetime) -> Mapping[Identity, Person]:
        """The persons of these identities, made where they are new."""
        lookups = {self._lookup(identity): identity for identity in identities}
        found = self._find(lookups)
        missing = [lookup for lookup in lookups if lookup not in found]
        if missing:
            with self._engine.begin() as connection:
                connection.execute(
                    insert(PERSONS),
                    [
                        {
                            "lookup": lookup,
                            "person": secrets.token_hex(16),
                            "key": secrets.token_bytes(KEY_BYTES),
                            "created_at": int(now.timestamp()),
                        }
                        for lookup in missing
                    ],
                )
            found = self._find(lookups)
        return {identity: found[lookup] for lookup, identity in lookups.items()}

    def find(self, identity: Identity) -> Person | None:
        """The person of an identity; None if it is not here, or was erased."""
        lookup = self._lookup(identity)
        return self._find([lookup]).get(lookup)

    def erase(self, names: Collection[str]) -> None:
        """Delete persons by their random names: their fields in the ledger are noise from now on.

        A copy of this database in a backup still has their keys: it must not be kept for long.
        """
        with self._engine.begin() as connection:
            for name in names:
                connection.execute(delete(PERSONS).where(PERSONS.c.person == name))

    def names(self) -> Iterator[str]:
        """Everybody's random names, in order."""
        last = ""
        while True:
            with self._reader.connect() as connection:
                page = connection.scalars(
                    select(PERSONS.c.person)
                    .where(PERSONS.c.person > last)
                    .order_by(PERSONS.c.person)
                    .limit(1000)
                ).all()
            yield from page
            if not page:
                return
            last = page[-1]

    def keys(self, names: Collection[str]) -> Mapping[str, bytes]:
        """The field keys of persons by their random names; erased ones are not in it."""
        with self._reader.connect() as connection:
            rows = connection.execute(
                select(PERSONS.c.person, PERSONS.c.key).where(PERSONS.c.person.in_(names))
            )
            return {row.person: row.key for row in rows}

    def _find(self, lookups: Collection[str]) -> dict[str, Person]:
        with self._reader.connect() as connection:
            rows = connection.execute(select(PERSONS).where(PERSONS.c.lookup.in_(lookups)))
            return {row.lookup: Person(row.person, row.key) for row in rows}

    def _lookup(self, identity: Identity) -> str:
        name = f"{identity.iss}\0{identity.sub}".encode()
        return hmac.new(self._index_key, name, hashlib.sha256).hexdigest()
