"""What an administrator does on the signer's host: each command's work, and what it prints."""

import json
import os
import pwd
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import select

from headgate.clock import rfc3339
from headgate.identity import Identity
from headgate.settings import SettingsError
from token_translator.signer import authorities, copied, kept, restore, retention, revocations
from token_translator.signer.copied import Copied
from token_translator.signer.entries import ChainError
from token_translator.signer.ledger import DeclinedError, Ledger
from token_translator.signer.persons import Persons
from token_translator.signer.search import Sought, search
from token_translator.signer.tables import LEDGER

UNSET = 2**32 - 1
"""What /proc/self/loginuid says of a process that nobody's login started."""

NOTHING = "nothing to revoke: no unexpired certificate has such a serial, or is this user's"


def verify(ledger: Ledger, copy: Path | None, now: datetime) -> tuple[int, dict[str, Any]]:
    """Walk the chain, hold a copy and the lists against it; the exit status, and what was found."""
    try:
        head, parts = ledger.verify(), kept.Authorities()
        for entry in ledger.entries():
            parts.see(entry)
            if kept.concerns(entry):
                with ledger.reading() as connection:
                    kept.require(connection, entry, now)
        with ledger.reading() as connection:
            parts.require(connection, now)
        held = Copied() if copy is None else read_copy(copy)
        same = restore.compare(ledger, held)
    except ChainError as error:
        return 1, {"intact": False, "broken": str(error)}
    found = {"intact": True, "entries_until": head.seq, "serial": head.serial, "hash": head.hash}
    if copy is not None:
        found |= {"same_in_copy": same, "strange_in_copy": held.strange}
    return 0, found


def find(
    ledger: Ledger, persons: Persons, sought: Sought, damaged: Callable[[int], None]
) -> Iterator[dict[str, Any]]:
    """The entries that are sought; `damaged` is told of those that cannot be read."""
    return search(ledger, persons, sought, damaged)


def line(document: Mapping[str, Any]) -> str:
    """An entry as one line for a person: when, what, for whom, and the rest as it is."""
    personal = document["personal"]
    who = "(erased)" if personal is None else personal.get("sub") or personal.get("by") or "-"
    number = "-" if document["serial"] is None else str(document["serial"])
    seen = {"at", "kind", "serial", "personal", "prev", "v", "person", "sub"}
    rest = {**document, **(personal or {})}
    words = (f"{name}={_word(value)}" for name, value in rest.items() if name not in seen and value)
    return f"{document['at']} {document['kind']} {number} {who} {' '.join(words)}"


def erase(
    ledger: Ledger, persons: Persons, identity: Identity, now: datetime
) -> tuple[int, dict[str, Any]]:
    """Delete a person's key; status 1 if there is nobody, or certificates are not revoked."""
    try:
        erased = retention.erase(ledger, persons, identity, by=whoever_is_here(), now=now)
    except DeclinedError as error:
        return 1, {"erased": False, "why": str(error)}
    return (0, {"erased": True}) if erased else (1, {"erased": False, "why": "not in the ledger"})


def retain(
    ledger: Ledger, persons: Persons, *, days: int, sent: int | None, now: datetime
) -> dict[str, Any]:
    """Delete what is older than so many days."""
    before = now - timedelta(days=days)
    gone = retention.retain(
        ledger, persons, before=before, sent=sent, by=whoever_is_here(), now=now
    )
    return {
        "before": rfc3339(gone.before),
        "entries": gone.entries,
        "persons": gone.persons,
        "through": gone.through,
    }


def revoke(
    ledger: Ledger, persons: Persons, wanted: revocations.Wanted, now: datetime
) -> tuple[int, dict[str, Any]]:
    """Revoke; status 1 if it cannot be, or there is nothing to be."""
    try:
        with ledger.writing(now) as writing:
            outcome = revocations.revoke(writing, persons, wanted)
    except DeclinedError as error:
        return 1, {"revoked": False, "why": str(error)}
    if outcome.effect == "nothing":
        return 1, {"revoked": False, "why": NOTHING}
    note = {"note": "was revoked already"} if outcome.effect == "already" else {}
    return 0, {"revoked": True, **note, "version": outcome.version, "serials": outcome.serials}


def reconcile(
    ledger: Ledger, persons: Persons, lost: restore.Lost, now: datetime
) -> dict[str, Any]:
    """Make a restored ledger one that can be signed with."""
    done = restore.reconcile(ledger, persons, lost, by=whoever_is_here(), now=now)
    again = (
        f"keys, also of authorities, that were revoked after entry {done.after} have to be revoked "
        "again: nodes that have them on their list keep them until they fetch the next one"
    )
    return {
        "put_back": done.put_back,
        "lost": done.lost,
        "revoked": done.revoked,
        **({"strange_in_copy": done.strange} if done.strange else {}),
        **({"again": again} if done.after is not None else {}),
        "serials_above": done.head.serial,
        "entries_until": done.head.seq,
    }


def list_authorities(ledger: Ledger, now: datetime) -> list[dict[str, Any]]:
    """Every authority there ever was, and how many unexpired certificates are signed by it."""
    live: dict[str, list[int]] = {}
    unexpired = select(LEDGER).where(LEDGER.c.valid_before > int(now.timestamp()))
    for entry in ledger.entries(wanted=unexpired):
        ca = json.loads(entry.entry).get("ca")
        if ca is not None and entry.valid_before is not None:
            live.setdefault(ca, []).append(entry.valid_before)
    with ledger.reading() as connection:
        rows = authorities.lines(connection)
    return [
        {
            "role": row.role,
            "state": "revoked" if row.revoked is not None else row.state,
            "fingerprint": row.fingerprint,
            "live_certificates": len(live.get(row.fingerprint, ())),
            "last_expires": _latest(live.get(row.fingerprint, ())),
            "line": row.line,
        }
        for row in rows
    ]


def read_copy(path: Path) -> Copied:
    """The entries in a file that a syslog server kept.

    Raises:
        SettingsError: it cannot be read.
    """
    try:
        with path.open("rb") as file:
            return copied.read(file)
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror}") from error


def whoever_is_here() -> Identity:
    """The unix user whose login this process comes from, else whose it is, as `local:<name>`."""
    try:
        uid = int(Path("/proc/self/loginuid").read_text(encoding="ascii"))
    except (OSError, ValueError):
        uid = UNSET
    uid = os.getuid() if uid == UNSET else uid
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:
        name = str(uid)
    return revocations.orderer(f"local:{name}")


def moment(text: str) -> datetime:
    """A moment of the command line: RFC 3339, or a date (its midnight in UTC).

    Raises:
        ValueError: it is none.
    """
    found = datetime.fromisoformat(text)
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def _latest(expiries: Sequence[int]) -> str | None:
    return rfc3339(datetime.fromtimestamp(max(expiries), UTC)) if expiries else None


def _word(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
