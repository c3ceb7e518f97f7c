"""Notes for the ledger, told whatever happens to the signer; and what shows an old database."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from uuid import uuid4

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from headgate.clock import HeldClock
from headgate.identity import Identity
from headgate.problems import Forbidden, TooMany, Unavailable
from token_translator import wire
from token_translator.continuity import Continuity
from token_translator.database import open_async_database, upgrade
from token_translator.hold_store import DatabaseHolds
from token_translator.holds import Hold
from token_translator.note_store import DatabaseNotes
from token_translator.notes import Note
from token_translator.stops import Stops

ALICE = Identity("https://iam.example/", "alice")


@dataclass(slots=True)
class Ledger:
    """What a signer would have been told, and the marks it keeps."""

    events: list[str] = field(default_factory=list)
    kept: dict[str, int] = field(default_factory=dict)
    failure: Exception | None = None
    refuses: str = ""
    hears_and_fails: bool = False

    async def marks(self) -> dict[str, int]:
        """Those of the notes so far."""
        if isinstance(self.failure, Unavailable):
            raise self.failure
        return dict(self.kept)

    async def note(
        self,
        subject: wire.Subject,
        event: str,
        *,
        detail: str = "",
        mark: tuple[str, int] | None = None,
    ) -> None:
        """Keep one."""
        assert len(detail) <= 255
        assert subject.profile == "denial"
        if self.failure is not None:
            raise self.failure
        if event == self.refuses:
            raise Forbidden("Not this one.")
        self.events.append(event)
        if mark is not None:
            self.kept[mark[0]] = max(mark[1], self.kept.get(mark[0], 0))
        if self.hears_and_fails:
            raise Unavailable("The answer is lost.")


@dataclass(slots=True)
class Bench:
    """A database, a ledger, and the process between them."""

    engine: AsyncEngine
    ledger: Ledger
    clock: HeldClock

    def process(self) -> Continuity:
        """One that has just started."""
        notes = DatabaseNotes(self.engine)
        return Continuity(notes=notes, ledger=self.ledger, clock=self.clock, instance="tokens")

    async def hold(self) -> None:
        """Somebody is held."""
        who = Identity(ALICE.iss, str(uuid4()))
        await DatabaseHolds(self.engine).place(
            Hold(uuid4(), who, "", "peer:x", "left " * 190, self.clock.now())
        )

    async def stop(self, instance: str) -> None:
        """A service is stopped."""
        now = self.clock.now()
        await Stops(self.engine).stop(instance, reason="r" * 1000, by="local:root", now=now)


@pytest.fixture
async def bench(empty_url: str) -> AsyncIterator[Bench]:
    """With migrated tables."""
    engine = open_async_database(empty_url)
    async with engine.begin() as connection:
        await connection.run_sync(upgrade, "seals")
    yield Bench(engine, Ledger(), HeldClock())
    await engine.dispose()


async def test_a_signer_that_was_away_hears_it_all(bench: Bench) -> None:
    """In order and once, also what another process wrote; marks are as high as the database."""
    process = bench.process()
    for failure in (Unavailable("Away."), TooMany("Too many.")):
        bench.ledger.failure = failure
        await bench.hold()
        await bench.stop(type(failure).__name__)
        await process.turn()
    bench.ledger.failure = None
    await bench.process().turn()
    await process.turn()
    held, stopped = ["hold_placed"] * 2, ["service_stopped"] * 2
    assert bench.ledger.events == held + stopped
    assert bench.ledger.kept == {"changes": 2, "denials": 2}
    await process.require()


async def test_a_note_that_is_refused_keeps_nobody_waiting(bench: Bench) -> None:
    """The others are told, and the mark of the last one."""
    bench.ledger.refuses = "hold_placed"
    await bench.hold()
    await bench.stop("gateway")
    await bench.process().turn()
    assert bench.ledger.events == ["service_stopped"]
    await bench.process().turn()
    assert bench.ledger.events == ["service_stopped", "reached"]
    assert bench.ledger.kept == {"changes": 1, "denials": 1}


@pytest.mark.parametrize("mark", ["changes", "denials"])
async def test_an_old_database_stays_one(bench: Bench, mark: str) -> None:
    """However much is added to it, and whichever process looks; what it had is remembered."""
    await bench.hold()
    await bench.process().turn()
    bench.ledger.kept[mark] = 3
    with pytest.raises(Unavailable, match="reconcile"):
        await bench.process().require()
    for number in range(5):
        await bench.hold()
        await bench.stop(f"service{number}")
    await bench.process().turn()
    with pytest.raises(Unavailable, match="reconcile"):
        await bench.process().require()
    reached = await DatabaseNotes(bench.engine).reached()
    assert (reached.kept("changes"), reached.kept("denials")) == (1, 0)
    assert (reached.changes, reached.denials) == (6, 5)


async def test_an_old_database_tells_nothing(bench: Bench) -> None:
    """What is denied in it waits: its numbers are those of something else in the ledger."""
    bench.ledger.kept = {"changes": 3}
    process = bench.process()
    for _ in range(3):
        await bench.hold()
        await process.turn()
    assert bench.ledger.events == []
    go_on = Note(uuid4(), bench.clock.now(), "restore_accepted", "denials", 0)
    await DatabaseNotes(bench.engine).go_on(go_on, marks=bench.ledger.kept)
    await process.turn()
    await process.turn()
    assert bench.ledger.events == ["hold_placed"] * 3 + ["restore_accepted", "reached"]
    await process.require()


@pytest.mark.parametrize("mark", ["changes", "denials"])
async def test_an_old_database_that_was_counted_on_before_anybody_looked(
    bench: Bench, mark: str
) -> None:
    """Not its numbers count but how far it had told, and that is written before it is told."""
    await bench.hold()
    await bench.process().turn()
    for number in range(4):
        await bench.hold()
        await bench.stop(f"service{number}")
    bench.ledger.kept[mark] = 3
    with pytest.raises(Unavailable, match="reconcile"):
        await bench.process().require()
    reached = await DatabaseNotes(bench.engine).reached()
    assert (reached.kept("changes"), reached.kept("denials")) == (1, 0)
    assert bench.ledger.events == ["hold_placed"]


async def test_a_process_that_ends_while_it_tells_leaves_a_whole_database(bench: Bench) -> None:
    """The ledger may have heard what is noted as told: it is told again, and nothing is old."""
    await bench.hold()
    bench.ledger.hears_and_fails = True
    await bench.process().turn()
    assert bench.ledger.kept == {"changes": 1}
    bench.ledger.hears_and_fails = False
    process = bench.process()
    await process.turn()
    await process.require()
    assert bench.ledger.events == ["hold_placed"] * 2


async def test_a_database_put_back_between_two_looks_is_not_marked_as_told(bench: Bench) -> None:
    """What one process saw is written down only into what it saw."""
    notes = DatabaseNotes(bench.engine)
    await bench.hold()
    seen = await notes.reached()
    assert not await notes.will_tell(replace(seen, changes=seen.changes + 1))
    assert await notes.will_tell(seen)
    assert not await notes.will_tell(seen)
    await bench.hold()
    seen = await notes.reached()
    await notes.went_back(bench.clock.now())
    assert not await notes.will_tell(seen)


async def test_what_another_eye_has_seen_is_remembered(bench: Bench) -> None:
    """The feed sees a database go back before the ledger's marks show it."""
    process = bench.process()
    await process.require()
    process.suspect()
    with pytest.raises(Unavailable):
        await process.require()
    await process.look()
    with pytest.raises(Unavailable, match="reconcile"):
        await bench.process().require()


async def test_nobody_knows_while_the_ledger_is_away_at_the_start(bench: Bench) -> None:
    """A process that never compared does not guess; one that did goes on without the signer."""
    process = bench.process()
    await process.require()
    bench.ledger.failure = Unavailable("Away.")
    bench.clock.advance(timedelta(minutes=5).total_seconds())
    await process.turn()
    await process.require()
    with pytest.raises(Unavailable, match="Away"):
        await bench.process().require()
