"""The ledger in its database: every certificate, refusal and revocation, in one chain.

Blocking, and durable when a call returns; one thread of one process uses it. Processes that share
a database take turns.
"""

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Engine, Row, Select, func, insert, select, text
from sqlalchemy.exc import OperationalError

from headgate.identity import Identity
from headgate.settings import SettingsError
from token_translator.database import READ_ONLY
from token_translator.signer.entries import (
    MAX_ENTRY,
    ChainError,
    Entry,
    Head,
    Record,
    cut,
    make,
    walk,
)
from token_translator.signer.persons import Person, Persons
from token_translator.signer.position import Position
from token_translator.signer.tables import HOST_KEYS, LEDGER, REVOKED_KEYS

PAGE = 1000
# One lock per ledger table, whatever schema it is in; it is given back with the transaction.
_LOCK = text("SELECT pg_advisory_xact_lock('ledger'::regclass::oid::bigint)")


class LedgerAwayError(OSError):
    """The database does not answer."""


class RestoredError(SettingsError):
    """The ledger ends before what this host wrote, or is another one there."""


class DeclinedError(Exception):
    """One change of a group that is not made; the others are. The message is for the asker."""


class TooLongError(DeclinedError):
    """An entry that could not leave the host."""


class Writing:
    """One transaction on the ledger, held against all other writers until it ends.

    `host_keys` and `revoked_keys`: the fingerprints among those asked for by `know` that are.
    `bounded`: what is written is asked for by another process.
    """

    def __init__(self, connection: Connection, persons: Persons, head: Head, now: datetime) -> None:
        self.connection = connection
        self.now = now
        self._store = persons
        self.host_keys: set[str] = set()
        self.revoked_keys: set[str] = set()
        self.bounded = False
        self._known: dict[Identity, Person] = {}
        self._head = head
        self._waiting: list[Entry] = []

    @property
    def head(self) -> Head:
        """The end of the ledger, with what was appended here."""
        return self._head

    def know(self, identities: Collection[Identity], keys: Collection[str] = ()) -> None:
        """Find or make these persons in one go; find which of the keys are hosts', or revoked."""
        missing = set(identities) - self._known.keys()
        if missing:
            self._known.update(self._store.of(missing, self.now))
        if keys:
            # Never from memory: other signers on this database, and commands, write them, too.
            for found, table in ((self.host_keys, HOST_KEYS), (self.revoked_keys, REVOKED_KEYS)):
                among = select(table.c.fingerprint).where(table.c.fingerprint.in_(keys))
                found.update(self.connection.scalars(among))

    def append(self, record: Record) -> Entry:
        """Put an entry at the end; a refusal or a note that is too long is cut.

        Raises:
            TooLongError: another process asks for it, and the copy could not take it.
        """
        self.know({record.identity} if record.by is None else {record.identity, record.by})
        entry = make(record, self._known, self._head, now=self.now)
        if self.bounded and len(entry.entry) > MAX_ENTRY and record.kind in {"refused", "noted"}:
            # Never none at all: who pads what they ask for would not be seen.
            entry = make(cut(record), self._known, self._head, now=self.now)
        if self.bounded and len(entry.entry) > MAX_ENTRY:
            raise TooLongError(f"what is to be recorded of this is longer than {MAX_ENTRY} bytes")
        self._put(entry)
        return entry

    def restore(self, entry: Entry) -> None:
        """Put back an entry that was at just this place."""
        self._put(entry)

    def skip(self, seq: int, serial: int) -> None:
        """Go on behind a number and a serial that were used, in a ledger that is lost."""
        self._head = Head(max(seq, self._head.seq), self._head.hash, max(serial, self._head.serial))

    def flush(self) -> None:
        """Have what was appended in the table, for queries of this transaction."""
        if self._waiting:
            self.connection.execute(insert(LEDGER), [asdict(entry) for entry in self._waiting])
            self._waiting = []

    def _put(self, entry: Entry) -> None:
        self._waiting.append(entry)
        self._head = Head(entry.seq, entry.hash, max(self._head.serial, entry.serial or 0))


