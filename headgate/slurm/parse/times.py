"""Points in time and time limits as Slurm prints them."""

import re
from datetime import UTC, datetime

from headgate.slurm.parse.notes import Note, silent

_NEVER = frozenset({"", "N/A", "NONE", "UNKNOWN", "(NULL)", "0", "INVALID"})
_UNLIMITED = frozenset({"UNLIMITED", "INFINITE", "-1"})
_UNSET = frozenset({"", "NONE", "N/A", "(NULL)", "NOT_SET", "PARTITION_LIMIT", "INVALID"})
_LENGTHS = (
    re.compile(r"(?P<d>\d+)-(?P<h>\d+)(?::(?P<m>\d+)(?::(?P<s>\d+))?)?", re.ASCII),
    re.compile(r"(?P<h>\d+):(?P<m>\d+):(?P<s>\d+)", re.ASCII),
    re.compile(r"(?P<m>\d+)(?::(?P<s>\d+))?", re.ASCII),
)


def moment(text: str, note: Note = silent) -> datetime | None:
    """A point in time printed under `SLURM_TIME_FORMAT=%s`: aware, UTC; None where there is none.

    Slurm writes `N/A`, `Unknown` or `None` for a time that is not known yet.
    """
    word = text.strip()
    if word.upper() in _NEVER:
        return None
    if not (word.isascii() and word.isdigit()):
        note("time", word)
        return None
    try:
        return datetime.fromtimestamp(int(word), UTC)
    except (ValueError, OverflowError, OSError):
        note("time", word)
        return None


def seconds(text: str) -> int | None:
    """Length of a time limit in seconds, None for unlimited and for unset.

    Forms: `MM`, `MM:SS`, `HH:MM:SS`, `D-HH`, `D-HH:MM`, `D-HH:MM:SS` (sbatch(1), --time), and the
    words UNLIMITED, INFINITE, NONE, n/a, NOT_SET, Partition_Limit.

    Raises:
        ValueError: none of these.
    """
    word = text.strip()
    if word.upper() in _UNLIMITED | _UNSET:
        return None
    for form in _LENGTHS:
        if found := form.fullmatch(word):
            part = {name: int(digits) for name, digits in found.groupdict("0").items()}
            hours = part.get("d", 0) * 24 + part.get("h", 0)
            return hours * 3600 + part.get("m", 0) * 60 + part.get("s", 0)
    raise ValueError(f"not a time limit: {text!r}")


def minutes(text: str, note: Note = silent) -> int | None:
    """A time limit in whole minutes, rounded up as Slurm does; None for unlimited and for unset."""
    try:
        length = seconds(text)
    except ValueError:
        note("time limit", text)
        return None
    return None if length is None else -(-length // 60)
