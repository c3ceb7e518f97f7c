"""Searching the ledger, on the signer's own host: the asking process cannot."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any

from cryptography.exceptions import InvalidTag
from sqlalchemy import Select, false, or_, select

from headgate.identity import Identity
from token_translator.signer import entries
from token_translator.signer.entries import ChainError, Entry
from token_translator.signer.ledger import PAGE, Ledger
from token_translator.signer.persons import Persons
from token_translator.signer.tables import LEDGER, REVOKED_SERIALS


@dataclass(frozen=True, slots=True)
class Sought:
    """What is looked for; all that is given must hold. `key` is a fingerprint, `row` a job's."""

    identity: Identity | None = None
    serial: int | None = None
    key: str = ""
    row: str = ""
    account: str = ""
    since: datetime | None = None
    until: datetime | None = None


def _refuse(seq: int) -> None:
    raise ChainError(f"entry {seq}: it is not what was written")


def search(
    ledger: Ledger,
    persons: Persons,
    sought: Sought,
    damaged: Callable[[int], None] = _refuse,
) -> Iterator[dict[str, Any]]:
    """Entries in order, `personal` and `by` opened where the keys are still there, else None.

    A serial finds its certificate and the revocations that concern it. `damaged` is told the
    number of each entry that is not what was written, and it is left out.

    Raises:
        ChainError: by `damaged`, unless said.
    """
    found = ledger.entries(wanted=_query(persons, sought))
    while page := list(islice(found, PAGE)):
        whole = []
        for entry in page:
            if _whole(entry):
                whole.append(entry)
            else:
                damaged(entry.seq)
        keys = ledger.keys({name for entry in whole for name in named(entry)})
        for entry in whole:
            try:
                document = opened(entry, keys)
            except (InvalidTag, ValueError):
                damaged(entry.seq)
                continue
            if _matches(document, sought):
                yield document


def _whole(entry: Entry) -> bool:
    """Whether the bytes are those that the chain has; and an entry at all."""
    content: object = entry.entry  # of SQLite any type, once somebody was at it
    if not isinstance(content, bytes) or entry.hash != entries.digest(content):
        return False
    try:
        return isinstance(json.loads(content), dict)
    except ValueError:
        return False


def opened(entry: Entry, keys: Mapping[str, bytes]) -> dict[str, Any]:
    """An entry's document with what is sealed in clear, as far as the keys are there."""
    document: dict[str, Any] = json.loads(entry.entry)
    key = keys.get(entry.person)
    clear = {**document, "personal": entries.personal(document, key) if key else None}
    if "by" in document:
        by_key = keys.get(document["by"]["person"])
        clear["by"] = entries.ordered_by(document, by_key) if by_key else None
    return clear


def named(entry: Entry) -> set[str]:
    """The persons an entry has something sealed for."""
    names = {entry.person}
    if b'"by":{' in entry.entry:
        names.add(json.loads(entry.entry)["by"]["person"])
    return names


def _query(persons: Persons, sought: Sought) -> Select[Any]:
    query = select(LEDGER)
    if sought.identity is not None:
        person = persons.find(sought.identity)
        query = query.where(LEDGER.c.person == person.person if person else false())
    if sought.serial is not None:
        revocations = select(REVOKED_SERIALS.c.seq).where(
            REVOKED_SERIALS.c.first <= sought.serial, REVOKED_SERIALS.c.last >= sought.serial
        )
        query = query.where(or_(LEDGER.c.serial == sought.serial, LEDGER.c.seq.in_(revocations)))
    if sought.since is not None:
        query = query.where(LEDGER.c.at >= int(sought.since.timestamp()))
    if sought.until is not None:
        query = query.where(LEDGER.c.at <= int(sought.until.timestamp()))
    return query


def _matches(document: Mapping[str, Any], sought: Sought) -> bool:
    personal = document["personal"] or {}
    if sought.account and personal.get("account") != sought.account:
        return False
    if sought.key and sought.key not in {
        personal.get("public_key"),
        document.get("key"),
        *document.get("keys", ()),
    }:
        return False
    return not sought.row or personal.get("row") == sought.row
