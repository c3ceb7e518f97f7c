"""A copy that others can write to: lines that are none of ours stop nothing and revoke nobody."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from sqlalchemy import delete

from tests.unit.token_translator.ledger_books import ALICE, BOB, NOW, Books, issued, refused
from token_translator.signer import copied, live, restore
from token_translator.signer.copied import Copied
from token_translator.signer.entries import ChainError, Entry, Head, canonical
from token_translator.signer.ledger import Ledger
from token_translator.signer.revocations import orderer
from token_translator.signer.tables import LEDGER

ROOT = orderer("local:root")
ENTRY = {
    "v": 1,
    "seq": 3,
    "prev": "0" * 64,
    "at": "2026-11-21T12:00:00Z",
    "kind": "refused",
    "serial": None,
    "person": "0" * 32,
    "personal": "",
}
STRANGE: list[dict[str, Any]] = [
    {"v": 1, "seq": 7, "prev": "0", "kind": "x"},
    {**ENTRY, "seq": "a"},
    {**ENTRY, "seq": 2**63 - 1},
    {**ENTRY, "seq": 2**70},
    {**ENTRY, "at": "yesterday"},
    {**ENTRY, "at": "0001-01-01T00:00:00+23:59"},
    {**ENTRY, "serial": 3},
    {**ENTRY, "person": None},
    {**ENTRY, "prev": ["0"]},
    ENTRY,
    {**ENTRY, "seq": 1},
    {**ENTRY, "seq": 10**9},
]


def lines(*documents: Any) -> list[bytes]:
    """As a syslog server keeps them."""
    return [b"<86>1 - h headgate-signer - x - " + json.dumps(one).encode() for one in documents]


def kept(entries: Sequence[Entry], *more: Any) -> Copied:
    """What a server has of these entries, and of others' lines."""
    return copied.read([entry.entry for entry in entries] + lines(*more))


def go_back(books: Books, entries: int) -> None:
    """Yesterday's backup."""
    with books.engine.begin() as connection:
        connection.execute(delete(LEDGER).where(LEDGER.c.seq > entries))


def reconcile(books: Books, copy: Copied, remembered: Head | None = None) -> restore.Reconciled:
    """Make it whole again."""
    lost = restore.Lost(books.position.read() if remembered is None else remembered, copy=copy)
    return restore.reconcile(books.ledger(), books.persons, lost, by=ROOT, now=NOW)


@pytest.mark.parametrize("document", STRANGE)
def test_a_strange_line(books: Books, document: dict[str, Any]) -> None:
    """Whatever somebody else wrote there, all that is ours comes back and nothing else happens."""
    books.ledger().append([issued(), issued(BOB), refused()], NOW)
    whole = list(books.ledger().entries())
    assert reconcile(books, kept(whole, document)).revoked == ()
    go_back(books, 1)
    done = reconcile(books, kept(whole, document))
    assert (done.put_back, done.lost, done.revoked, done.strange) == (2, 0, (), 1)
    assert live.revoked(books.ledger(), NOW).serials == ()
    assert books.ledger().append([issued()], NOW)[0].seq == 4


def test_an_entry_that_was_changed(books: Books) -> None:
    """One that its person's key does not open is none of ours, though it follows the last one."""
    books.ledger().append([issued(), issued(BOB)], NOW)
    whole = list(books.ledger().entries())
    go_back(books, 1)
    forged = {**json.loads(whole[1].entry), "valid_before": "2036-11-21T12:00:00Z"}
    done = reconcile(books, copied.read([canonical(forged), whole[1].entry]))
    assert (done.put_back, done.strange, done.revoked) == (1, 1, ())
    assert books.ledger().verify().hash == whole[1].hash


def test_entries_of_persons_that_are_gone(books: Books) -> None:
    """Those that nobody can open any more are ours by what is before them or behind them."""
    books.ledger().append([issued(), refused(BOB), refused(BOB), refused()], NOW)
    whole = list(books.ledger().entries())
    person = books.persons.find(BOB)
    assert person is not None
    books.persons.erase([person.person])
    go_back(books, 1)
    assert reconcile(books, kept(whole[1:], ENTRY)).put_back == 3
    go_back(books, 1)
    assert reconcile(books, kept(whole[1:3], ENTRY), Head()).put_back == 2


def test_a_restore_within_a_copy(books: Books) -> None:
    """What was written behind an earlier loss comes back, too."""
    books.ledger().append([issued(), issued()], NOW)
    go_back(books, 1)
    reconcile(books, Copied())
    books.ledger().append([issued(BOB)], NOW)
    whole = list(books.ledger().entries())
    revoked = live.revoked(books.ledger(), NOW)
    with books.engine.begin() as connection:
        for table in LEDGER.metadata.sorted_tables:
            connection.execute(delete(table))
    done = reconcile(books, kept(whole))
    assert (done.put_back, done.revoked) == (3, ())
    assert live.revoked(books.ledger(), NOW) == revoked


def test_a_fork_that_was_looked_at(books: Books) -> None:
    """A copy that has both branches is broken until it is reconciled, and not for ever."""
    lost = books.ledger().append([issued(), issued()], NOW)
    go_back(books, 1)
    other = Ledger(engine=books.engine, persons=books.persons)
    branch = other.append([issued(ALICE)], NOW)
    copy = kept([*lost, *branch])
    with pytest.raises(ChainError, match="twice"):
        restore.compare(books.ledger(), copy)
    assert reconcile(books, copy).revoked == ((1, 3),)
    whole = kept([*lost, *books.ledger().entries()])
    assert restore.compare(books.ledger(), whole) == 3
    assert reconcile(books, whole).revoked == ()
