"""What is revoked: written as entries of the ledger, and kept in tables of what still counts."""

from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Connection, delete, func, insert, select, update

from headgate.identity import Identity
from token_translator.signer.entries import Record
from token_translator.signer.ledger import DeclinedError, Writing
from token_translator.signer.persons import Persons
from token_translator.signer.tables import AUTHORITIES, LEDGER, REVOKED_KEYS, REVOKED_SERIALS
from token_translator.wire import Effect

Range = tuple[int, int]
KEPT_LONGER = timedelta(minutes=5)
"""A serial stays on the list that long after its certificate: clocks of nodes may be behind."""
MAX_KEYS = 100_000
"""Revoked keys never leave the list: so many take 4 MB. On the host twice as many may be."""
CHUNK = 500
SPANS = 500
"""Of serials in one entry: the copy must be able to take it."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be revoked; `keys` and `authority` are fingerprints.

    `active_too`: also an authority that signs or is trusted now. `here`: on the signer's host, by
    somebody who may fill the list further.
    """

    reason: str
    by: Identity
    serials: Sequence[int] = ()
    identity: Identity | None = None
    keys: Sequence[str] = ()
    authority: str = ""
    active_too: bool = False
    here: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """The version from which on the list holds it, and the unexpired serials it concerns."""

    version: int
    serials: tuple[int, ...]
    effect: Effect = "revoked"


@dataclass(frozen=True, slots=True)
class Now:
    """All that is revoked and has not expired: closed disjoint ranges, fingerprints, key lines."""

    version: int
    serials: tuple[Range, ...]
    keys: tuple[str, ...]
    authorities: tuple[str, ...]


def orderer(by: str) -> Identity:
    """Who `admin:<iss>#<sub>`, `peer:<instance>` or `local:<user>` is, as a person of the ledger.

    An administrator, or a certificate's `owner:<iss>#<sub>`, is the same person that their own
    certificates are of.
    """
    kind, _, name = by.partition(":")
    iss, hash_sign, sub = name.partition("#")
    named = kind in {"admin", "owner"} and hash_sign
    return Identity(iss, sub) if named else Identity("", by)


def revoke(writing: Writing, persons: Persons, wanted: Wanted) -> Outcome:
    """Revoke for good. Asked again for the same it changes nothing.

    Raises:
        DeclinedError: the authority is unknown, or in use; or there are too many keys.
    """
    writing.flush()
    connection, now = writing.connection, expired(writing.now)
    concerned = _concerned(connection, persons, wanted, now)
    # Those named may have expired since, or be of a lost range: still they were revoked.
    known = set(_revoked_among(connection, sorted({*concerned, *wanted.serials})))
    serials = [serial for serial in concerned if serial not in known]
    keys = _new_keys(connection, wanted.keys)
    if keys:
        _require_room(connection, len(keys), MAX_KEYS * (2 if wanted.here else 1))
    authority = _authority(connection, wanted) if wanted.authority else ""
    effect: Effect = "already" if known or wanted.keys or wanted.authority else "nothing"
    if serials or keys or authority:
        _write(writing, wanted, serials, keys, authority)
        effect = "revoked"
    return Outcome(version(connection), tuple(concerned), effect)


def apply(connection: Connection, seq: int, document: Mapping[str, Any]) -> None:
    """Keep what an entry says of revocations in the tables; `seq` is its number."""
    for first, last in document.get("serials", ()):
        _keep_serials(connection, seq, document, (first, last))
    for fingerprint in _new_keys(connection, document.get("keys", ())):
        connection.execute(insert(REVOKED_KEYS).values(fingerprint=fingerprint, seq=seq))
    if document.get("authority"):
        connection.execute(
            update(AUTHORITIES)
            .where(AUTHORITIES.c.fingerprint == document["authority"])
            .values(revoked=seq)
        )


def current(connection: Connection, now: datetime) -> Now:
    """All that is revoked now."""
    rows = connection.execute(
        select(REVOKED_SERIALS.c.first, REVOKED_SERIALS.c.last)
        .where(REVOKED_SERIALS.c.valid_before > expired(now))
        .order_by(REVOKED_SERIALS.c.first)
    )
    keys = connection.scalars(select(REVOKED_KEYS.c.fingerprint).order_by(REVOKED_KEYS.c.seq))
    authorities = connection.scalars(
        select(AUTHORITIES.c.line)
        .where(AUTHORITIES.c.revoked.is_not(None))
        .order_by(AUTHORITIES.c.revoked)
    )
    return Now(
        version(connection),
        merged((row.first, row.last) for row in rows),
        tuple(keys),
        tuple(authorities),
    )


def version(connection: Connection) -> int:
    """The number of the newest entry that revoked something; 0 before the first."""
    newest = (
        select(func.max(REVOKED_SERIALS.c.seq)).scalar_subquery(),
        select(func.max(REVOKED_KEYS.c.seq)).scalar_subquery(),
        select(func.max(AUTHORITIES.c.revoked)).scalar_subquery(),
    )
    return max(number or 0 for number in connection.execute(select(*newest)).one())


def forget_expired(connection: Connection, now: datetime) -> None:
    """Remove serials whose certificates have expired; not the newest, which gives the version."""
    connection.execute(
        delete(REVOKED_SERIALS).where(
            REVOKED_SERIALS.c.valid_before <= expired(now),
            REVOKED_SERIALS.c.seq < version(connection),
        )
    )


def expired(now: datetime) -> int:
    """Until when a certificate must have been valid to be of no use on any node."""
    return int((now - KEPT_LONGER).timestamp())


