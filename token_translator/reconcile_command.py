"""After a restore of the HTTP service's database, at the host's terminal: look, and go on."""

import argparse
import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID, uuid4

import msgspec

from headgate.clock import Clock, rfc3339
from headgate.identity import Identity
from headgate.problems import Problem
from headgate.settings import SettingsError
from token_translator import notes
from token_translator.continuity import MARKS, Ledger, behind
from token_translator.enrolments import Enrolments
from token_translator.holds import Hold, HoldStore
from token_translator.note_store import DatabaseNotes
from token_translator.notes import Note, Reached
from token_translator.seals import SealStore
from token_translator.signer.files import name_of
from token_translator.stops import Stops

EX_TEMPFAIL = 75
VERBS = frozenset({"reconcile"})
_SENTENCE = "after a restore of the database: say what is lost, put it back, and go on"


@dataclass(frozen=True, slots=True)
class Stores:
    """What is put back into."""

    notes: DatabaseNotes
    holds: HoldStore
    seals: SealStore
    stops: Stops
    enrolments: Enrolments


class _Personal(msgspec.Struct, frozen=True):
    iss: str = ""
    sub: str = ""
    realm: str = ""
    instance: str = ""
    row: str = ""
    actor: str = ""
    detail: str = ""
    cut: bool = False


class _Entry(msgspec.Struct, frozen=True):
    """A line of `headgate-signer ledger search --json`, as far as it matters here."""

    kind: str
    event: str = ""
    mark: tuple[str, int] | None = None
    personal: _Personal | None = None


