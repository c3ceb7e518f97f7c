"""What the asking process has noted: appended, bounded, and how far its own states had come."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from sqlalchemy import delete, insert, update

from headgate.clock import HeldClock
from tests.unit.token_translator.ledger_books import Books
from token_translator import wire
from token_translator.signer import authority, commands, restore
from token_translator.signer.authorities import Authorities
from token_translator.signer.ceilings import Ceilings
from token_translator.signer.copied import Copied
from token_translator.signer.revocations import orderer
from token_translator.signer.signing import Signing
from token_translator.signer.tables import MARKS

ALICE = wire.Subject("https://iam.example/", "alice", "alice", "site1", "pam")
NOBODY = wire.Subject("", "", "", "", "service", instance="gateway")


@pytest.fixture
def clock() -> HeldClock:
    """A clock that stands still."""
    return HeldClock()


@pytest.fixture
async def signing(books: Books, clock: HeldClock, tmp_path: Path) -> AsyncIterator[Signing]:
    """What answers."""
    authority.create(tmp_path / "ca")
    key = authority.FileAuthority.load(tmp_path / "ca")
    one = Signing(
        authorities=Authorities(user=[key], host=[key]),
        ceilings=Ceilings(per_minute=60),
        ledger=books.ledger(),
        persons=books.persons,
        clock=clock,
    )
    yield one
    await one.close()


def entries(books: Books) -> list[dict[str, Any]]:
    """The documents, in order."""
    return [json.loads(entry.entry) for entry in books.ledger().entries()]


async def marks(signing: Signing) -> dict[str, int]:
    """The marks there are."""
    answer = await signing.answer(wire.ListMarks(1))
    assert isinstance(answer, wire.Marks)
    return answer.marks


async def test_a_note_is_an_entry(books: Books, signing: Signing) -> None:
    """It says what happened in clear, and of whom under their key; also where there is nobody."""
    note = wire.Note(7, ALICE, "pam_refused", "no account on login1")
    assert await signing.answer(note) == wire.Recorded(7)
    await signing.answer(wire.Note(8, NOBODY, "service_stopped"))
    first, second = entries(books)
    assert (first["kind"], first["event"], first["profile"]) == ("noted", "pam_refused", "pam")
    assert "alice" not in json.dumps(first)
    assert (second["event"], first["serial"]) == ("service_stopped", None)
    assert books.persons.find(orderer("peer:gateway")) is not None
    assert commands.verify(books.ledger(), None, HeldClock().now())[0] == 0


async def test_a_flood_of_notes_is_counted(
    books: Books, signing: Signing, clock: HeldClock
) -> None:
    """Ten of one event a minute; another event of the same person is heard all the same."""
    for number in range(25):
        note = wire.Note(number, ALICE, "pam_refused")
        assert await signing.answer(note) == wire.Recorded(number)
    await signing.answer(wire.Note(1, ALICE, "pam_accepted"))
    assert len(entries(books)) == 11
    clock.advance(61)
    await signing.answer(wire.Note(1, ALICE, "pam_refused"))
    assert entries(books)[-1]["suppressed"] == 15


async def test_each_login_is_recorded(books: Books, signing: Signing, clock: HeldClock) -> None:
    """Whom PAM lets in is never counted as a flood; beyond the rate nobody is let in."""
    for number in range(40):
        note = wire.Note(number, ALICE, "pam_accepted", f"login {number}")
        assert await signing.answer(note) == wire.Recorded(number)
    assert len(entries(books)) == 40
    for number in range(20):
        await signing.answer(wire.Note(number, ALICE, "pam_accepted"))
    refused = await signing.answer(wire.Note(7, ALICE, "pam_accepted"))
    assert isinstance(refused, wire.Refused)
    assert (refused.code, len(entries(books))) == ("rate", 60)
    assert await signing.answer(wire.Note(7, ALICE, "pam_refused")) == wire.Recorded(7)
    clock.advance(1)
    assert await signing.answer(wire.Note(7, ALICE, "pam_accepted")) == wire.Recorded(7)


async def test_marks_only_grow(books: Books, signing: Signing) -> None:
    """The highest number of each name is told; a note with a lower one changes nothing."""
    assert await marks(signing) == {}
    told: list[tuple[wire.Mark, int]] = [("changes", 5), ("changes", 3), ("denials", 1)]
    for mark in told:
        await signing.answer(wire.Note(1, NOBODY, "hold_placed", mark=mark))
    assert await marks(signing) == {"changes": 5, "denials": 1}
    assert [one.get("mark") for one in entries(books)] == [list(mark) for mark in told]


async def test_marks_are_never_left_out(books: Books, signing: Signing) -> None:
    """They are not counted as a flood is: what is answered has been written."""
    for number in range(1, 31):
        await signing.answer(wire.Note(1, NOBODY, "hold_placed", mark=("changes", number)))
    assert len(entries(books)) == 30
    assert await marks(signing) == {"changes": 30}


async def test_a_mark_cannot_be_used_up(books: Books, signing: Signing) -> None:
    """One step is no further than anybody goes, and there are no names but the two that count."""
    answer = await signing.answer(wire.Note(1, NOBODY, "x", mark=("changes", 2**40)))
    assert isinstance(answer, wire.Refused)
    assert (answer.code, entries(books)) == ("ceiling", [])
    for name, well in (("changes", True), ("denials", True), ("mine", False), ("", False)):
        made = msgspec.to_builtins(wire.Note(1, NOBODY, "x", mark=("changes", 1)))
        body = msgspec.json.encode({**made, "mark": (name, 1)})
        if well:
            assert msgspec.json.decode(body, type=wire.Request)
        else:
            with pytest.raises(msgspec.ValidationError):
                msgspec.json.decode(body, type=wire.Request)


async def test_names_that_were_used_up_before(books: Books, signing: Signing) -> None:
    """Other names that an older signer took do not keep ours from being counted."""
    with books.engine.begin() as connection:
        for number in range(16):
            connection.execute(insert(MARKS).values(name=f"name{number}", value=1, seq=1))
    await signing.answer(wire.Note(1, NOBODY, "x", mark=("denials", 1)))
    assert (await marks(signing))["denials"] == 1


async def test_a_mark_taken_back_is_found(books: Books, signing: Signing) -> None:
    """Whoever lowers a mark in the database, or takes it out, is found by `verify`."""
    await signing.answer(wire.Note(1, NOBODY, "x", mark=("changes", 5)))
    for change in (update(MARKS).values(value=4), delete(MARKS)):
        with books.engine.begin() as connection:
            connection.execute(change)
        status, found = commands.verify(books.ledger(), None, HeldClock().now())
        assert (status, "mark" in found["broken"]) == (1, True)


async def test_a_mark_comes_back_with_its_entry(books: Books, signing: Signing) -> None:
    """After a restore, what the copy has of marks counts again."""
    await signing.answer(wire.Note(1, NOBODY, "x", mark=("changes", 5)))
    whole = list(books.ledger().entries())
    with books.engine.begin() as connection:
        for table in (MARKS, *MARKS.metadata.tables.values()):
            connection.execute(delete(table))
    copy = Copied.of(whole)
    lost = restore.Lost(books.position.read(), 0, copy)
    restore.reconcile(
        books.ledger(), books.persons, lost, by=orderer("local:root"), now=HeldClock().now()
    )
    with books.ledger().reading() as connection:
        assert connection.execute(MARKS.select()).one().value == 5
