"""What a service sends is shown as text: no terminal acts on it."""

from datetime import UTC, datetime

import msgspec
import pytest
from rich.text import Text

from headgate.cli.failures import CommandFailure
from headgate.cli.screen import Screen
from headgate.cli.wording import in_json
from headgate.client import Job, JobState, Me
from headgate.clock import HeldClock

EVIL = "al\x1b]0;owned\x07\x1b[2J\x9b2J\u202eice\n\rx\x7f"
ACTS = ("\x1b", "\x07", "\x9b", "\u202e", "\r", "\x7f")


@pytest.fixture
def screen() -> Screen:
    """A screen without a terminal."""
    return Screen(HeldClock(datetime(2026, 1, 1, tzinfo=UTC)))


def test_nothing_of_a_service_reaches_the_terminal(
    screen: Screen, capsysbinary: pytest.CaptureFixture[bytes]
):
    """Ids, names, accounts, sentences, tables and failures: no character that does anything."""
    job = Job(id=EVIL, state=JobState.FAILED, name=EVIL, account=EVIL, status_message=EVIL)
    screen.note(EVIL, (EVIL, "bold"), Text(EVIL))
    screen.line(EVIL)
    screen.address(EVIL)
    screen.table(("A",), [(EVIL,)])
    screen.jobs([job])
    screen.job(job)
    screen.fields({"a": Text(EVIL, "bold")})
    screen.me(Me(iss=EVIL, sub=EVIL, state="blocked", reason=EVIL), site=EVIL, token=EVIL)
    screen.failure(CommandFailure(EVIL, advice=EVIL), as_json=False)
    screen.failure(CommandFailure(EVIL, advice=EVIL), as_json=True)
    screen.failure_line(CommandFailure(EVIL, advice=EVIL))
    screen.json({"a": EVIL})
    for written in capsysbinary.readouterr():
        assert [c for c in ACTS if c in written.decode()] == []
        assert "ice" in written.decode()


def test_json_stays_the_same_document():
    """Characters are written as escapes, also those beyond 16 bits; what is readable stays."""
    value = {"ä€😀": EVIL + "\U000e0001"}
    document = in_json(msgspec.json.encode(value))
    assert msgspec.json.decode(document) == value
    assert "ä€😀" in document.decode()
