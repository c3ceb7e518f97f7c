"""The ledger: chained, with serials that only grow, and people who can be erased."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete, select, update
from sqlalchemy.exc import SQLAlchemyError

from headgate.clock import rfc3339
from tests.unit.token_translator.ledger_books import ALICE, BOB, NOW, Books, issued, refused
from token_translator.signer import arguments
from token_translator.signer.entries import GENESIS, ChainError, Head, Record
from token_translator.signer.ledger import Writing
from token_translator.signer.search import Sought, search
from token_translator.signer.tables import LEDGER


def serials(books: Books, *records: Record) -> list[int | None]:
    """Append in one transaction; the serials."""
    return [entry.serial for entry in books.ledger().append(records, NOW)]


def opened(books: Books) -> list[dict[str, Any]]:
    """Every entry, opened."""
    return list(search(books.ledger(), books.persons, Sought()))


@pytest.mark.parametrize("spoiled", [b"no JSON", b"{}", b"\xff", None])
def test_a_search_goes_round_a_damaged_entry(sqlite_books: Books, spoiled: bytes | None) -> None:
    """What was changed is named and not shown; all the others are found, on that day above all."""
    books = sqlite_books
    serials(books, issued(), issued(BOB), issued())
    with books.engine.begin() as connection:
        before = connection.scalar(select(LEDGER.c.entry).where(LEDGER.c.seq == 2)) or b""
        changed = before.replace(b'"issued"', b'"noted_"') if spoiled is None else spoiled
        connection.execute(update(LEDGER).where(LEDGER.c.seq == 2).values(entry=changed))
    damaged: list[int] = []
    found = search(books.ledger(), books.persons, Sought(), damaged.append)
    assert [document["seq"] for document in found] == [1, 3]
    assert damaged == [2]
    with pytest.raises(ChainError, match="entry 2"):
        opened(books)


def test_a_time_that_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    """The form that is wanted is named."""
    with pytest.raises(SystemExit):
        arguments.parse(["ledger", "search", "--since", "yesterday"])
    assert "not a time: 'yesterday'; it is 2026-11-21, or" in capsys.readouterr().err


def test_a_search_by_account(sqlite_books: Books) -> None:
    """An account's name finds what was signed for it, with whose it is."""
    serials(sqlite_books, issued(), issued(BOB))
    name = opened(sqlite_books)[0]["personal"]["account"]
    found = search(sqlite_books.ledger(), sqlite_books.persons, Sought(account=name))
    assert {document["personal"]["account"] for document in found} == {name}
    nobody = Sought(account="nobody")
    assert list(search(sqlite_books.ledger(), sqlite_books.persons, nobody)) == []


def test_serials_grow_over_groups_and_restarts(books: Books) -> None:
    """Refusals take no serial; a reopened ledger goes on where the last one ended."""
    assert serials(books, issued(), refused(), issued(BOB)) == [1, None, 2]
    assert serials(books, issued()) == [3]
    assert books.ledger().verify().seq == 4


def test_serials_above_a_floor(books: Books) -> None:
    """With a floor above what was seen anywhere, no serial comes a second time."""
    serials(books, issued())
    (entry,) = books.ledger(serial_floor=1000).append([issued()], NOW)
    assert entry.serial == 1001
    assert serials(books, issued()) == [1002]


def test_an_empty_ledger_is_intact(books: Books) -> None:
    """Nothing written is nothing broken."""
    assert books.ledger().verify() == Head(0, GENESIS, 0)


def test_what_fails_is_not_written(books: Books) -> None:
    """An exception within a transaction leaves no entry, and the next one follows the last."""
    serials(books, issued())

    def fail(writing: Writing) -> None:
        writing.append(issued())
        writing.flush()
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        books.ledger().change([fail], identities=(), keys=(), now=NOW)
    assert serials(books, issued()) == [2]
    assert books.ledger().verify().seq == 2


@pytest.mark.parametrize("column", ["entry", "hash", "serial", "person", "valid_before"])
def test_a_change_is_seen(books: Books, column: str) -> None:
    """Whatever column of a row is changed, the chain names the row."""
    serials(books, issued(), issued(), issued())
    value = {
        "entry": b"{}",
        "hash": "0" * 64,
        "serial": 99,
        "person": "f" * 32,
        "valid_before": 1,
    }[column]
    with books.engine.begin() as connection:
        connection.execute(update(LEDGER).where(LEDGER.c.seq == 2).values({column: value}))
    with pytest.raises(ChainError, match="entry 2"):
        books.ledger().verify()


@pytest.mark.parametrize(("gone", "named"), [(1, "entry 2: what was before"), (2, "entry 3")])
def test_a_gap_is_seen(books: Books, gone: int, named: str) -> None:
    """An entry taken out of the middle is missed by the next one, and so is the first."""
    serials(books, issued(), issued(), issued())
    with books.engine.begin() as connection:
        connection.execute(delete(LEDGER).where(LEDGER.c.seq == gone))
    with pytest.raises(ChainError, match=named):
        books.ledger().verify()


