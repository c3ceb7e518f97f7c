"""Notes for the ledger in the database: an outbox, and the numbers that only grow."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Row, and_, delete, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from token_translator.database import READ_ONLY, answering
from token_translator.notes import Note, Reached
from token_translator.tables import CHANGE_HEAD, DENIAL_HEAD, HOST_ENROLMENTS, NOTES

AT_ONCE = 100
MARGIN = 1000
"""Numbers of a database that went on behind a loss are that far above all that were seen."""


async def write(connection: AsyncConnection, note: Note) -> None:
    """Write a note down within somebody's transaction."""
    row = {**asdict(note), "at": int(note.at.timestamp())}
    await connection.execute(insert(NOTES).values(row))


async def count(connection: AsyncConnection) -> int:
    """The number of a denial that is no hold; until we commit nobody else gets one."""
    more = update(DENIAL_HEAD).values(number=DENIAL_HEAD.c.number + 1)
    counted = await connection.execute(more.returning(DENIAL_HEAD.c.number))
    return int(counted.scalar_one())


class DatabaseNotes:
    """`NoteStore` on a database."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        self._reader = engine.execution_options(**READ_ONLY)

    async def pending(self) -> Sequence[Note]:
        """The oldest that the signer has still to be told; raises `Unavailable`."""
        wanted = select(NOTES).order_by(NOTES.c.mark, NOTES.c.number).limit(AT_ONCE)
        async with answering(), self._reader.connect() as connection:
            return [_note(row) for row in await connection.execute(wanted)]

    async def done(self, note: UUID) -> None:
        """Forget one; raises `Unavailable`."""
        async with answering(), self._engine.begin() as connection:
            await connection.execute(delete(NOTES).where(NOTES.c.id == note))

    async def reached(self) -> Reached:
        """How far the database is; raises `Unavailable`."""
        version = select(CHANGE_HEAD.c.version).scalar_subquery().label("version")
        wanted = select(version, DENIAL_HEAD)
        async with answering(), self._reader.connect() as connection:
            row = (await connection.execute(wanted)).one()
        since = row.went_back_at
        return Reached(
            row.version,
            row.number,
            row.told_changes,
            row.told_denials,
            None if since is None else datetime.fromtimestamp(since, UTC),
            row.old_changes or 0,
            row.old_denials or 0,
        )

    async def will_tell(self, reached: Reached) -> bool:
        """Write down that the ledger is told up to there; False: it is not the same any more.

        Another replica was faster, or this is another database than the one that was looked at.

        Raises:
            Unavailable: the database is away.
        """
        head = DENIAL_HEAD.c
        version = select(CHANGE_HEAD.c.version).scalar_subquery()
        same = and_(
            head.told_changes == reached.told_changes,
            head.told_denials == reached.told_denials,
            head.number >= reached.denials,
            version >= reached.changes,
            head.went_back_at.is_(None),
        )
        told = {"told_changes": reached.changes, "told_denials": reached.denials}
        async with answering(), self._engine.begin() as connection:
            done = await connection.execute(update(DENIAL_HEAD).where(same).values(told))
        return done.rowcount > 0

    async def went_back(self, at: datetime) -> None:
        """Remember that it is an older one, until `go_on`; raises `Unavailable`."""
        unknown = DENIAL_HEAD.c.went_back_at.is_(None)
        found = {
            "went_back_at": int(at.timestamp()),
            "old_changes": DENIAL_HEAD.c.told_changes,
            "old_denials": DENIAL_HEAD.c.told_denials,
        }
        async with answering(), self._engine.begin() as connection:
            await connection.execute(update(DENIAL_HEAD).where(unknown).values(found))

    async def go_on(self, note: Note, *, marks: Mapping[str, int]) -> None:
        """Count on above these marks, the database being what there is from now on.

        Open tokens to enrol a host are gone: some of them may have been used since.

        Raises:
            Unavailable: the database is away.
        """
        async with answering(), self._engine.begin() as connection:
            # In this order, as whoever places a hold: see `hold_store`.
            version = int(await connection.scalar(_LOCKED_CHANGES) or 0)
            number = int(await connection.scalar(_LOCKED_DENIALS) or 0)
            version = max(version, marks.get("changes", 0)) + MARGIN
            number = max(number, marks.get("denials", 0)) + MARGIN
            await connection.execute(update(CHANGE_HEAD).values(version=version))
            told = {"number": number, "told_denials": number, "told_changes": version}
            whole = {"went_back_at": None, "old_changes": None, "old_denials": None}
            await connection.execute(update(DENIAL_HEAD).values(told | whole))
            await connection.execute(delete(HOST_ENROLMENTS))
            await write(connection, replace(note, number=number))


_LOCKED_CHANGES = select(CHANGE_HEAD.c.version).with_for_update()
_LOCKED_DENIALS = select(DENIAL_HEAD.c.number).with_for_update()


def _note(row: Row[Any]) -> Note:
    return Note(**{**row._asdict(), "at": datetime.fromtimestamp(row.at, UTC)})
