"""What the asking process has noted: an entry each, and the marks that tell it how far it was."""

from collections.abc import Mapping
from typing import Any

import msgspec
from sqlalchemy import Connection, insert, select, update

from token_translator import wire
from token_translator.signer.entries import ChainError, Record
from token_translator.signer.issuance import identity
from token_translator.signer.ledger import DeclinedError, Writing
from token_translator.signer.tables import MARKS

MAX_STEP = 2**32
"""A mark that jumps further would leave whoever wrote it last no room to go on."""


def note(request: wire.Note, more: int) -> Record:
    """The record of a note; `more` like it were not recorded before."""
    public: dict[str, Any] = {"profile": request.subject.profile[:32], "event": request.event}
    if more:
        public["suppressed"] = more
    if request.mark is not None:
        public["mark"] = request.mark
    personal = {**msgspec.to_builtins(request.subject), "detail": request.detail}
    return Record("noted", identity(request.subject), public, personal)


def write(writing: Writing, *, request: wire.Note, more: int) -> None:
    """Append a note, and keep its mark.

    Raises:
        DeclinedError: the mark jumps.
    """
    if request.mark is not None:
        known = marks(writing.connection)
        name, value = request.mark
        if value - known.get(name, 0) > MAX_STEP:
            raise DeclinedError("a mark that is too far above the last one")
    entry = writing.append(note(request, more))
    if request.mark is not None:
        apply(writing.connection, entry.seq, {"mark": request.mark})


def apply(connection: Connection, seq: int, document: Mapping[str, Any]) -> None:
    """Keep the mark of an entry; one that is lower than what is known changes nothing."""
    if document.get("mark") is None:
        return
    name, value = document["mark"]
    known = connection.scalar(select(MARKS.c.value).where(MARKS.c.name == name))
    if known is None:
        connection.execute(insert(MARKS).values(name=name, value=value, seq=seq))
    elif known < value:
        connection.execute(update(MARKS).where(MARKS.c.name == name).values(value=value, seq=seq))


def require_kept(connection: Connection, seq: int, document: Mapping[str, Any]) -> None:
    """Return if the mark of an entry, or a higher one, is in the table.

    Raises:
        ChainError: somebody lowered it.
    """
    if document.get("mark") is None:
        return
    name, value = document["mark"]
    if marks(connection).get(name, 0) < value:
        raise ChainError(f"entry {seq}: the mark {name} is lower than it says")


def marks(connection: Connection) -> dict[str, int]:
    """The highest number of each mark."""
    return {row.name: row.value for row in connection.execute(select(MARKS))}
