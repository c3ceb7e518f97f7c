"""What the asking process may read of the ledger: what is revoked, and one person's own."""

import json
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, select

from headgate.identity import Identity
from token_translator import wire
from token_translator.signer import entries, notes, revocations
from token_translator.signer.ledger import Ledger
from token_translator.signer.persons import Person, Persons
from token_translator.signer.tables import LEDGER


def revoked(ledger: Ledger, now: datetime) -> revocations.Now:
    """All that is revoked now."""
    with ledger.reading(whole=True) as connection:
        return revocations.current(connection, now)


def marks(ledger: Ledger) -> dict[str, int]:
    """The highest number of each mark that was noted."""
    with ledger.reading(whole=True) as connection:
        return notes.marks(connection)


def of(
    ledger: Ledger, persons: Persons, identity: Identity, now: datetime, before: int = 0
) -> list[wire.LiveCertificate]:
    """An identity's unexpired certificates, the newest first, at most `wire.LIVE_AT_ONCE`.

    Those with a serial below `before`, unless it is 0.
    """
    person = persons.find(identity)
    if person is None:
        return []
    with ledger.reading(whole=True) as connection:
        rows = _rows(connection, person, now, before)
        gone = revocations.current(connection, now).serials
    return [_certificate(row, person, gone) for row in rows]


def _rows(connection: Connection, person: Person, now: datetime, before: int) -> list[Any]:
    condition = revocations.live_of(person.person, int(now.timestamp()))
    if before:
        condition &= LEDGER.c.serial < before
    query = select(LEDGER.c.serial, LEDGER.c.valid_before, LEDGER.c.entry).where(condition)
    rows = connection.execute(query.order_by(LEDGER.c.serial.desc()).limit(wire.LIVE_AT_ONCE))
    return [row for row in rows if json.loads(row.entry)["kind"] == "issued"]


def _certificate(
    row: Any,  # noqa: ANN401 - a row of the query above
    person: Person,
    gone: tuple[revocations.Range, ...],
) -> wire.LiveCertificate:
    document = json.loads(row.entry)
    opened = entries.personal(document, person.key)
    return wire.LiveCertificate(
        serial=row.serial,
        valid_before=datetime.fromtimestamp(row.valid_before, UTC),
        profile=document["profile"],
        revoked=revocations.within(gone, row.serial),
        instance=opened.get("instance", ""),
        row=opened.get("row", ""),
        verb=opened.get("verb", ""),
    )
