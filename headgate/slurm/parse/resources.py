"""Generic resources (`gpu:a100:4(S:0-1)`) and trackable resources (`cpu=2,gres/gpu:a100=1`).

Sources: slurm.conf(5) and gres.conf(5) for GRES, squeue(1) and sacct(1) for TRES.
"""

from collections.abc import Iterator, Mapping

from headgate.slurm.model import Gres
from headgate.slurm.parse.notes import Note, silent
from headgate.slurm.parse.quantities import COUNT, amount, bytes_of

NOTHING = frozenset({"", "(null)", "N/A", "n/a", "NONE", "none"})
"""How Slurm writes an empty value."""

_FLAGS = frozenset({"no_consume"})


def gres(text: str, note: Note = silent) -> tuple[Gres, ...]:
    """Each `name[:type][:count][(S:…|IDX:…)]` of a list, in its order.

    No count means 1, `(null)` as a type means untyped, K/M/G multiply by 1024. The prefixes
    `gres:` and `gres/` of job requests are taken off. Entries that make no sense are noted and
    left out; sockets and indexes are not kept.
    """
    found = []
    for item in _items(text):
        try:
            found.append(_one(item))
        except ValueError:
            note("gres", item)
    return tuple(found)


def tres(text: str, note: Note = silent) -> Mapping[str, int]:
    """TRES by name: `cpu`, `node`, `billing`, `gres/gpu`, `gres/gpu:a100`, …; `mem` in bytes.

    A typed entry is part of the untyped one: never add them up.
    """
    amounts: dict[str, int] = {}
    for item in _items(text):
        name, _, value = item.partition("=")
        try:
            size = bytes_of(value) if name == "mem" else amount(value)
        except ValueError:
            note("tres", item)
        else:
            amounts[name] = size
    return amounts


def _one(item: str) -> Gres:
    # What stands in parentheses at the end says where on the node; `(null)` in the middle is a
    # type. Both have parentheses, so the end is cut first.
    bare = item
    if bare.endswith(")") and not bare.endswith(":(null)"):
        bare = bare[: bare.rindex("(")]
    for prefix in ("gres:", "gres/"):
        bare = bare.removeprefix(prefix)
    name, *rest = [part for part in bare.replace("=", ":").split(":") if part not in _FLAGS]
    if not name or "" in rest:
        raise ValueError(item)
    number = 1
    if rest and COUNT.fullmatch(rest[-1]):
        number = amount(rest.pop())
    if len(rest) > 1:
        raise ValueError(item)
    kind = rest[0] if rest and rest[0] != "(null)" else ""
    return Gres(name, kind, number)


def _items(text: str) -> Iterator[str]:
    """The entries of a list, divided at the commas that are outside of parentheses."""
    if text.strip() in NOTHING:
        return
    depth = start = 0
    for place, char in enumerate(text):
        if char == "(":
            depth += 1
        elif char == ")":
            depth -= 1
        elif char == "," and depth <= 0:
            yield from filter(None, [text[start:place].strip()])
            start = place + 1
    yield from filter(None, [text[start:].strip()])