def add_verbs(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verb to a command's own."""
    verb = verbs.add_parser("reconcile", help=_SENTENCE, description=_SENTENCE)
    verb.add_argument("--config", type=Path, default=argparse.SUPPRESS, metavar="FILE")
    verb.add_argument(
        "--ledger",
        type=Path,
        metavar="FILE",
        help="put back what this says: the output of `headgate-signer ledger search --json`; "
        "`-` is standard input, so that no file of it need lie about",
    )
    verb.add_argument("--accept", action="store_true", help="do it, and let the service sign again")


async def run(
    options: argparse.Namespace, stores: Stores, ledger: Ledger, *, by: str, clock: Clock
) -> int:
    """Do the verb in somebody's name; 1 where the database went back and nothing was done.

    Raises:
        SettingsError: the file is no such output.
    """
    try:
        marks, reached = await ledger.marks(), await stores.notes.reached()
        numbers = (f"{m} {reached.kept(m)} of {marks.get(m, 0)} in the ledger" for m in MARKS)
        if not behind(reached, marks) and reached.went_back_at is None:
            _say(f"whole: {', '.join(numbers)}")
            return 0
        since = reached.went_back_at
        noticed = f" (noticed {rfc3339(since)})" if since else ""
        _say(f"the database went back{noticed}: {', '.join(numbers)}")
        lost = _Lost()
        if options.ledger:
            entries = _entries(options.ledger)
            _require_all(entries, reached, marks)
            lost = _lost(entries)
        for line in lost.lines():
            _say(line)
        if not options.accept:
            _say("nothing was done: see --ledger and --accept")
            return 1
        _say(f"put back: {await _put_back(lost, stores, by, clock)}")
        note = Note(uuid4(), clock.now(), "restore_accepted", "denials", 0, detail=notes.detail(by))
        await stores.notes.go_on(note, marks=marks)
    except Problem as problem:
        _say(f"headgate-tokens: {problem.detail}")
        return EX_TEMPFAIL
    _say("the service signs again")
    return 0


@dataclass(frozen=True, slots=True)
class _Lost:
    """What was denied and not taken back: holds, ended delegations, stopped services, and hosts.

    `enrolled` and `cut` cannot be put back: those hosts need a new token, and of what was too long
    for the ledger it has the beginnings alone.
    """

    holds: Sequence[_Personal] = ()
    ends: Sequence[_Personal] = ()
    stops: Sequence[_Personal] = ()
    forgotten: Sequence[_Personal] = ()
    enrolled: Sequence[_Personal] = ()
    cut: Sequence[_Personal] = ()

    def lines(self) -> Iterable[str]:
        """Each as a line for a person."""
        for one in self.holds:
            yield f"hold: {_identity(one)} in {one.realm or 'all realms'}, {_shown(one.detail)}"
        for one in self.ends:
            yield f"ended delegation: {one.row} of {_identity(one)}"
        for one in self.stops:
            yield f"stopped service: {one.instance}, {_shown(one.detail)}"
        for one in self.forgotten:
            yield f"forgotten host: {_shown(one.sub)}, {_shown(one.detail)}"
        for one in self.enrolled:
            yield f"enrolled host, which needs a new token: {_shown(one.sub)}, {_shown(one.detail)}"
        for one in self.cut:
            yield f"cut short in the ledger, not put back: {_identity(one)}, {_shown(one.detail)}"


def _entries(path: Path) -> Sequence[_Entry]:
    here = str(path) == "-"
    try:
        lines = (sys.stdin.buffer.read() if here else path.read_bytes()).splitlines()
        return [msgspec.json.decode(line, type=_Entry) for line in lines if line.strip()]
    except OSError as error:
        raise SettingsError(
            f"{path}: {error.strerror} (as {name_of(os.geteuid())}); or pipe it into --ledger -"
        ) from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        name = "standard input" if here else path
        raise SettingsError(f"{name}: not the output of `ledger search --json`: {error}") from error


def _require_all(entries: Sequence[_Entry], reached: Reached, marks: Mapping[str, int]) -> None:
    """Refuse a piece of the ledger in which something may be missing: it would stay forgotten."""
    for mark in MARKS:
        seen = [entry.mark[1] for entry in entries if entry.mark and entry.mark[0] == mark]
        here, there = reached.kept(mark), marks.get(mark, 0)
        if here < there and not (seen and min(seen) <= here + 1 and max(seen) >= there):
            found = f"{min(seen)} to {max(seen)}" if seen else "none"
            raise SettingsError(
                f"--ledger: of the {mark} it must have the numbers {here + 1} to {there}, and it "
                f"has {found}: search from an earlier time, and until now"
            )


def _lost(entries: Sequence[_Entry]) -> _Lost:
    """What is denied by the last word about each; a person who was erased is in none.

    Last is what has the highest number: two replicas may tell the ledger in another order.
    """
    numbered = [entry for entry in entries if entry.kind == "noted" and entry.mark]
    last: dict[tuple[str, ...], tuple[str, _Personal]] = {}
    for entry in sorted(numbered, key=lambda entry: entry.mark[1] if entry.mark else 0):
        told = entry.personal
        if told is not None:
            last[_about(entry.event, told)] = (entry.event, told)
    found: dict[str, list[_Personal]] = {event: [] for event in _LASTING}
    for event, told in last.values():
        if event in _LASTING:
            found["cut" if told.cut else event].append(told)
    return _Lost(*(found[event] for event in _LASTING))


_LASTING = (
    "hold_placed",
    "delegation_ended",
    "service_stopped",
    "host_forgotten",
    "host_enrolled",
    "cut",
)
"""The last words that count, as `_Lost` has them."""


def _about(event: str, told: _Personal) -> tuple[str, ...]:
    """What a note is about: a hold, not its person, who may be held by others, too."""
    subject, _, _ = event.partition("_")
    if subject == "hold" and told.row:
        return (subject, told.row)
    return (subject, told.iss, told.sub, told.realm, told.instance, told.row)


async def _put_back(lost: _Lost, stores: Stores, by: str, clock: Clock) -> str:
    """Do what was denied once more; how much of it was missing."""
    holds = ends = stops = hosts = 0
    for one in lost.holds:
        holds += await _hold(one, stores.holds, by, clock)
    for one in lost.ends:
        ends += bool(await stores.seals.end(Identity(one.iss, one.sub), UUID(one.row), clock.now()))
    for one in lost.stops:
        stops += await stores.stops.stop(one.instance, reason=one.detail, by=by, now=clock.now())
    for one in lost.forgotten:
        hosts += await stores.enrolments.forget(one.sub, by=by, now=clock.now())
    done = ((holds, "hold"), (ends, "delegation"), (stops, "service"), (hosts, "host"))
    return ", ".join(_many(number, what) for number, what in done)


async def _hold(one: _Personal, holds: HoldStore, by: str, clock: Clock) -> bool:
    """Put a hold back under its own id, its owner's again; False: nothing was missing."""
    hold = UUID(one.row) if one.row else uuid4()
    if await holds.known(hold):
        return False
    identity, owner = Identity(one.iss, one.sub), one.actor or by
    made = Hold(hold, identity, one.realm, owner, _reason(one), clock.now())
    _, order = await holds.place(made)
    return order is not None


def _reason(one: _Personal) -> str:
    """Why somebody is held, as they are told it: without our word for whose word it was."""
    if one.actor:
        return one.detail.removeprefix(f"by {one.actor}").removeprefix(": ")
    # Of an older version, which kept no owner apart.
    by, _, reason = one.detail.partition(": ")
    return reason if reason and by.startswith("by ") else one.detail


def _many(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _identity(one: _Personal) -> str:
    return _shown(str(Identity(one.iss, one.sub)))


def _shown(words: str) -> str:
    """What an issuer or somebody wrote must not steer the administrator's terminal."""
    return words if words.isprintable() else json.dumps(words)


def _say(line: str) -> None:
    print(line)  # noqa: T201 - the terminal's answer