def test_a_cut_end_is_seen(books: Books) -> None:
    """An end that is gone is missed by the position kept outside of the database."""
    serials(books, issued(), issued(), issued())
    with books.engine.begin() as connection:
        connection.execute(delete(LEDGER).where(LEDGER.c.seq == 3))
    with pytest.raises(ChainError, match="ends at entry 2"):
        books.ledger().verify()


def test_a_rewritten_end_is_seen(books: Books) -> None:
    """Entries rewritten to the very end differ from what the position says."""
    serials(books, issued(), issued())
    with books.engine.begin() as connection:
        row = connection.execute(select(LEDGER).where(LEDGER.c.seq == 2)).one()
        forged = row.entry.replace(b'"profile":"person"', b'"profile":"forger"')
        values = {"entry": forged, "hash": hashlib.sha256(forged).hexdigest()}
        connection.execute(update(LEDGER).where(LEDGER.c.seq == 2).values(values))
    with pytest.raises(ChainError, match="entry 2 is not the one"):
        books.ledger().verify()


def test_a_rewritten_entry_is_seen(books: Books) -> None:
    """An entry rewritten with a hash that fits it is betrayed by its successor."""
    serials(books, issued(), issued(), issued())
    with books.engine.begin() as connection:
        row = connection.execute(select(LEDGER).where(LEDGER.c.seq == 2)).one()
        forged = row.entry.replace(b'"profile":"person"', b'"profile":"forger"')
        values = {"entry": forged, "hash": hashlib.sha256(forged).hexdigest()}
        connection.execute(update(LEDGER).where(LEDGER.c.seq == 2).values(values))
    with pytest.raises(ChainError, match="entry 3"):
        books.ledger().verify()


def test_a_serial_cannot_be_given_twice(books: Books) -> None:
    """The database itself refuses a second certificate with a serial."""
    serials(books, issued(), issued())
    with pytest.raises(SQLAlchemyError), books.engine.begin() as connection:
        connection.execute(update(LEDGER).where(LEDGER.c.seq == 2).values(serial=1))


def test_personal_fields_are_encrypted(sqlite_books: Books, tmp_path: Path) -> None:
    """Names are in no file in clear, and come back for who holds the keys."""
    serials(sqlite_books, issued(), issued(BOB))
    found = opened(sqlite_books)
    assert [entry["personal"]["sub"] for entry in found] == ["alice-subject", "bob-subject"]
    files = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    for secret in (b"alice-subject", b"bob-subject", b"iam.example"):
        assert secret not in files


def test_who_ordered_it_is_encrypted_too(books: Books) -> None:
    """Whoever ordered something is under their own key: erasing one leaves the other readable."""
    by_bob = Record("revoked", ALICE, {"serials": []}, {"reason": "lost laptop"}, by=BOB)
    serials(books, by_bob)
    (entry,) = opened(books)
    assert entry["by"] == {"iss": BOB.iss, "sub": BOB.sub}
    person = books.persons.find(BOB)
    assert person is not None
    books.persons.erase([person.person])
    (entry,) = opened(books)
    assert entry["by"] is None
    assert entry["personal"]["reason"] == "lost laptop"


def test_an_erased_person(books: Books) -> None:
    """Deleting the key erases the person; the chain verifies, others are still readable."""
    serials(books, issued(), issued(BOB))
    person = books.persons.find(ALICE)
    assert person is not None
    books.persons.erase([person.person])
    again = opened(books)
    assert again[0]["personal"] is None
    assert again[1]["personal"]["sub"] == "bob-subject"
    assert books.ledger().verify().seq == 2
    serials(books, issued())
    assert opened(books)[2]["person"] != person.person


def test_personal_fields_belong_to_their_entry(books: Books) -> None:
    """A ciphertext moved to another entry of the same person does not open there."""
    serials(books, issued(), issued())
    with books.engine.begin() as connection:
        rows = connection.execute(select(LEDGER).order_by(LEDGER.c.seq)).all()
        first, second = (json.loads(row.entry) for row in rows)
        second["personal"] = first["personal"]
        entry = json.dumps(second, sort_keys=True, separators=(",", ":")).encode()
        connection.execute(update(LEDGER).where(LEDGER.c.seq == 2).values(entry=entry))
    with pytest.raises(ChainError, match="entry 2"):
        opened(books)


def test_an_entry_of_the_first_version(books: Books) -> None:
    """The format does not change: an entry is these fields, in this form."""
    (entry,) = books.ledger().append([issued()], NOW)
    document = json.loads(entry.entry)
    assert entry.entry == json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
    del document["person"], document["personal"]
    assert document == {
        "v": 1,
        "seq": 1,
        "prev": GENESIS,
        "at": rfc3339(NOW),
        "kind": "issued",
        "serial": 1,
        "profile": "person",
        "valid_after": "2026-11-21T12:00:00Z",
        "valid_before": "2026-11-21T13:00:00Z",
    }
