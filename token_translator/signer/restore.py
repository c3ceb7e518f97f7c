"""After a restore from a backup: put back what a copy has, and revoke all where some is lost."""

import json
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, select

from headgate.clock import rfc3339
from headgate.identity import Identity
from headgate.settings import SettingsError
from token_translator.signer import authorities, copied, notes, revocations
from token_translator.signer.ceilings import MAX_HOST_LIFETIME, MAX_LIFETIME
from token_translator.signer.copied import Copied
from token_translator.signer.entries import ChainError, Entry, Head, Record, follows
from token_translator.signer.issuance import keep_host_key
from token_translator.signer.ledger import Ledger, Writing
from token_translator.signer.persons import Persons
from token_translator.signer.tables import HOST_KEYS, LEDGER


@dataclass(frozen=True, slots=True)
class Reconciled:
    """How many entries came back, how many did not, and the serials that are revoked for these.

    `after` is the number of the last entry in front of what is lost; None: nothing is. `strange`
    lines of the copy look like entries, and are none of ours.
    """

    put_back: int
    revoked: tuple[revocations.Range, ...]
    head: Head
    lost: int = 0
    after: int | None = None
    strange: int = 0


@dataclass(frozen=True, slots=True)
class Lost:
    """What is known of the ledger that is gone.

    `remembered` is the position kept outside of the database, `serial` and `version` the highest
    serial, and version of a revocation list, that were seen elsewhere; `copy` what a copy has.
    `hosts`: whether there may be certificates of hosts.
    """

    remembered: Head
    serial: int = 0
    copy: Copied = field(default_factory=Copied)
    version: int = 0
    hosts: bool = False

    @property
    def end(self) -> Head:
        """Behind which nothing was written or issued."""
        seqs = (self.remembered.seq, self.version, *self.copy.by_number)
        serials = (entry.serial or 0 for entry in self.copy.entries)
        return Head(max(seqs), "", max((self.remembered.serial, self.serial, *serials)))

    def is_lost(self, last: Head) -> bool:
        """Whether something may be missing behind the last entry that there is."""
        # On a new host nothing says that what was seen elsewhere is the end.
        unsure = bool(self.serial or self.version) and not self.copy.entries
        behind = self.remembered.seq < last.seq
        return self.end.seq > last.seq or self.end.serial > last.serial or (unsure and behind)


def compare(ledger: Ledger, copy: Copied) -> int:
    """How many entries of a copy are in the ledger just so; older ones than it begins with count.

    Everything that looks like an entry counts: whoever has the host may have the persons' keys.

    Raises:
        ChainError: one is not there, or is another.
    """
    same, lost, first = 0, 0, 0
    twice: list[int] = []
    for entry in ledger.entries():
        first = first or entry.seq
        kept = copy.by_number.get(entry.seq, frozenset())
        if kept and entry.hash not in kept:
            raise ChainError(f"entry {entry.seq} is another in the copy")
        if len(kept) > 1:
            twice.append(entry.seq)
        after = _restored_after(entry.entry)
        if after is not None:
            # What was written twice, and what was lost, somebody has looked at by then.
            twice.clear()
            lost += sum(1 for seq in copy.by_number if after < seq < entry.seq)
        same += bool(kept)
    if twice:
        raise ChainError(f"entry {twice[0]} is in the copy twice, and another the other time")
    missing = [seq for seq in copy.by_number if seq >= first]
    if len(missing) > same + lost:
        raise ChainError(
            f"the copy has {len(missing) - same - lost} entries more, the last is {max(missing)}"
        )
    return same + len(copy.by_number) - len(missing)


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
        copy = copied.ours(lost.copy, persons, (writing.head, lost.remembered))
        lost = replace(lost, copy=copy)
        forked = _forked(writing, lost)
        put_back = 0 if forked else sum(1 for _ in _put_back(writing, lost))
        forked = forked or _forked(writing, lost)
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
        missing = max(0, end.seq - last.seq)
        return Reconciled(put_back, revoked, writing.head, missing, after, copy.strange)


def _longest(writing: Writing, lost: Lost) -> timedelta:
    """How long a lost certificate can live: today's ceilings may be lower than they were."""
    writing.flush()
    hosts = lost.hosts or writing.connection.execute(select(HOST_KEYS.c.seq)).first() is not None
    return timedelta(seconds=MAX_HOST_LIFETIME if hosts else MAX_LIFETIME)


def _put_back(writing: Writing, lost: Lost) -> Iterator[Entry]:
    towards = _path(lost)
    while True:
        head = writing.head
        entry = _next(head, lost.copy.following.get(head.hash, ()), towards)
        if entry is None:
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


def _next(head: Head, candidates: Iterable[Entry], towards: Collection[str]) -> Entry | None:
    """What follows the end of the ledger; of several, what leads to the end that we remember."""
    following = [
        entry
        for entry in candidates
        if follows(json.loads(entry.entry)) == (head.seq, head.hash)
        and (entry.serial is None or entry.serial > head.serial)
    ]
    return max(following, key=lambda entry: entry.hash in towards, default=None)


def _path(lost: Lost) -> set[str]:
    """The hashes of the copy's entries from the end that we remember back to its beginning."""
    by_hash = {entry.hash: entry for entry in lost.copy.entries}
    found: set[str] = set()
    at = lost.remembered.hash
    while at in by_hash and at not in found:
        found.add(at)
        at = json.loads(by_hash[at].entry)["prev"]
    return found


def _forked(writing: Writing, lost: Lost) -> bool:
    """Whether the ledger was written since it was restored: it differs from what is known.

    Not where it was reconciled after that: then somebody has looked at it.
    """
    known = {lost.remembered.seq: lost.remembered.hash}
    rows = writing.connection.execute(select(LEDGER.c.seq, LEDGER.c.hash).order_by(LEDGER.c.seq))
    differing = 0
    for row in rows:
        others = lost.copy.by_number.get(row.seq, frozenset()) - {row.hash}
        if others or known.get(row.seq, row.hash) != row.hash:
            differing = row.seq
    since = select(LEDGER.c.entry).where(LEDGER.c.seq > differing, LEDGER.c.serial.is_not(None))
    return differing > 0 and not any(
        _restored_after(entry) is not None for entry in writing.connection.scalars(since)
    )


def _restored_after(entry: bytes) -> int | None:
    """The number in front of what was lost, where an entry tells of a restore."""
    if b'"kind":"restored"' not in entry:
        return None
    document = json.loads(entry)
    return int(document["after"]) if document["kind"] == "restored" else None


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
