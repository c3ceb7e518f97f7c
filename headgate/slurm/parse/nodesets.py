"""Host lists: `n[1-3,007-010]-ib,login`, Slurm's way to write many node names in few letters."""

import itertools
import re
from collections.abc import Iterator

_TOKEN = re.compile(r"\[([^\[\]]*)\]|([^\[\],]+)")
MOST = 1_000_000
"""Names a list may stand for; more is a mistake or an attack."""


def expand(text: str) -> tuple[str, ...]:
    """The names a host list stands for, in its order; leading zeros are kept.

    Raises:
        ValueError: not a host list, or one of more than a million names.
    """
    names: list[str] = []
    for item in _items(text):
        parts = _parts(item)
        size = 1
        for part in parts:
            size *= len(part)
        if len(names) + size > MOST:
            raise ValueError(f"a host list of too many names: {text[:100]!r}")
        names.extend("".join(pick) for pick in itertools.product(*parts))
    return tuple(names)


def count(text: str) -> int:
    """How many names a host list stands for.

    Raises:
        ValueError: not a host list.
    """
    return len(expand(text))


def _items(text: str) -> Iterator[str]:
    if text.strip() in {"", "(null)", "N/A", "None assigned"}:
        return
    depth = start = 0
    for place, char in enumerate(text):
        depth += (char == "[") - (char == "]")
        if depth not in {0, 1}:
            raise ValueError(f"not a host list: {text[:100]!r}")
        if char == "," and not depth:
            yield text[start:place]
            start = place + 1
    if depth:
        raise ValueError(f"not a host list: {text[:100]!r}")
    yield text[start:]


def _parts(item: str) -> list[list[str]]:
    """What stands at each place of one item: fixed text, or the values of a bracket."""
    parts: list[list[str]] = []
    end = 0
    for found in _TOKEN.finditer(item):
        if found.start() != end:
            break
        end = found.end()
        inside, fixed = found.groups()
        parts.append([fixed] if inside is None else _values(inside))
    if not parts or end != len(item):
        raise ValueError(f"not a host list: {item[:100]!r}")
    return parts


def _values(inside: str) -> list[str]:
    values: list[str] = []
    for piece in inside.split(","):
        low, dash, high = piece.partition("-")
        high = high if dash else low
        if not (low.isascii() and low.isdigit() and high.isascii() and high.isdigit()):
            raise ValueError(f"not a range of a host list: {piece[:100]!r}")
        first, last = int(low), int(high)
        if not 0 <= last - first < MOST:
            raise ValueError(f"not a range of a host list: {piece[:100]!r}")
        values.extend(str(number).zfill(len(low)) for number in range(first, last + 1))
    return values