def within(ranges: Sequence[Range], serial: int) -> bool:
    """Whether one of these disjoint, ascending ranges holds a serial."""
    place = bisect_right(ranges, serial, key=lambda one: one[0])
    return place > 0 and serial <= ranges[place - 1][1]


def merged(ranges: Iterable[Range]) -> tuple[Range, ...]:
    """Closed ranges as few as can be; they come in the order of their beginnings."""
    joined: list[Range] = []
    for first, last in ranges:
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
        else:
            joined.append((first, last))
    return tuple(joined)


def live_of(person: str, now: int) -> ColumnElement[bool]:
    """The condition for a person's unexpired certificates in the ledger."""
    return (LEDGER.c.valid_before > now) & (LEDGER.c.person == person)


def unrevoked_of(connection: Connection, person: str, now: datetime) -> list[int]:
    """A person's unexpired serials that are not revoked."""
    seconds = int(now.timestamp())
    condition = live_of(person, seconds) & LEDGER.c.serial.is_not(None)
    serials = sorted(connection.scalars(select(LEDGER.c.serial).where(condition)))
    known = set(_revoked_among(connection, serials))
    return [serial for serial in serials if serial not in known]


def _concerned(connection: Connection, persons: Persons, wanted: Wanted, now: int) -> list[int]:
    """The unexpired serials that are meant; one that was never issued is none."""
    found: set[int] = set()
    for part in _chunks(wanted.serials):
        found.update(
            connection.scalars(
                select(LEDGER.c.serial).where(
                    LEDGER.c.serial.in_(part), LEDGER.c.valid_before > now
                )
            )
        )
    person = persons.find(wanted.identity) if wanted.identity is not None else None
    if person is not None:
        condition = live_of(person.person, now) & LEDGER.c.serial.is_not(None)
        found.update(connection.scalars(select(LEDGER.c.serial).where(condition)))
    return sorted(found)


def _revoked_among(connection: Connection, serials: Sequence[int]) -> Iterable[int]:
    if not serials:
        return
    ranges = connection.execute(
        select(REVOKED_SERIALS.c.first, REVOKED_SERIALS.c.last).where(
            REVOKED_SERIALS.c.last >= serials[0], REVOKED_SERIALS.c.first <= serials[-1]
        )
    ).all()
    covered = merged(sorted((row.first, row.last) for row in ranges))
    yield from (serial for serial in serials if within(covered, serial))


def _new_keys(connection: Connection, keys: Sequence[str]) -> list[str]:
    known = set(
        connection.scalars(
            select(REVOKED_KEYS.c.fingerprint).where(REVOKED_KEYS.c.fingerprint.in_(keys))
        )
    )
    return [key for key in dict.fromkeys(keys) if key not in known]


def _require_room(connection: Connection, more: int, most: int) -> None:
    there = connection.scalar(select(func.count()).select_from(REVOKED_KEYS)) or 0
    if there + more > most:
        raise DeclinedError(
            f"{there} keys are revoked already, and the list must stay one that nodes can fetch: "
            "on the signer's host headgate-signer revoke takes some more"
        )


def _authority(connection: Connection, wanted: Wanted) -> str:
    """The authority to revoke; empty if it is already."""
    found = connection.execute(
        select(AUTHORITIES).where(AUTHORITIES.c.fingerprint == wanted.authority)
    ).first()
    if found is None:
        raise DeclinedError("There never was an authority with this key.")
    if found.revoked is not None:
        return ""
    if found.state != "retired" and not wanted.active_too:
        raise DeclinedError(
            "This authority is in use: take it out of the signer's settings first, or revoke it "
            "on the signer's host, with --active."
        )
    return wanted.authority


def _write(
    writing: Writing, wanted: Wanted, serials: list[int], keys: list[str], authority: str
) -> None:
    personal: dict[str, Any] = {"reason": wanted.reason}
    if wanted.identity is not None:
        personal |= {"iss": wanted.identity.iss, "sub": wanted.identity.sub}
    spans = list(merged((serial, serial) for serial in serials))
    for start in range(0, max(1, len(spans)), SPANS):
        public = {
            "serials": spans[start : start + SPANS],
            "keys": keys if start == 0 else [],
            "authority": authority if start == 0 else "",
        }
        entry = writing.append(
            Record("revoked", wanted.identity or wanted.by, public, personal, by=wanted.by)
        )
        writing.flush()
        apply(writing.connection, entry.seq, {"kind": "revoked", **public})
    writing.revoked_keys.update(keys)


def _keep_serials(
    connection: Connection, seq: int, document: Mapping[str, Any], span: Range
) -> None:
    """Those of a range that are in the ledger, each as long as it lives; a lost range whole."""
    if document["kind"] == "restored":
        until = int(datetime.fromisoformat(document["valid_before"]).timestamp())
        rows = [(*span, until)]
    else:
        within = LEDGER.c.serial.between(*span) & (LEDGER.c.valid_before.is_not(None))
        found = connection.execute(select(LEDGER.c.serial, LEDGER.c.valid_before).where(within))
        expiries = {row.serial: row.valid_before for row in found}
        for serial in _revoked_among(connection, sorted(expiries)):
            del expiries[serial]
        rows = [(serial, serial, expiry) for serial, expiry in expiries.items()]
    names = ("first", "last", "valid_before")
    values = [{**dict(zip(names, row, strict=True)), "seq": seq} for row in rows]
    if values:
        connection.execute(insert(REVOKED_SERIALS), values)


def _chunks(serials: Collection[int]) -> Iterable[list[int]]:
    ordered = sorted(set(serials))
    for start in range(0, len(ordered), CHUNK):
        yield ordered[start : start + CHUNK]
