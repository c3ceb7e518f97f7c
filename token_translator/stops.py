"""The switch that stops one service at once: nothing more is sealed or signed for it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import uuid4

from sqlalchemy import delete, insert, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from headgate.problems import Forbidden
from token_translator import note_store, notes
from token_translator.database import READ_ONLY, answering
from token_translator.notes import Note
from token_translator.tables import STOPS


@dataclass(frozen=True, slots=True)
class Stop:
    """A service that is stopped: why, by whom (`admin:<iss>#<sub>`, `local:<user>`), since when."""

    instance: str
    reason: str
    by: str
    since: datetime


class Stops:
    """Kept in the database, so that every replica and every restart knows them."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        self._reader = engine.execution_options(**READ_ONLY)

    async def require_running(self, instance: str) -> None:
        """Return if a service is not stopped.

        Raises:
            Forbidden: `service_stopped`. Unavailable: the database is away.
        """
        wanted = select(STOPS.c.reason).where(STOPS.c.instance == instance)
        async with answering(), self._reader.connect() as connection:
            reason = await connection.scalar(wanted)
        if reason is not None:
            raise Forbidden(f"This service is stopped here: {reason}", code="service_stopped")

    async def stop(self, instance: str, *, reason: str, by: str, now: datetime) -> bool:
        """Stop a service from now on; False if it was already."""
        row = {
            "instance": instance,
            "reason": reason,
            "by": by,
            "since": int(now.timestamp()),
        }
        told = notes.detail(by, reason)
        try:
            async with answering(), self._engine.begin() as connection:
                await connection.execute(insert(STOPS), row)
                await _note(connection, "service_stopped", instance, told, now)
        except IntegrityError:
            return False
        return True

    async def start(self, instance: str, *, by: str, now: datetime) -> bool:
        """Let it go on; False if it was not stopped."""
        async with answering(), self._engine.begin() as connection:
            done = await connection.execute(delete(STOPS).where(STOPS.c.instance == instance))
            if done.rowcount:
                await _note(connection, "service_started", instance, notes.detail(by), now)
        return done.rowcount > 0

    async def instances(self) -> frozenset[str]:
        """The services that are stopped; raises `Unavailable`."""
        async with answering(), self._reader.connect() as connection:
            return frozenset(await connection.scalars(select(STOPS.c.instance)))

    async def all(self) -> Sequence[Stop]:
        """Every service that is stopped."""
        async with self._reader.connect() as connection:
            rows = await connection.execute(select(STOPS).order_by(STOPS.c.instance))
            return [
                Stop(row.instance, row.reason, row.by, datetime.fromtimestamp(row.since, UTC))
                for row in rows
            ]


async def _note(
    connection: AsyncConnection, event: str, instance: str, detail: str, now: datetime
) -> None:
    number = await note_store.count(connection)
    note = Note(uuid4(), now, event, "denials", number, instance=instance, detail=detail)
    await note_store.write(connection, note)
