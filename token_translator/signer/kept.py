"""What entries of the ledger say, held against the tables that were made of it."""

import base64
import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, select

from token_translator.keys import fingerprint
from token_translator.signer import notes, revocations
from token_translator.signer.entries import ChainError, Entry
from token_translator.signer.tables import (
    AUTHORITIES,
    HOST_KEYS,
    LEDGER,
    REVOKED_KEYS,
    REVOKED_SERIALS,
)

_TELLING = (b'"kind":"revoked"', b'"kind":"restored"', b'"mark":[', b'"profile":"host"')
"""Of an entry that a table has something of, however it was written."""


def concerns(entry: Entry) -> bool:
    """Whether an entry may say something that a table must have."""
    return any(words in entry.entry for words in _TELLING)


def require(connection: Connection, entry: Entry, now: datetime) -> None:
    """Return if what an entry says, and still counts, is in the tables.

    Raises:
        ChainError: somebody took it out of them, or has it end too early.
    """
    document = json.loads(entry.entry)
    match document["kind"]:
        case "revoked":
            _require_serials(connection, entry, document, now)
            _require_keys(connection, entry, document)
        case "restored":
            _require_lost(connection, entry, document, now)
        case "issued" if document["profile"] == "host" and document.get("key"):
            _require_host(connection, entry, document["key"])
    notes.require_kept(connection, entry.seq, document)


class Authorities:
    """What entries say of authorities, the last word about each counting; held at the end."""

    def __init__(self) -> None:
        self._said: dict[str, tuple[int, str, str]] = {}

    def see(self, entry: Entry) -> None:
        """One more entry, in order."""
        if b'"kind":"authority"' in entry.entry:
            document = json.loads(entry.entry)
            if document["kind"] == "authority":
                self._said[document["ca"]] = (entry.seq, document["role"], document["state"])

    def require(self, connection: Connection, now: datetime) -> None:
        """Return if the table says the same, of the same keys, and none counts too short.

        Raises:
            ChainError: it does not: serials that are revoked would leave the list.
        """
        rows = {row.fingerprint: row for row in connection.execute(select(AUTHORITIES))}
        for name, row in rows.items():
            if _fingerprint(row.line) != name:
                raise ChainError(f"the authority {name} has another key in the table")
        for name, (seq, role, state) in self._said.items():
            there = rows.get(name)
            if there is None or (there.role, there.state) != (role, state):
                raise ChainError(
                    f"entry {seq}: the authority {name} is not in the table as it says"
                )
            if state == "retired" and (there.last_expires or 0) < _last(connection, name, seq, now):
                raise ChainError(f"entry {seq}: the authority it retired leaves the list too early")


def _last(connection: Connection, name: str, seq: int, now: datetime) -> int:
    """When the last certificate expires that an authority signed before it was retired."""
    # What another signer still signed later is counted when that one restarts.
    unexpired = select(LEDGER.c.entry, LEDGER.c.valid_before).where(
        LEDGER.c.valid_before > revocations.expired(now), LEDGER.c.seq < seq
    )
    rows = connection.execute(unexpired)
    return max(
        (row.valid_before for row in rows if json.loads(row.entry).get("ca", name) == name),
        default=0,
    )


def _fingerprint(line: str) -> str:
    try:
        return fingerprint(base64.b64decode(line.split()[1], validate=True))
    except (ValueError, IndexError):
        return ""


def _require_serials(
    connection: Connection, entry: Entry, document: Mapping[str, Any], now: datetime
) -> None:
    expired = revocations.expired(now)
    for first, last in document["serials"]:
        wanted = select(LEDGER.c.serial, LEDGER.c.valid_before).where(
            LEDGER.c.serial.between(first, last), LEDGER.c.valid_before > expired
        )
        rows = connection.execute(
            select(REVOKED_SERIALS).where(
                REVOKED_SERIALS.c.last >= first, REVOKED_SERIALS.c.first <= last
            )
        ).all()
        alone = {row.first: row.valid_before for row in rows if row.first == row.last}
        wide = [row for row in rows if row.first < row.last]
        for serial, until in connection.execute(wanted):
            if alone.get(serial, 0) < until and not any(
                row.first <= serial <= row.last and row.valid_before >= until for row in wide
            ):
                raise ChainError(f"entry {entry.seq}: serials it revoked are not on the list")


def _require_lost(
    connection: Connection, entry: Entry, document: Mapping[str, Any], now: datetime
) -> None:
    until = int(datetime.fromisoformat(document["valid_before"]).timestamp())
    if until <= revocations.expired(now):
        return
    rows = connection.execute(
        select(REVOKED_SERIALS.c.first, REVOKED_SERIALS.c.last).where(
            REVOKED_SERIALS.c.valid_before >= until
        )
    )
    kept = {(row.first, row.last) for row in rows}
    if not all(tuple(span) in kept for span in document["serials"]):
        raise ChainError(f"entry {entry.seq}: serials that were lost are not on the list")


def _require_keys(connection: Connection, entry: Entry, document: Mapping[str, Any]) -> None:
    keys = document["keys"]
    known = select(REVOKED_KEYS.c.fingerprint).where(REVOKED_KEYS.c.fingerprint.in_(keys))
    if keys and set(connection.scalars(known)) != set(keys):
        raise ChainError(f"entry {entry.seq}: a key it revoked is not on the list")
    authority = document["authority"]
    revoked = select(AUTHORITIES.c.revoked).where(AUTHORITIES.c.fingerprint == authority)
    if authority and connection.scalar(revoked) is None:
        raise ChainError(f"entry {entry.seq}: the authority it revoked is not on the list")


def _require_host(connection: Connection, entry: Entry, key: str) -> None:
    known = select(HOST_KEYS.c.seq).where(HOST_KEYS.c.fingerprint == key)
    if connection.execute(known).first() is None:
        raise ChainError(f"entry {entry.seq}: its host's key is not among those of hosts")
