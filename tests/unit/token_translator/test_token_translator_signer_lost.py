"""What was revoked after a backup stays revoked when the backup is put back."""

import json
from collections.abc import Sequence
from datetime import timedelta

import pytest
from sqlalchemy import delete, insert, update

from tests.unit.token_translator.ledger_books import ALICE, BOB, NOW, Books, issued, refused
from token_translator.signer import commands, live, restore, revocations
from token_translator.signer.copied import Copied
from token_translator.signer.entries import Entry, Head
from token_translator.signer.ledger import Ledger
from token_translator.signer.revocations import KEPT_LONGER, Wanted, orderer
from token_translator.signer.tables import (
    AUTHORITIES,
    HOST_KEYS,
    LEDGER,
    REVOKED_KEYS,
    REVOKED_SERIALS,
)

ROOT = orderer("local:root")
KEY = "SHA256:" + "A" * 43
USERS = timedelta(days=30)
HOSTS = timedelta(days=400)


def go_back(books: Books, entries: int) -> None:
    """The database as it was with so many entries: yesterday's backup."""
    with books.engine.begin() as connection:
        for table in (LEDGER, REVOKED_SERIALS, REVOKED_KEYS, HOST_KEYS):
            connection.execute(delete(table).where(table.c.seq > entries))
        undone = update(AUTHORITIES).where(AUTHORITIES.c.revoked > entries)
        connection.execute(undone.values(revoked=None))


def revoke(books: Books, **wanted: object) -> None:
    """Somebody is revoked."""
    with books.ledger().writing(NOW) as writing:
        revocations.revoke(writing, books.persons, Wanted(reason="stolen", by=ROOT, **wanted))  # type: ignore[arg-type]  # a table of cases


def reconcile(
    books: Books, copy: Sequence[Entry] = (), *, hosts: bool = False
) -> restore.Reconciled:
    """Make it whole again."""
    lost = restore.Lost(books.position.read(), copy=Copied.of(copy), hosts=hosts)
    return restore.reconcile(books.ledger(), books.persons, lost, by=ROOT, now=NOW)


def test_who_was_revoked_since_stays_revoked(books: Books) -> None:
    """Nobody knows whom the lost entries revoked: so all are, and the list's version grows."""
    books.ledger().append([issued(minutes=600), issued(BOB, minutes=600)], NOW)
    revoke(books, identity=ALICE)
    revoke(books, keys=[KEY])
    before = live.revoked(books.ledger(), NOW)
    go_back(books, 2)
    done = reconcile(books)
    after = live.revoked(books.ledger(), NOW)
    assert (done.lost, done.revoked) == (2, ((1, 3),))
    assert all(revocations.within(after.serials, serial) for serial in (1, 2))
    assert (before.version, after.version) == (4, 5)
    assert commands.verify(books.ledger(), None, NOW)[0] == 0
    assert books.ledger().append([issued()], NOW)[0].serial == 4


def test_a_version_that_only_keys_made(books: Books) -> None:
    """Where no serial was ever given, the list's version does not go back either."""
    books.ledger().append([refused()], NOW)
    revoke(books, keys=[KEY])
    go_back(books, 1)
    reconcile(books)
    assert live.revoked(books.ledger(), NOW).version == 3


def test_a_serial_that_was_revoked_alone(books: Books) -> None:
    """What is revoked for all may hold what was revoked before, and be lost once more."""
    books.ledger().append([issued()], NOW)
    revoke(books, serials=[1])
    for _ in range(2):
        kept = books.ledger().head().seq
        books.ledger().append([refused()], NOW)
        go_back(books, kept)
        reconcile(books)
    assert live.revoked(books.ledger(), NOW).serials == ((1, 3),)
    assert commands.verify(books.ledger(), None, NOW)[0] == 0


def test_a_copy_that_has_it_all(books: Books) -> None:
    """With every lost entry back from the copy, those are revoked who were, keys too."""
    books.ledger().append([issued(), issued(BOB)], NOW)
    revoke(books, identity=ALICE, keys=[KEY])
    whole, entries = live.revoked(books.ledger(), NOW), list(books.ledger().entries())
    go_back(books, 2)
    done = reconcile(books, entries)
    assert (done.put_back, done.lost, done.revoked) == (1, 0, ())
    assert live.revoked(books.ledger(), NOW) == whole


def test_it_counts_as_long_as_a_certificate_can_live(books: Books) -> None:
    """Not as long as today's ceilings say: the lost ones were made under others."""
    books.ledger().append([issued(), issued(minutes=7 * 24 * 60)], NOW)
    go_back(books, 1)
    reconcile(books)
    week, month = NOW + timedelta(days=6), NOW + USERS + KEPT_LONGER
    assert live.revoked(books.ledger(), week).serials == ((1, 3),)
    assert live.revoked(books.ledger(), month).serials == ()


@pytest.mark.parametrize("allowed", [True, False])
def test_hosts_certificates_live_longer(books: Books, allowed: bool) -> None:  # noqa: FBT001 - a table of cases
    """Where there are host certificates, or may be, it counts as long as one of them can live."""
    books.ledger().append([issued(minutes=1), refused()], NOW)
    if not allowed:
        with books.engine.begin() as connection:
            connection.execute(insert(HOST_KEYS).values(fingerprint=KEY, seq=1))
    go_back(books, 1)
    reconcile(books, hosts=allowed)
    year, more = NOW + timedelta(days=399), NOW + HOSTS + KEPT_LONGER
    assert live.revoked(books.ledger(), year).serials == ((1, 2),)
    assert live.revoked(books.ledger(), more).serials == ()


def test_a_new_host_is_told_what_was_seen(books: Books) -> None:
    """Where nothing remembers the end, the highest numbers are named, and all are revoked."""
    books.ledger().append([issued(), refused()], NOW)
    new = Ledger(engine=books.engine, persons=books.persons)
    lost = restore.Lost(Head(), serial=1, version=40)
    done = restore.reconcile(new, books.persons, lost, by=ROOT, now=NOW)
    assert done.revoked == ((1, 2),)
    assert live.revoked(new, NOW).version == 41


def test_the_command_says_what_to_do(books: Books) -> None:
    """What cannot be put back is said: which keys were revoked, nobody knows any more."""
    books.ledger().append([issued(), refused()], NOW)
    lost = restore.Lost(books.position.read())
    assert "again" not in commands.reconcile(books.ledger(), books.persons, lost, NOW)
    go_back(books, 1)
    found = commands.reconcile(books.ledger(), books.persons, lost, NOW)
    assert found["lost"] == 1
    assert "after entry 1" in found["again"]
    json.dumps(found)
