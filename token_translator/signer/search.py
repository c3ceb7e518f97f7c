"""Searching the ledger, on the signer's own host: the asking process cannot."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any

from sqlalchemy import Select, false, or_, select

from headgate.identity import Identity
from token_translator.signer import entries
from token_translator.signer.entries import Entry
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
    since: datetime | None = None
    until: datetime | None = None


def search(ledger: Ledger, persons: Persons, sought: Sought) -> Iterator[dict[str, Any]]:
    """Entries in order, `personal` and `by` opened where the keys are still there, else None.

    A serial finds its certificate and the revocations that concern it.
    """
    found = ledger.entries(wanted=_query(persons, sought))
    while page := list(islice(found, PAGE)):
        keys = ledger.keys({name for entry in page for name in named(entry)})
        for entry in page:
            document = opened(entry, keys)
            if _matches(document, sought):
                yield document


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
    if sought.key and sought.key not in {
        personal.get("public_key"),
        document.get("key"),
        *document.get("keys", ()),
    }:
        return False
    return not sought.row or personal.get("row") == sought.row
