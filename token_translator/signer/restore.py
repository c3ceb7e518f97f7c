"""After a restore from a backup: put back what a copy has, and revoke all where some is lost."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, select

from headgate.clock import rfc3339
from headgate.identity import Identity
from headgate.settings import SettingsError
from token_translator.signer import authorities, notes, revocations
from token_translator.signer.ceilings import MAX_HOST_LIFETIME, MAX_LIFETIME
from token_translator.signer.entries import ChainError, Entry, Head, Record, digest, expiry
from token_translator.signer.issuance import keep_host_key
from token_translator.signer.ledger import Ledger, Writing
from token_translator.signer.persons import Persons
from token_translator.signer.tables import HOST_KEYS, LEDGER


@dataclass(frozen=True, slots=True)
class Reconciled:
    """How many entries came back, how many did not, and the serials that are revoked for these.

    `after` is the number of the last entry in front of what is lost; None: nothing is.
    """

    put_back: int
    revoked: tuple[revocations.Range, ...]
    head: Head
    lost: int = 0
    after: int | None = None


@dataclass(frozen=True, slots=True)
class Lost:
    """What is known of the ledger that is gone.

    `remembered` is the position kept outside of the database, `serial` and `version` the highest
    serial, and version of a revocation list, that were seen elsewhere; `copy` the entries of a
    copy by number. `hosts`: whether there may be certificates of hosts.
    """

    remembered: Head
    serial: int = 0
    copy: Mapping[int, Entry] = field(default_factory=dict)
    version: int = 0
    hosts: bool = False

    @property
    def end(self) -> Head:
        """Behind which nothing was written or issued."""
        seqs = (self.remembered.seq, self.version, *self.copy)
        serials = (entry.serial or 0 for entry in self.copy.values())
        return Head(max(seqs), "", max((self.remembered.serial, self.serial, *serials)))

    def is_lost(self, last: Head) -> bool:
        """Whether something may be missing behind the last entry that there is."""
        # On a new host nothing says that what was seen elsewhere is the end.
        unsure = bool(self.serial or self.version) and not self.copy
        behind = self.remembered.seq < last.seq
        return self.end.seq > last.seq or self.end.serial > last.serial or (unsure and behind)


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

    Entries of the copy that continue the chain are put back. Where any is missing still, nobody
    knows what it revoked: all serials ever given are revoked, for as long as a certificate can
    live. So are certificates whose person's key is lost, for nobody could be found by them. What
    is written next is numbered above everything that was lost.
    """
    with ledger.writing(now, whole=False) as writing:
        forked = _forked(writing, lost)
        put_back = 0 if forked else sum(1 for _ in _put_back(writing, lost.copy))
        last, end = writing.head, lost.end
        ranges = _unknown_persons(writing.connection, persons, now)
        some_lost = forked or lost.is_lost(last)
        if some_lost:
            # Forked: serials may have been given twice, too. With the serial of the entry that
            # says so: a range that there never was, also where nothing was ever issued.
            ranges.append((1, max(end.serial, last.serial) + 1))
        revoked = revocations.merged(sorted(ranges))
        if revoked:
            writing.skip(end.seq, end.serial)
            _record(writing, last, revoked, now + _longest(writing, lost), by)
        after = last.seq if some_lost else None
        return Reconciled(put_back, revoked, writing.head, max(0, end.seq - last.seq), after)


def _longest(writing: Writing, lost: Lost) -> timedelta:
    """How long a lost certificate can live: today's ceilings may be lower than they were."""
    writing.flush()
    hosts = lost.hosts or writing.connection.execute(select(HOST_KEYS.c.seq)).first() is not None
    return timedelta(seconds=MAX_HOST_LIFETIME if hosts else MAX_LIFETIME)


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
        if document["kind"] == "authority":
            authorities.apply(writing.connection, document)
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
