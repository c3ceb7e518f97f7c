"""Whether the database is the one this service wrote last, or an older one that was put back.

The signer's ledger, a database of its own, remembers how far this one was: `Note.mark`. Before it
is told a number, the number is written down here. So a database that has told less than the ledger
has heard is an older one, however far it was counted on since: it has lost holds, ended delegations
or stopped services, and would let in again who was kept out. Nothing is signed then, and the ledger
is told nothing, until an administrator has looked.
"""

from typing import Protocol
from uuid import uuid4

import structlog

from headgate.clock import Clock
from headgate.problems import Forbidden, Invalid, Problem, Unavailable
from token_translator import wire
from token_translator.notes import Mark, Note, NoteStore, Reached

log = structlog.get_logger(__name__)

LOOK_SECONDS = 1.0
MARKS: tuple[Mark, ...] = ("changes", "denials")
WENT_BACK = (
    "This service's database is older than what its ledger remembers: it was restored from a "
    "backup. Nothing is signed until an administrator has run `headgate-tokens reconcile`."
)


class Ledger(Protocol):
    """What the signer is told and asked; raises `Unavailable`."""

    async def marks(self) -> dict[str, int]:
        """The highest number of each mark."""

    async def note(
        self,
        subject: wire.Subject,
        event: str,
        *,
        detail: str = "",
        mark: tuple[str, int] | None = None,
    ) -> None:
        """Have something recorded."""


def behind(reached: Reached, marks: dict[str, int]) -> bool:
    """Whether the ledger has heard more than a database has told."""
    return any(reached.told(mark) < marks.get(mark, 0) for mark in MARKS)


class Continuity:
    """Compares the database with the ledger, and tells the ledger; `instance` is who we are."""

    def __init__(self, *, notes: NoteStore, ledger: Ledger, clock: Clock, instance: str) -> None:
        self._notes = notes
        self._ledger = ledger
        self._clock = clock
        self._instance = instance
        self._known = self._old = self._suspected = False

    async def require(self) -> None:
        """Return if this is the database we wrote last.

        Raises:
            Unavailable: `database_restored`: it is not. Or it or the signer is away.
        """
        if not self._known:
            await self.look()
        if self._old:
            raise Unavailable(WENT_BACK, code="database_restored", retry_after=60)

    async def ready(self) -> str:
        """A readiness check: whether nothing went back."""
        try:
            await self.require()
        except Unavailable as problem:
            return problem.detail
        return ""

    def suspect(self) -> None:
        """Something else has shown that it went back."""
        self._old = self._suspected = True

    async def look(self) -> Reached:
        """Compare; how far the database is. Raises `Unavailable`."""
        # In this order: what is noted in between is above what was remembered before.
        marks = await self._ledger.marks()
        reached = await self._reached()
        self._old = behind(reached, marks) or self._suspected or reached.went_back_at is not None
        if self._old and reached.went_back_at is None:
            found = {mark: reached.told(mark) for mark in MARKS}
            log.error("database_went_back", marks=marks, found=found)
            # Remembered there: what is added to an old database must not make it look new.
            await self._notes.went_back(self._clock.now())
        self._suspected, self._known = False, True
        return reached

    async def turn(self) -> None:
        """Compare, then tell the ledger what it has not been told; failures are logged."""
        try:
            await self.tell(await self.look())
        except Unavailable as problem:
            log.warning("ledger_told_later", why=problem.detail)

    async def tell(self, reached: Reached) -> None:
        """Have all recorded that waits, and how far the database is; raises `Unavailable`.

        Not by an old database: its numbers are those of something else in the ledger.
        """
        if self._old:
            return
        # In this order: what waits then is of the database that was looked at.
        more = any(reached.told(mark) != reached.number(mark) for mark in MARKS)
        if more and not await self._notes.will_tell(reached):
            return
        waiting = await self._notes.pending()
        for note in waiting:
            if note.number > reached.number(note.mark):
                continue  # counted since: the next time
            await self._record(note)
            await self._notes.done(note.id)
        if waiting:
            return
        marks = await self._ledger.marks()
        for mark in MARKS:
            # Counted before there were marks.
            if reached.number(mark) > marks.get(mark, 0):
                number, now = reached.number(mark), self._clock.now()
                await self._record(
                    Note(uuid4(), now, "reached", mark, number, instance=self._instance)
                )

    async def _record(self, note: Note) -> None:
        mark = (note.mark, note.number)
        try:
            await self._ledger.note(note.subject(), note.event, detail=note.detail, mark=mark)
        except (Forbidden, Invalid) as refusal:
            # Said again it would be refused again, and keep all others waiting.
            log.exception("note_refused", note=note.event, number=note.number, why=str(refusal))
        except Unavailable:
            raise
        except Problem as problem:
            raise Unavailable(problem.detail, retry_after=1) from problem

    async def _reached(self) -> Reached:
        try:
            return await self._notes.reached()
        except Unavailable:
            # It may come back as another one.
            self._known = False
            raise