class Ledger:
    """Appends, and checks what was appended.

    `serial_floor`: serials begin above it. `position`: where the end is remembered outside the
    database; None for reading only.
    """

    def __init__(
        self,
        *,
        engine: Engine,
        persons: Persons,
        position: Position | None = None,
        serial_floor: int = 0,
    ) -> None:
        self._engine = engine
        self._reader = engine.execution_options(**READ_ONLY)
        self._persons = persons
        self._position = position
        self._serial_floor = serial_floor
        self._written: Head | None = None

    @contextlib.contextmanager
    def writing(self, now: datetime, *, whole: bool = True) -> Iterator[Writing]:
        """A transaction that ends with a commit, or with an exception and nothing written.

        `whole`: not on a ledger that went back since this process, or one before it, wrote it.

        Raises:
            RestoredError: it did; until it is reconciled nothing is written.
        """
        remembered = self._remembered() if whole else None
        with self._engine.begin() as connection:
            if connection.dialect.name == "postgresql":
                connection.execute(_LOCK)
            writing = Writing(connection, self._persons, self._head(connection), now)
            if remembered is not None:
                self._require_behind(connection, writing.head, remembered)
            yield writing
            writing.flush()
            head = writing.head
        # Not the file alone: whoever puts a database back may put that back with it.
        self._written = head
        if self._position is not None:
            self._position.write(head)

    def change(
        self,
        changes: Sequence[Callable[[Writing], Any]],
        *,
        identities: Collection[Identity],
        keys: Collection[str],
        now: datetime,
    ) -> list[Any]:
        """Make several changes in one transaction; what each returned, or its `DeclinedError`."""
        outcomes: list[Any] = []
        with self.writing(now) as writing:
            writing.know(identities, keys)
            writing.bounded = True
            for change in changes:
                try:
                    outcomes.append(change(writing))
                except DeclinedError as error:
                    outcomes.append(error)
        return outcomes

    def append(self, records: Sequence[Record], now: datetime) -> list[Entry]:
        """Write the records in one transaction."""
        with self.writing(now) as writing:
            return [writing.append(record) for record in records]

    @contextlib.contextmanager
    def reading(self, *, whole: bool = False) -> Iterator[Connection]:
        """A transaction that only looks.

        `whole`: not at a ledger that went back: what it does not know of looks as if it were well.

        Raises:
            RestoredError: it did. LedgerAwayError: the database does not answer.
        """
        # Before the transaction begins: the writer may go on while this one looks.
        remembered = self._remembered() if whole else None
        try:
            with self._reader.begin() as connection:
                if remembered is not None:
                    self._require_behind(connection, self._head(connection), remembered)
                yield connection
        except OperationalError as error:
            raise LedgerAwayError(f"the ledger cannot be read: {error.orig}") from error

    def head(self) -> Head:
        """The end of the ledger, as it is now."""
        with self.reading() as connection:
            return self._head(connection)

    def require_whole(self) -> None:
        """Refuse a ledger that ends before what this host wrote, or is another one there.

        Raises:
            RestoredError: saying what is missing, and the command that mends it.
        """
        with self.reading(whole=True):
            pass

    def verify(self) -> Head:
        """Walk the whole chain; its end, to compare with a copy.

        Raises:
            ChainError: an entry was changed, left out or put in, or the end is missing.
        """
        head = walk(self.entries())
        remembered = self._position.read() if self._position is not None else Head()
        if head.seq < remembered.seq:
            raise ChainError(f"it ends at entry {head.seq}; this host wrote until {remembered.seq}")
        with self.reading() as connection:
            if _hash(connection, remembered.seq) not in {None, remembered.hash}:
                raise ChainError(f"entry {remembered.seq} is not the one this host wrote")
        return head

    def entries(self, *, after: int = 0, wanted: Select[Any] | None = None) -> Iterator[Entry]:
        """Entries in order, from behind a number on; `wanted` narrows a select on the table.

        Each page is a transaction of its own, so that a long walk keeps nothing from being freed.
        """
        query = select(LEDGER) if wanted is None else wanted
        while True:
            with self.reading() as connection:
                page = query.where(LEDGER.c.seq > after).order_by(LEDGER.c.seq).limit(PAGE)
                rows = connection.execute(page).all()
            yield from (of_row(row) for row in rows)
            if len(rows) < PAGE:
                return
            after = rows[-1].seq

    def keys(self, names: Collection[str]) -> Mapping[str, bytes]:
        """The field keys of persons, by their names in the ledger; erased ones are not in it."""
        return self._persons.keys(names)

    def _remembered(self) -> Head | None:
        if self._written is None and self._position is not None:
            self._written = self._position.read()
        return self._written

    def _require_behind(self, connection: Connection, head: Head, written: Head) -> None:
        where = f" ({self._position.path})" if self._position is not None else ""
        remedy = "stop the signer and run headgate-signer reconcile"
        if head.seq < written.seq or head.serial < written.serial:
            raise RestoredError(
                f"the ledger ends at entry {head.seq}, serial {head.serial}; this host wrote until "
                f"entry {written.seq}, serial {written.serial}{where}: "
                f"it was restored from a backup, or is another one; {remedy}"
            )
        if _hash(connection, written.seq) not in {None, written.hash}:
            raise RestoredError(
                f"entry {written.seq} of the ledger is not the one this host wrote{where}: "
                f"it was restored from a backup and written since; {remedy}"
            )

    def _head(self, connection: Connection) -> Head:
        return end_of(connection, self._serial_floor)


def end_of(connection: Connection, serial_floor: int = 0) -> Head:
    """The end of the ledger in a database."""
    highest = select(func.max(LEDGER.c.serial)).scalar_subquery()
    last = connection.execute(
        select(LEDGER.c.seq, LEDGER.c.hash, highest.label("highest"))
        .order_by(LEDGER.c.seq.desc())
        .limit(1)
    ).first()
    if last is None:
        return Head(serial=serial_floor)
    return Head(last.seq, last.hash, max(last.highest or 0, serial_floor))


def _hash(connection: Connection, seq: int) -> str | None:
    return connection.scalar(select(LEDGER.c.hash).where(LEDGER.c.seq == seq))


def of_row(row: Row[Any]) -> Entry:
    """A row of the table as an entry."""
    return Entry(
        seq=row.seq,
        serial=row.serial,
        at=row.at,
        person=row.person,
        valid_before=row.valid_before,
        # SQLite keeps any type in any column: a text is none of our entries.
        entry=row.entry if isinstance(row.entry, bytes) else b"",
        hash=row.hash,
    )
