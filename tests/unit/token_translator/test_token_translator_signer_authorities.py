"""The table of authorities: whoever changes it is found, and shortens no list before that."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete, update

from tests.unit.token_translator.ledger_books import NOW, Books, issued
from token_translator.keys import fingerprint
from token_translator.signer import authorities, commands, restore, revocations
from token_translator.signer.authorities import Authorities
from token_translator.signer.authority import FileAuthority, create, public_line
from token_translator.signer.copied import Copied
from token_translator.signer.krl import RevocationList
from token_translator.signer.revocations import Wanted, orderer
from token_translator.signer.tables import AUTHORITIES, LEDGER, REVOKED_SERIALS

ROOT = orderer("local:root")
LATER = NOW + timedelta(minutes=1)


@pytest.fixture
def keys(tmp_path: Path) -> list[FileAuthority]:
    """Three of them."""
    paths = [tmp_path / f"ca{number}" for number in range(3)]
    for path in paths:
        create(path)
    return [FileAuthority.load(path) for path in paths]


def started(books: Books, user: Sequence[FileAuthority], host: FileAuthority) -> Authorities:
    """A signer starts with these."""
    found = Authorities(user=user, host=[host])
    with books.ledger().writing(NOW) as writing:
        authorities.register(writing, found, by=ROOT)
    return found


def signed(books: Books, key: FileAuthority) -> None:
    """A certificate by a key, which is revoked."""
    record = issued()
    ca = fingerprint(key.blob)
    (entry,) = books.ledger().append([replace(record, public={**record.public, "ca": ca})], NOW)
    with books.ledger().writing(NOW) as writing:
        wanted = Wanted(reason="lost", by=ROOT, serials=[entry.serial or 0])
        revocations.revoke(writing, books.persons, wanted)


def listed(books: Books, found: Authorities) -> bytes:
    """The revocation list."""
    with books.ledger().reading() as connection:
        lines = authorities.certifying(connection, NOW, found.present())
        return RevocationList.of(revocations.current(connection, NOW), lines).encode()


def broken(books: Books) -> str:
    """What `verify` finds; empty: intact."""
    return str(commands.verify(books.ledger(), None, LATER)[1].get("broken", ""))


def change(books: Books, key: FileAuthority, **values: Any) -> None:
    """Somebody writes the database."""
    name = fingerprint(key.blob)
    with books.engine.begin() as connection:
        changed = update(AUTHORITIES).where(AUTHORITIES.c.fingerprint == name)
        connection.execute(changed.values(**values))


@pytest.mark.parametrize(
    "values",
    [{"state": "retired", "last_expires": 0}, {"state": "trusted"}, {"role": "host"}, {"line": ""}],
)
def test_a_part_that_was_changed(
    books: Books, keys: list[FileAuthority], values: dict[str, Any]
) -> None:
    """No authority in hand leaves the list, whatever the table says; and `verify` says so."""
    found = started(books, keys[:1], keys[1])
    signed(books, keys[0])
    before = listed(books, found)
    assert not broken(books)
    change(books, keys[0], **values)
    assert listed(books, found) == before
    assert "authority" in broken(books)


def test_an_authority_that_was_taken_out(books: Books, keys: list[FileAuthority]) -> None:
    """So where its row is gone, or has another key."""
    found = started(books, keys[:1], keys[1])
    signed(books, keys[0])
    before = listed(books, found)
    change(books, keys[0], line=public_line(keys[2]))
    assert "another key" in broken(books)
    with books.engine.begin() as connection:
        connection.execute(delete(AUTHORITIES))
    assert "not in the table" in broken(books)
    assert listed(books, found) == before


def test_a_retired_one_that_leaves_too_early(books: Books, keys: list[FileAuthority]) -> None:
    """Of one that is not in hand any more, how long it counts is held against its certificates."""
    started(books, keys[:1], keys[2])
    signed(books, keys[0])
    found = started(books, keys[1:2], keys[2])
    before = listed(books, found)
    assert not broken(books)
    change(books, keys[0], last_expires=int(LATER.timestamp()))
    assert "too early" in broken(books)
    change(books, keys[0], last_expires=None)
    assert "too early" in broken(books)
    assert len(listed(books, found)) < len(before)


def test_a_revoked_one_is_not_believed(books: Books, keys: list[FileAuthority]) -> None:
    """One that was revoked is on the list as a key, and certifies nothing, though it is in hand."""
    found = started(books, keys[:1], keys[1])
    with books.ledger().writing(NOW) as writing:
        name = fingerprint(keys[0].blob)
        wanted = Wanted(reason="stolen", by=ROOT, authority=name, active_too=True)
        revocations.revoke(writing, books.persons, wanted)
    with books.ledger().reading() as connection:
        (line,) = authorities.certifying(connection, NOW, found.present())
    assert line == public_line(keys[1])
    assert not broken(books)


def test_authorities_that_a_copy_has(books: Books, keys: list[FileAuthority]) -> None:
    """One that was new and retired again in what a restore lost comes back with its entries."""
    books.ledger().append([issued()], NOW)
    started(books, keys[:1], keys[2])
    signed(books, keys[0])
    found = started(books, keys[1:2], keys[2])
    before, whole = listed(books, found), list(books.ledger().entries())
    with books.engine.begin() as connection:
        for table in (AUTHORITIES, LEDGER, REVOKED_SERIALS):
            first = table.c.get("seq")
            connection.execute(delete(table) if first is None else delete(table).where(first > 1))
    lost = restore.Lost(books.position.read(), copy=Copied.of(whole))
    done = restore.reconcile(books.ledger(), books.persons, lost, by=ROOT, now=NOW)
    assert done.put_back == len(whole) - 1
    assert not broken(books)
    assert listed(books, started(books, keys[1:2], keys[2])) == before
    assert not broken(books)
