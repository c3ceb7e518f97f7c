"""After a restore from a backup: put back what a copy has, and revoke whatever was lost."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, select

from headgate.clock import rfc3339
from headgate.identity import Identity
from headgate.settings import SettingsError
from token_translator.signer import notes, revocations
from token_translator.signer.entries import ChainError, Entry, Head, Record, digest, expiry
from token_translator.signer.issuance import keep_host_key
from token_translator.signer.ledger import Ledger, Writing
from token_translator.signer.persons import Persons
from token_translator.signer.tables import LEDGER


@dataclass(frozen=True, slots=True)
class Reconciled:
    """How many entries came back, and the ranges of serials that are revoked for the others."""

    put_back: int
    revoked: tuple[revocations.Range, ...]
    head: Head


@dataclass(frozen=True, slots=True)
class Lost:
    """What is known of the ledger that is gone.

    `remembered` is the position kept outside of the database, `serial` the highest seen elsewhere,
    `copy` the entries of a copy by number. `longest`: how long a certificate can live.
    """

    remembered: Head
    serial: int
    copy: Mapping[int, Entry]
    longest: timedelta

    @property
    def end(self) -> Head:
        """Behind which nothing was written or issued."""
        seqs = (self.remembered.seq, *self.copy)
        serials = (entry.serial or 0 for entry in self.copy.values())
        return Head(max(seqs), "", max((self.remembered.serial, self.serial, *serials)))


def read_copy(lines: Iterable[bytes]) -> dict[int, Entry]:
    """The entries in what a syslog server kept: each line ends with one, whatever is before it."""
    found: dict[int, Entry] = {}
    for line in lines:
        start = line.find(b"{")
        try:
            document = json.loads(line[start:]) if start >= 0 else None
        except ValueError:
            document = None
        if isinstance(document, dict) and {"v", "seq", "prev", "kind"} <= document.keys():
            entry = _entry(line[start:].strip(), document)
            found[entry.seq] = entry
    return found


def compare(ledger: Ledger, copy: Mapping[int, Entry]) -> int:
    """How many entries of a copy are in the ledger just so; older ones than it begins with count.

    Raises:
        ChainError: one is not there, or is another.
    """
    same, first = 0, 0
    for entry in ledger.entries():
        first = first or entry.seq
        kept = copy.get(entry.seq)
        if kept is not None and kept.hash != entry.hash:
            raise ChainError(f"entry {entry.seq} is another in the copy")
        same += kept is not None
    missing = [seq for seq in copy if seq >= first]
    if len(missing) > same:
        raise ChainError(
            f"the copy has {len(missing) - same} entries more, the last is {max(copy)}"
        )
    return same + len(copy) - len(missing)


def require_persons(ledger: Ledger, persons: Persons, now: datetime) -> None:
    """Refuse to go on where certificates are valid of whom nobody could say whose they are.

    Raises:
        SettingsError: the database of persons was restored from a backup.
    """
    with ledger.reading() as connection:
        unknown = _unknown_persons(connection, persons, now)
    if unknown:
        raise SettingsError(
            f"{len(unknown)} unexpired certificates are of persons whose keys are not there: the "
            "database of persons was restored from a backup; run headgate-signer reconcile"
        )


def reconcile(
    ledger: Ledger, persons: Persons, lost: Lost, *, by: Identity, now: datetime
) -> Reconciled:
    """Make a restored ledger one that can be signed with again.

    Entries of the copy that continue the chain are put back. All other serials that may have been
    issued since are revoked for as long as a certificate can live, and so are certificates whose
    person's key is lost, for nobody could be found by them. What is written next is numbered above
    everything that was lost.
    """
    with ledger.writing(now, whole=False) as writing:
        forked = _forked(writing, lost)
        put_back = 0 if forked else sum(1 for _ in _put_back(writing, lost.copy))
        last, end = writing.head, lost.end
        ranges = _unknown_persons(writing.connection, persons, now)
        if forked:
            # The same serials may have been given twice, nobody knows from where on.
            ranges.append((1, max(end.serial, last.serial)))
        elif end.serial > last.serial:
            ranges.append((last.serial + 1, end.serial))
        revoked = revocations.merged(sorted(ranges))
        if revoked or end.seq > last.seq:
            writing.skip(end.seq, end.serial)
            _record(writing, last, revoked, now + lost.longest, by)
        return Reconciled(put_back, revoked, writing.head)


def _put_back(writing: Writing, copy: Mapping[int, Entry]) -> Iterator[Entry]:
    while True:
        entry = copy.get(writing.head.seq + 1)
        if entry is None or json.loads(entry.entry)["prev"] != writing.head.hash:
            return
        writing.restore(entry)
        writing.flush()
        document = json.loads(entry.entry)
        if document["kind"] in {"revoked", "restored"}:
            revocations.apply(writing.connection, entry.seq, document)
        notes.apply(writing.connection, entry.seq, document)
        key = document.get("key")
        if document["kind"] == "issued" and document["profile"] == "host" and key is not None:
            keep_host_key(writing, entry.seq, key)
        yield entry


def _forked(writing: Writing, lost: Lost) -> bool:
    """Whether the ledger was written since it was restored: it differs from what is known."""
    known = {lost.remembered.seq: lost.remembered.hash}
    known |= {seq: entry.hash for seq, entry in lost.copy.items()}
    rows = writing.connection.execute(select(LEDGER.c.seq, LEDGER.c.hash).order_by(LEDGER.c.seq))
    return any(known.get(row.seq, row.hash) != row.hash for row in rows)


def _unknown_persons(
    connection: Connection, persons: Persons, now: datetime
) -> list[revocations.Range]:
    """Serials neither expired nor revoked whose person has no key any more."""
    live = select(LEDGER.c.serial, LEDGER.c.person).where(
        LEDGER.c.valid_before > int(now.timestamp())
    )
    rows = connection.execute(live.order_by(LEDGER.c.serial)).all()
    known = set(persons.names()) if rows else set()
    serials = [row.serial for row in rows if row.person not in known]
    gone = revocations.current(connection, now).serials
    return [(serial, serial) for serial in serials if not revocations.within(gone, serial)]


def _record(
    writing: Writing,
    last: Head,
    revoked: tuple[revocations.Range, ...],
    until: datetime,
    by: Identity,
) -> None:
    public: dict[str, Any] = {
        "after": last.seq,
        "serials": revoked,
        "valid_before": rfc3339(until),
    }
    expires = int(until.timestamp())
    entry = writing.append(Record("restored", by, public, {"by": by.sub}, valid_before=expires))
    writing.flush()
    revocations.apply(writing.connection, entry.seq, {"kind": "restored", **public})


def _entry(body: bytes, document: Mapping[str, Any]) -> Entry:
    return Entry(
        seq=document["seq"],
        serial=document["serial"],
        at=int(datetime.fromisoformat(document["at"]).timestamp()),
        person=document["person"],
        valid_before=expiry(document),
        entry=body,
        hash=digest(body),
    )
