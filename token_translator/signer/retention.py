"""Forgetting: one person's key at once, and everything once it is old enough."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from sqlalchemy import delete, func, or_, select

from headgate.identity import Identity
from token_translator.signer import revocations
from token_translator.signer.entries import Record
from token_translator.signer.ledger import DeclinedError, Ledger, Writing, of_row
from token_translator.signer.persons import Persons
from token_translator.signer.search import named
from token_translator.signer.tables import LEDGER

BATCH = 2000
AHEAD = timedelta(days=1)
"""Behind the newest entry: what a clock says beyond it is not believed, for nothing comes back."""


@dataclass(frozen=True, slots=True)
class Removed:
    """How many entries and persons' keys are gone; `through` is the last entry that was removed.

    `before`: those older than that moment.
    """

    entries: int
    persons: int
    through: int
    before: datetime


def erase(
    ledger: Ledger, persons: Persons, identity: Identity, *, by: Identity, now: datetime
) -> bool:
    """Delete a person's key: what the ledger says of them is noise from then on.

    False if there is no such person. Their unexpired certificates must be revoked first: without
    the key nobody finds them.

    Raises:
        DeclinedError: one of them is not.
    """
    with ledger.writing(now) as writing:
        person = persons.find(identity)
        if person is None:
            return False
        live = revocations.unrevoked_of(writing.connection, person.person, now)
        if live:
            raise DeclinedError(
                f"{len(live)} certificates of this person have neither expired nor been revoked: "
                "run headgate-signer revoke --user ISS SUB --reason … first"
            )
        writing.append(Record("erased", by, {"erased": person.person}, {"by": by.sub}))
        writing.flush()
        # Still within the transaction: no entry can be written under this key in between.
        persons.erase([person.person])
    return True


def retain(
    ledger: Ledger,
    persons: Persons,
    *,
    before: datetime,
    sent: int | None,
    by: Identity,
    now: datetime,
) -> Removed:
    """Delete the entries from before a moment, and persons of whom nothing is left.

    Only a beginning is deleted, and none of it that tells of an unexpired certificate, that has
    the highest serial, or that was not `sent` to the copy (None: there is no copy). An entry says
    so first, with the hash of the last one deleted: the chain still verifies.

    A clock that is far ahead of the newest entry is believed a day's worth, no more.
    """
    believed = _believed(ledger, now)
    before, now = before - (now - believed), believed
    with ledger.writing(now) as writing:
        through = _through(writing, before, sent)
        if through:
            _record(writing, through, by)
    entries = sum(_delete(ledger, through, now)) if through else 0
    with ledger.writing(now) as writing:
        revocations.forget_expired(writing.connection, now)
    return Removed(entries, _forget_persons(ledger, persons, now), through, before)


def _believed(ledger: Ledger, now: datetime) -> datetime:
    with ledger.reading() as connection:
        newest = connection.scalar(select(LEDGER.c.at).order_by(LEDGER.c.seq.desc()).limit(1))
    return now if newest is None else min(now, datetime.fromtimestamp(newest, UTC) + AHEAD)


def _through(writing: Writing, before: datetime, sent: int | None) -> int:
    """The last entry that may go; 0 if none may."""
    connection = writing.connection
    first = connection.scalar(select(func.min(LEDGER.c.seq)))
    highest = select(func.max(LEDGER.c.serial)).scalar_subquery()
    kept = connection.scalar(
        select(func.min(LEDGER.c.seq)).where(
            or_(
                LEDGER.c.at >= int(before.timestamp()),
                LEDGER.c.valid_before > int(writing.now.timestamp()),
                LEDGER.c.serial == highest,
                LEDGER.c.seq == writing.head.seq,
            )
        )
    )
    if first is None or kept is None:
        return 0
    through = min(int(kept) - 1, int(kept) if sent is None else sent)
    # A gap that a restore left: back to an entry that is there.
    last = connection.scalar(select(func.max(LEDGER.c.seq)).where(LEDGER.c.seq <= through))
    return int(last or 0)


def _record(writing: Writing, through: int, by: Identity) -> None:
    last = writing.connection.execute(
        select(LEDGER.c.hash).where(LEDGER.c.seq == through)
    ).scalar_one()
    writing.append(Record("retained", by, {"through": through, "hash": last}, {"by": by.sub}))


def _delete(ledger: Ledger, through: int, now: datetime) -> Iterator[int]:
    """Delete in steps, so that signing never waits long; each step's number of entries."""
    while True:
        with ledger.writing(now) as writing:
            step = (
                select(LEDGER.c.seq)
                .where(LEDGER.c.seq <= through)
                .order_by(LEDGER.c.seq)
                .limit(BATCH)
            )
            seqs = writing.connection.scalars(step).all()
            if not seqs:
                return
            writing.connection.execute(delete(LEDGER).where(LEDGER.c.seq <= seqs[-1]))
        yield len(seqs)


def _forget_persons(ledger: Ledger, persons: Persons, now: datetime) -> int:
    unused, walked = set(persons.names()), 0
    for entry in ledger.entries():
        unused -= named(entry)
        walked = entry.seq
    return _erase_unused(ledger, persons, sorted(unused), walked, now)


def _erase_unused(
    ledger: Ledger, persons: Persons, unused: list[str], walked: int, now: datetime
) -> int:
    """Delete those who are not named behind the entry up to which was looked, either."""
    forgotten = 0
    for start in range(0, len(unused), BATCH):
        some = unused[start : start + BATCH]
        with ledger.writing(now) as writing:
            # Whoever came back since is in the ledger by now, also as who ordered something;
            # nobody can while this lasts.
            since = select(LEDGER).where(LEDGER.c.seq > walked)
            gone = set(some)
            for row in writing.connection.execute(since):
                gone -= named(of_row(row))
            persons.erase(gone)
        forgotten += len(gone)
    return forgotten
