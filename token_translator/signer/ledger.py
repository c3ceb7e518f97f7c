"""The ledger: every certificate and refusal, each entry chained to the one before by its hash.

An entry is canonical JSON (keys sorted, no spaces): `{v, seq, prev, at, kind, serial, person, ca,
profile, valid_after, valid_before, code, personal}`. `prev` is the SHA-256 of the previous entry's
bytes, 64 zeros for the first. `personal` is base64 of a 12-byte nonce and the AES-256-GCM
ciphertext of a JSON object under the person's key, with the rest of the entry as associated data:
erasing the key erases the person, and the chain still verifies.
"""

import base64
import hashlib
import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Engine,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    func,
    insert,
    select,
)

from headgate.clock import rfc3339
from headgate.identity import Identity
from token_translator.database import READ_ONLY
from token_translator.signer.persons import Person, Persons

VERSION = 1
GENESIS = "0" * 64
NONCE_BYTES = 12

METADATA = MetaData()
LEDGER = Table(
    "ledger",
    METADATA,
    Column(
        "seq",
        BigInteger().with_variant(Integer, "sqlite"),
        primary_key=True,
        autoincrement=False,
    ),
    Column("serial", BigInteger, unique=True, nullable=True),
    Column("at", BigInteger, nullable=False),
    Column("person", String(32), nullable=False, index=True),
    Column("entry", LargeBinary, nullable=False),
    Column("hash", String(64), nullable=False),
)


class ChainError(Exception):
    """The ledger is not what was written; the message names the first entry that shows it."""


@dataclass(frozen=True, slots=True)
class Record:
    """What is to be written: `public` in clear, `personal` under the person's key."""

    kind: Literal["issued", "refused"]
    identity: Identity
    public: Mapping[str, str]
    personal: Mapping[str, Any]


class Ledger:
    """Appends, and checks what was appended; blocking, durable when a call returns.

    `serial_floor`: serials begin above it (after a restore: the highest seen anywhere).
    """

    def __init__(self, *, engine: Engine, persons: Persons, serial_floor: int = 0) -> None:
        self._engine = engine
        self._reader = engine.execution_options(**READ_ONLY)
        self._persons = persons
        self._serial_floor = serial_floor

    def append(self, records: Sequence[Record], now: datetime) -> list[int]:
        """Write the records in one transaction; their serials (0 for a refusal)."""
        persons = self._persons.of({record.identity for record in records}, now)
        with self._engine.begin() as connection:
            seq, prev, serial = self._head(connection)
            rows = []
            for record in records:
                seq += 1
                serial += record.kind == "issued"
                own_serial = serial if record.kind == "issued" else None
                person = persons[record.identity]
                entry = _entry(record, person, seq=seq, prev=prev, serial=own_serial, now=now)
                prev = hashlib.sha256(entry).hexdigest()
                rows.append(
                    {
                        "seq": seq,
                        "serial": own_serial,
                        "at": int(now.timestamp()),
                        "person": person.person,
                        "entry": entry,
                        "hash": prev,
                    }
                )
            connection.execute(insert(LEDGER), rows)
        return [int(row["serial"] or 0) for row in rows]

    def verify(self) -> tuple[int, str]:
        """Walk the whole chain: the last entry's number and hash, to compare with a copy.

        Raises:
            ChainError: an entry was changed, left out or put in.
        """
        seq, prev = 0, ""
        for row in self._rows():
            # SQLite keeps any type in any column: a text is none of our entries.
            entry = row.entry if isinstance(row.entry, bytes) else b""
            digest = hashlib.sha256(entry).hexdigest()
            if row.hash != digest:
                raise ChainError(f"entry {row.seq}: its hash is another")
            document = json.loads(entry)
            columns = (row.seq, row.serial, row.person)
            if columns != tuple(document.get(name) for name in ("seq", "serial", "person")):
                raise ChainError(f"entry {row.seq}: its columns are not what it says")
            if prev and (row.seq != seq + 1 or document.get("prev") != prev):
                raise ChainError(f"entry {row.seq}: it does not follow entry {seq}")
            seq, prev = row.seq, digest
        return seq, prev or GENESIS

    def entries(self) -> Iterator[dict[str, Any]]:
        """Every entry in order, `personal` opened where the person's key is still there."""
        for row in self._rows():
            document = json.loads(row.entry)
            key = self._persons.keys([row.person]).get(row.person)
            yield {**document, "personal": _open(document, key) if key else None}

    def _rows(self) -> Iterator[Any]:
        with self._reader.connect() as connection:
            yield from connection.execute(select(LEDGER).order_by(LEDGER.c.seq)).yield_per(1000)

    def _head(self, connection: Connection) -> tuple[int, str, int]:
        highest = select(func.max(LEDGER.c.serial)).scalar_subquery()
        last = connection.execute(
            select(LEDGER.c.seq, LEDGER.c.hash, highest.label("highest"))
            .order_by(LEDGER.c.seq.desc())
            .limit(1)
        ).first()
        if last is None:
            return 0, GENESIS, self._serial_floor
        return last.seq, last.hash, max(last.highest or 0, self._serial_floor)


def _entry(
    record: Record, person: Person, *, seq: int, prev: str, serial: int | None, now: datetime
) -> bytes:
    document = {
        "v": VERSION,
        "seq": seq,
        "prev": prev,
        "at": rfc3339(now),
        "kind": record.kind,
        "serial": serial,
        "person": person.person,
        **record.public,
    }
    nonce = secrets.token_bytes(NONCE_BYTES)
    sealed = AESGCM(person.key).encrypt(nonce, _canonical(record.personal), _canonical(document))
    return _canonical({**document, "personal": base64.b64encode(nonce + sealed).decode()})


def _open(document: Mapping[str, Any], key: bytes) -> dict[str, Any]:
    sealed = base64.b64decode(document["personal"])
    rest = {name: value for name, value in document.items() if name != "personal"}
    try:
        clear = AESGCM(key).decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], _canonical(rest))
    except InvalidTag as error:
        raise ChainError(f"entry {document['seq']}: its personal fields do not open") from error
    opened: dict[str, Any] = json.loads(clear)
    return opened


def _canonical(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
