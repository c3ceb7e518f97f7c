"""Forgetting, at a bad moment: nothing goes that somebody has still to be found by."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from tests.unit.token_translator.ledger_books import ALICE, BOB, NOW, Books, issued
from token_translator.signer import commands, live, retention, revocations, search
from token_translator.signer.entries import Entry
from token_translator.signer.ledger import Ledger
from token_translator.signer.revocations import Wanted, orderer

ROOT = orderer("local:root")
ADMIN = orderer("admin:https://iam.example/#root-of-trust")


def revoke(books: Books, by: Any = ROOT, **wanted: Any) -> None:
    """Somebody is revoked."""
    with books.ledger().writing(NOW) as writing:
        order = Wanted(reason="lost", by=by, **wanted)
        revocations.revoke(writing, books.persons, order)


def test_who_orders_something_meanwhile(books: Books, monkeypatch: pytest.MonkeyPatch) -> None:
    """An administrator whose key was of no use keeps it, if they revoke while it is looked for."""
    books.ledger().append([issued()], NOW)
    with books.ledger().writing(NOW) as writing:
        writing.know({ADMIN, BOB})
    walk = Ledger.entries

    def entries(ledger: Ledger, **narrowed: Any) -> Iterator[Entry]:
        yield from walk(ledger, **narrowed)
        monkeypatch.undo()
        revoke(books, by=ADMIN, identity=ALICE)

    monkeypatch.setattr(Ledger, "entries", entries)
    gone = retention.retain(
        books.ledger(), books.persons, before=NOW - timedelta(days=1), sent=None, by=ROOT, now=NOW
    )
    assert (gone.entries, gone.persons) == (0, 1)
    assert books.persons.find(BOB) is None
    found = list(search.search(books.ledger(), books.persons, search.Sought()))
    assert found[-1]["by"] == {"iss": ADMIN.iss, "sub": ADMIN.sub}


@pytest.mark.parametrize("days", [3, 30, 3000])
def test_a_clock_that_is_ahead(books: Books, days: int) -> None:
    """However late it is said to be, nobody leaves the list whose certificate may be valid yet."""
    books.ledger().append([issued(minutes=6000), issued(BOB, minutes=6000)], NOW)
    revoke(books, serials=[1])
    revoke(books, serials=[2])
    ahead = NOW + timedelta(days=days)
    for _ in range(2):
        done = commands.retain(books.ledger(), books.persons, days=31, sent=None, now=ahead)
        assert (done["entries"], done["before"]) == (0, "2026-10-22T12:00:00Z")
    assert live.revoked(books.ledger(), NOW).serials == ((1, 2),)
    assert commands.verify(books.ledger(), None, NOW)[0] == 0


def test_a_ledger_at_rest(books: Books) -> None:
    """Where nothing was written for long, what is older than the newest entry goes all the same."""
    books.ledger().append([issued(minutes=1)], NOW - timedelta(days=40))
    books.ledger().append([issued(minutes=1)], NOW)
    later = NOW + timedelta(days=300)
    done = commands.retain(books.ledger(), books.persons, days=31, sent=None, now=later)
    assert done["entries"] == 1
    assert commands.verify(books.ledger(), None, NOW)[0] == 0
