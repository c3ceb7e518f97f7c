"""The lines of `scontrol -o show …`: `Key=value Key=value`, where values can hold spaces."""

import re
from collections.abc import Iterator, Mapping

from headgate.slurm.parse.notes import Note
from headgate.slurm.parse.resources import NOTHING

_KEY = re.compile(r"(?:^|(?<=\s))([A-Za-z][\w:/\[\].-]*)=")


def records(text: str, first_key: str) -> Iterator[Mapping[str, str]]:
    """Each line that begins with `first_key=`, as a mapping; other lines say "none" or warn.

    Where a key comes twice the first one counts: free text of operators (reasons) comes late.
    """
    for line in text.splitlines():
        if line.startswith(first_key + "="):
            yield record(line)


def record(line: str) -> Mapping[str, str]:
    """One line as a mapping of its keys to their values without outer spaces."""
    values: dict[str, str] = {}
    found = list(_KEY.finditer(line))
    for place, key in enumerate(found):
        end = found[place + 1].start() if place + 1 < len(found) else len(line)
        values.setdefault(key[1], line[key.end() : end].strip())
    return values


def words(text: str) -> tuple[str, ...]:
    """A list at commas; empty for Slurm's ways to write nothing."""
    if text.strip() in NOTHING:
        return ()
    return tuple(word for word in text.split(",") if word)


def number(values: Mapping[str, str], key: str, note: Note, default: int = 0) -> int:
    """A whole number of a record; `default` where the key is missing or empty."""
    text = values.get(key, "")
    if text in NOTHING:
        return default
    try:
        return int(text)
    except ValueError:
        note(key, text)
        return default


def most(values: Mapping[str, str], key: str, note: Note) -> int | None:
    """A limit of a record; None for UNLIMITED and for a missing key."""
    text = values.get(key, "")
    if text in NOTHING or text.upper() in {"UNLIMITED", "INFINITE"}:
        return None
    try:
        return int(text)
    except ValueError:
        note(key, text)
        return None
