"""What a syslog server kept of the ledger, read back: only what is ours counts.

Whoever can write to the server, or to /dev/log, can put lines there that look like entries. Ours
is what its person's key opens: the key seals the whole entry. Where that key is not here any more,
ours is what an entry of ours follows, or what follows one.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any

import msgspec

from token_translator.signer import entries
from token_translator.signer.entries import GENESIS, ChainError, Entry, Head, digest, expiry
from token_translator.signer.persons import Persons

AT_ONCE = 500
_Number = Annotated[int, msgspec.Meta(ge=1, le=2**62)]
_Name = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{32}\Z")]
_Hash = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}\Z")]


class _Line(msgspec.Struct, frozen=True):
    """What every entry has."""

    v: int
    seq: _Number
    prev: _Hash
    kind: str
    serial: _Number | None
    at: datetime
    person: _Name
    personal: str
    valid_before: datetime | None = None


@dataclass(frozen=True, slots=True)
class Copied:
    """Entries of a copy that are ours, and how many lines looked like some and are none.

    There may be several of one number: the ledger went back once, and was written since.
    """

    entries: tuple[Entry, ...] = ()
    strange: int = 0
    by_number: Mapping[int, frozenset[str]] = field(default_factory=dict)
    following: Mapping[str, tuple[Entry, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, found: Iterable[Entry], strange: int = 0) -> "Copied":
        """These entries, in the order of their numbers."""
        ordered = sorted({entry.hash: entry for entry in found}.values(), key=_number)
        numbers: dict[int, set[str]] = {}
        following: dict[str, list[Entry]] = {}
        for entry in ordered:
            numbers.setdefault(entry.seq, set()).add(entry.hash)
            following.setdefault(_prev(entry), []).append(entry)
        return cls(
            tuple(ordered),
            strange,
            {seq: frozenset(hashes) for seq, hashes in numbers.items()},
            {prev: tuple(some) for prev, some in following.items()},
        )


def read(lines: Iterable[bytes]) -> Copied:
    """The entries in what a syslog server kept: each line ends with one, whatever is before it.

    Whether they are ours is not looked at yet.
    """
    found: list[Entry] = []
    strange = 0
    for line in lines:
        start = line.find(b"{")
        body = line[start:].strip() if start >= 0 else b""
        if b'"prev":' not in body:
            continue
        entry = _read(body)
        if entry is None:
            strange += 1
        else:
            found.append(entry)
    return Copied.of(found, strange)


def ours(copy: Copied, persons: Persons, known: Iterable[Head]) -> Copied:
    """Those of a copy that are ours; `known` are ends of the ledger that we know otherwise."""
    proved, open_ = [], []
    for start in range(0, len(copy.entries), AT_ONCE):
        some = copy.entries[start : start + AT_ONCE]
        keys = persons.keys({entry.person for entry in some})
        for entry in some:
            key = keys.get(entry.person)
            if key is None:
                open_.append(entry)
            elif _opens(entry, key):
                proved.append(entry)
    chained = list(_chained(open_, proved, {head.hash for head in known if head.seq}))
    kept = [*proved, *chained]
    return Copied.of(kept, copy.strange + len(copy.entries) - len(kept))


def _chained(
    unproved: Iterable[Entry], proved: Iterable[Entry], known: set[str]
) -> Iterator[Entry]:
    """Those that one of ours follows, or that follow one, however far."""
    left = {entry.hash: entry for entry in unproved}
    after: dict[str, list[str]] = {}
    for entry in left.values():
        after.setdefault(_prev(entry), []).append(entry.hash)
    hashes = set(known)
    for entry in proved:
        hashes |= {entry.hash, _prev(entry)}
    # Everybody knows what the first entry ever follows.
    waiting = list(hashes - {GENESIS})
    while waiting:
        one = waiting.pop()
        found = left.pop(one, None)
        if found is not None:
            yield found
            waiting.append(_prev(found))
        waiting += [each for each in after.pop(one, ()) if each in left]


def _read(body: bytes) -> Entry | None:
    try:
        line = msgspec.json.decode(body, type=_Line)
        document: dict[str, Any] = json.loads(body)
        return Entry(
            seq=line.seq,
            serial=line.serial,
            at=int(line.at.timestamp()),
            person=line.person,
            valid_before=expiry(document),
            entry=body,
            hash=digest(body),
        )
    except (msgspec.MsgspecError, ValueError, KeyError, TypeError, OverflowError):
        return None


def _opens(entry: Entry, key: bytes) -> bool:
    try:
        entries.personal(json.loads(entry.entry), key)
    except (ChainError, ValueError):
        return False
    return True


def _prev(entry: Entry) -> str:
    prev: str = json.loads(entry.entry)["prev"]
    return prev


def _number(entry: Entry) -> int:
    return entry.seq
