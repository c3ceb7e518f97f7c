"""An entry of the ledger: how it is written, chained, and opened again. Pure.

An entry is canonical JSON (keys sorted, no spaces): `{v, seq, prev, at, kind, serial, person, …,
personal}` and, where somebody ordered what it tells, `by`. `prev` is the SHA-256 of the previous
entry's bytes, 64 zeros for the first. `personal` is base64 of a 12-byte nonce and the AES-256-GCM
ciphertext of a JSON object under the person's key, with the rest of the entry as associated data:
erasing the key erases the person, and the chain still verifies. `by` is `{person, sealed}`, sealed
likewise under the key of who ordered it, with `{v, seq, prev, by}` as associated data.
"""

import base64
import hashlib
import json
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from headgate.clock import rfc3339
from headgate.identity import Identity
from token_translator.signer.persons import Person

VERSION = 1
GENESIS = "0" * 64
NONCE_BYTES = 12
MAX_ENTRY = 56_000
"""Bytes of one that somebody asks for: it must fit into a datagram to leave the host."""

CUT_BYTES = 48
"""Of each personal field of an entry that would be longer than that, in UTF-8."""

Kind = Literal[
    "issued", "refused", "noted", "revoked", "authority", "restored", "retained", "erased"
]


class ChainError(Exception):
    """The ledger is not what was written; the message names the first entry that shows it."""


@dataclass(frozen=True, slots=True)
class Record:
    """What is to be written: `public` in clear, `personal` under the person's key.

    `by`: who ordered it, if it was not the person. `valid_before`: of a certificate, Unix seconds.
    """

    kind: Kind
    identity: Identity
    public: Mapping[str, Any]
    personal: Mapping[str, Any]
    by: Identity | None = None
    valid_before: int | None = None


@dataclass(frozen=True, slots=True)
class Head:
    """The end of the ledger: the last entry's number and hash, and the highest serial."""

    seq: int = 0
    hash: str = GENESIS
    serial: int = 0


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry, as it is stored."""

    seq: int
    serial: int | None
    at: int
    person: str
    valid_before: int | None
    entry: bytes
    hash: str


def make(record: Record, persons: Mapping[Identity, Person], head: Head, *, now: datetime) -> Entry:
    """The entry that follows `head`; a certificate's takes the next serial.

    So does that of a restored ledger: whatever is issued later is above all that was lost.
    """
    seq = head.seq + 1
    serial = head.serial + 1 if record.kind in {"issued", "restored"} else None
    person = persons[record.identity]
    document: dict[str, Any] = {
        "v": VERSION,
        "seq": seq,
        "prev": head.hash,
        "at": rfc3339(now),
        "kind": record.kind,
        "serial": serial,
        "person": person.person,
        **record.public,
    }
    if record.by is not None:
        orderer = persons[record.by]
        named = {"iss": record.by.iss, "sub": record.by.sub}
        document["by"] = {
            "person": orderer.person,
            "sealed": _seal(orderer.key, named, _context(document, orderer.person)),
        }
    personal = _seal(person.key, record.personal, document)
    body = canonical({**document, "personal": personal})
    return Entry(
        seq=seq,
        serial=serial,
        at=int(now.timestamp()),
        person=person.person,
        valid_before=record.valid_before,
        entry=body,
        hash=digest(body),
    )


def cut(record: Record) -> Record:
    """A record with no more than the beginning of each of its personal fields; lists are left out.

    Whatever somebody asked for, an entry of it fits.
    """
    kept = {
        name: value.encode()[:CUT_BYTES].decode(errors="ignore")
        for name, value in record.personal.items()
        if isinstance(value, str)
    }
    return replace(record, personal={**kept, "cut": True})


def personal(document: Mapping[str, Any], key: bytes) -> dict[str, Any]:
    """An entry's personal fields, opened with the person's key; raises `ChainError`."""
    rest = {name: value for name, value in document.items() if name != "personal"}
    return _unseal(key, document["personal"], rest, document)


def ordered_by(document: Mapping[str, Any], key: bytes) -> dict[str, Any]:
    """Who ordered what an entry tells, opened with their key; raises `ChainError`."""
    by = document["by"]
    return _unseal(key, by["sealed"], _context(document, by["person"]), document)


def digest(entry: bytes) -> str:
    """An entry's hash: the hex SHA-256 of its bytes."""
    return hashlib.sha256(entry).hexdigest()


def canonical(document: Mapping[str, Any]) -> bytes:
    """JSON with sorted keys and no spaces, in ASCII."""
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


def walk(entries: Iterable[Entry]) -> Head:
    """The end of a chain whose every entry follows the one before.

    It begins with the first entry ever, or not behind what a later `retained` entry says was
    removed. Numbers are dense but for the gap that a `restored` entry names.

    Raises:
        ChainError: an entry was changed, left out or put in.
    """
    head: Head | None = None
    beginning, removed = (0, GENESIS), (0, GENESIS)
    for entry in entries:
        document = _checked(entry)
        before = follows(document)
        if head is None:
            beginning = before
            head = Head(*before)
        if before != (head.seq, head.hash):
            raise ChainError(f"entry {entry.seq}: it does not follow entry {head.seq}")
        if document["kind"] == "retained":
            removed = (document["through"], document["hash"])
        head = Head(entry.seq, entry.hash, max(head.serial, entry.serial or 0))
    # Removing goes on from the front: it may have been stopped before it came to its end.
    if beginning[0] >= removed[0] and beginning != removed:
        raise ChainError(f"entry {beginning[0] + 1}: what was before it is missing")
    return head or Head()


def _checked(entry: Entry) -> dict[str, Any]:
    if entry.hash != digest(entry.entry):
        raise ChainError(f"entry {entry.seq}: its hash is another")
    document: dict[str, Any] = json.loads(entry.entry)
    columns = (entry.seq, entry.serial, entry.person)
    if columns != tuple(document.get(name) for name in ("seq", "serial", "person")):
        raise ChainError(f"entry {entry.seq}: its columns are not what it says")
    if entry.at != int(datetime.fromisoformat(document["at"]).timestamp()):
        raise ChainError(f"entry {entry.seq}: it was not written when its column says")
    if entry.valid_before != expiry(document):
        raise ChainError(f"entry {entry.seq}: it does not expire when its column says")
    return document


def expiry(document: Mapping[str, Any]) -> int | None:
    """When an entry's certificate expires, in Unix seconds; None if it tells of none."""
    if document["serial"] is None:
        return None
    return int(datetime.fromisoformat(document["valid_before"]).timestamp())


def follows(document: Mapping[str, Any]) -> tuple[int, str]:
    """The number and hash of what an entry says it follows."""
    before = document["after"] if document["kind"] == "restored" else document["seq"] - 1
    return before, document["prev"]


def _context(document: Mapping[str, Any], person: str) -> dict[str, Any]:
    return {**{name: document[name] for name in ("v", "seq", "prev")}, "by": person}


def _seal(key: bytes, clear: Mapping[str, Any], context: Mapping[str, Any]) -> str:
    nonce = secrets.token_bytes(NONCE_BYTES)
    sealed = AESGCM(key).encrypt(nonce, canonical(clear), canonical(context))
    return base64.b64encode(nonce + sealed).decode()


def _unseal(
    key: bytes, text: str, context: Mapping[str, Any], document: Mapping[str, Any]
) -> dict[str, Any]:
    sealed = base64.b64decode(text)
    try:
        clear = AESGCM(key).decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], canonical(context))
    except InvalidTag as error:
        raise ChainError(f"entry {document['seq']}: its personal fields do not open") from error
    opened: dict[str, Any] = json.loads(clear)
    return opened
