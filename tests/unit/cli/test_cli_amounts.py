"""Amounts that people type, and words that they read."""

from datetime import UTC, datetime, timedelta

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.cli.amounts import memory_bytes, seconds, variables
from headgate.cli.wording import duration, harmless, memory, moment


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("90", 90),
        ("90s", 90),
        ("10m", 600),
        ("1h30m", 5400),
        ("2d", 172800),
        ("1:00:00", 3600),
        ("1-00:00:01", 86401),
        (" 5M ", 300),
    ],
)
def test_wall_times(text: str, expected: int):
    """The forms that people and Slurm write are seconds."""
    assert seconds(text) == expected


@pytest.mark.parametrize("text", ["", "0", "10x", "1:30", "-5m", "h", "1-2", "1.5h", "a:b:c", "٣m"])
def test_what_is_no_wall_time(text: str):
    """Anything else is refused, `1:30` too: it means two things."""
    with pytest.raises(ValueError, match=r".*"):
        seconds(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1024", 1024), ("512M", 2**29), ("4G", 2**32), ("1.5GiB", 3 * 2**29), ("1kb", 1024)],
)
def test_memory(text: str, expected: int):
    """Units are powers of 1024."""
    assert memory_bytes(text) == expected


@pytest.mark.parametrize("text", ["", "G", "-1G", "0", "4X", "4 G B"])
def test_what_is_no_memory(text: str):
    """Anything else is refused."""
    with pytest.raises(ValueError, match=r".*"):
        memory_bytes(text)


def test_variables_come_from_the_setting_or_from_here():
    """K=V is itself, even with further equal signs or empty; a bare K is the caller's own."""
    given_ = variables(("A=1=2", "B=", "C"), {"C": "here"})
    assert given_ == {"A": "1=2", "B": "", "C": "here"}


@pytest.mark.parametrize("setting", ["=1", "MISSING"])
def test_what_is_no_variable(setting: str):
    """A setting without a name or a value is a usage error."""
    with pytest.raises(click.BadParameter):
        variables((setting,), {})


@pytest.mark.parametrize(
    ("amount", "words"),
    [(0, "0s"), (59.6, "1m"), (185, "3m05s"), (7800, "2h10m"), (100800, "1d04h")],
)
def test_durations_read_well(amount: float, words: str):
    """Two units at most."""
    assert duration(amount) == words


def test_memory_reads_well():
    """The largest unit that fits."""
    assert [memory(n) for n in (100, 2**20, 3 * 2**29)] == ["100 B", "1 MiB", "1.5 GiB"]


def test_moments_are_local_and_short():
    """Today is a time, this half year a day, all else a date; nothing is a dash."""
    now = datetime(2026, 7, 1, 12, tzinfo=UTC)
    assert moment(now, now) == now.astimezone().strftime("%H:%M:%S")
    assert len(moment(now - timedelta(days=3), now)) == len("Jun 28 12:00")
    assert moment(datetime(2020, 5, 5, 12, tzinfo=UTC), now) == "2020-05-05"
    assert moment(None, now) == "-"


@given(st.text())
def test_text_from_elsewhere_cannot_move_the_cursor(text: str):
    """Whatever a server or a user wrote is one printable line."""
    assert harmless(text).isprintable()
