"""Amounts as people read them: durations, memory, moments in local time, harmless text."""

from datetime import datetime, timedelta
from itertools import pairwise

_UNITS = (("d", 86400), ("h", 3600), ("m", 60), ("s", 1))


def duration(seconds: float) -> str:
    """`7s`, `3m05s`, `10m`, `2h10m`, `1d04h`: two units at most."""
    whole = max(0, round(seconds))
    for (large, size), (small, part) in pairwise(_UNITS):
        if whole >= size:
            rest = whole % size // part
            return f"{whole // size}{large}{rest:02d}{small}" if rest else f"{whole // size}{large}"
    return f"{whole}s"


def memory(amount: int) -> str:
    """`512 MiB`, `4 GiB`, `1.5 GiB`."""
    for unit, size in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if amount >= size:
            return f"{amount / size:.4g} {unit}"
    return f"{amount} B"


def moment(when: datetime | None, now: datetime) -> str:
    """Local time, as short as it is clear from `now`: `14:03`, `Nov 20 14:03`, `2025-11-20`."""
    if when is None:
        return "-"
    try:
        local, today = when.astimezone(), now.astimezone()
    except OverflowError:
        return when.date().isoformat()  # at an end of the calendar
    if local.date() == today.date():
        return local.strftime("%H:%M:%S")
    if abs(today - local) < timedelta(days=180):
        return local.strftime("%b %d %H:%M")
    return local.strftime("%Y-%m-%d")


def count(number: int, thing: str) -> str:
    """`1 GPU`, `2 GPUs`."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def harmless(text: object) -> str:
    """Text from elsewhere for a terminal: on one line, control and direction characters removed."""
    return plain(" ".join(str(text).split()))


def plain(text: str) -> str:
    """The same, character for character: what a terminal would act on is replaced."""
    return "".join(c if c.isprintable() else " " if c.isspace() else _REPLACED for c in text)


def in_json(document: bytes) -> bytes:
    """A JSON document with those characters written as escapes (RFC 8259, section 7)."""
    if document.isascii() and b"\x7f" not in document:
        return document  # the others below U+0020 are escaped anyway
    text = (c if c.isprintable() else _escaped(c) for c in document.decode())
    return "".join(text).encode()


def _escaped(character: str) -> str:
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


_REPLACED = "\N{REPLACEMENT CHARACTER}"
