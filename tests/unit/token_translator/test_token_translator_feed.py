"""The feed's sending end: no gap between snapshot and changes, true heartbeats, slow ears."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Sequence
from typing import Any
from uuid import uuid4

import pytest

from headgate.changes import Change
from headgate.clock import HeldClock
from headgate.identity import Identity
from headgate.problems import TooMany, Unavailable
from headgate.sse import HEARTBEAT, Parser
from token_translator import changes
from token_translator.changes import (
    HEARTBEAT_SECONDS,
    KNOWN_SECONDS,
    LOOK_SECONDS,
    MAX_BEHIND,
    SETTLED_SECONDS,
    Feed,
)
from token_translator.holds import Hold

ISS = "https://iam.example.org/"


class Whole:
    """Whether the database went back, as something else finds out."""

    def __init__(self) -> None:
        self.old = False

    async def require(self) -> None:
        """Refuse what is known to be old."""
        if self.old:
            raise Unavailable("It went back.")

    def suspect(self) -> None:
        """It is old."""
        self.old = True


LEFT = "alice left (by the service x)"


class Source:
    """Holds in memory, as some other replica changes them."""

    def __init__(self, clock: HeldClock) -> None:
        self.clock = clock
        self.log: list[Change] = []
        self.held: dict[str, Hold] = {}
        self.forgotten = 0
        self.away = False
        self.asked = 0
        self.looked = asyncio.Event()
        self.slow: asyncio.Event | None = None

    def deny(self, sub: str) -> None:
        """A hold somewhere."""
        identity = Identity(ISS, sub)
        self.held[sub] = Hold(uuid4(), identity, "", "peer:x", f"{sub} left", self.clock.now())
        self._tell(sub, effective=False)

    def allow(self, sub: str) -> None:
        """It is lifted."""
        del self.held[sub]
        self._tell(sub, effective=True)

    def _tell(self, sub: str, *, effective: bool) -> None:
        version = self._head() + 1
        reason = "" if effective else f"{sub} left (by the service x)"
        self.log.append(Change(version, Identity(ISS, sub), "", effective, reason))

    def _head(self) -> int:
        return self.log[-1].version if self.log else 0

    async def head(self) -> int:
        """The newest version."""
        self.asked += 1
        self.looked.set()
        if self.away:
            raise Unavailable("The database does not answer.")
        seen = self._head()
        if self.slow is not None:
            await self.slow.wait()
        return seen

    async def changes(self, *, after: int, limit: int) -> Sequence[Change]:
        """Those that are kept."""
        kept = [change for change in self.log if change.version > max(after, self.forgotten)]
        return kept[:limit]

    async def everybody_held(self) -> tuple[int, Sequence[Hold]]:
        """All of them."""
        return self._head(), list(self.held.values())


class Ear:
    """One listener's end: events as documents, heartbeats as None."""

    def __init__(self, parts: AsyncIterator[bytes]) -> None:
        self.parts = parts

    async def next(self) -> Any:
        """The next event's document with its kind; None for a heartbeat."""
        part = await asyncio.wait_for(anext(self.parts), 5)
        if part == HEARTBEAT:
            return None
        [event] = Parser(max_line=10_000).feed(part)
        return {"event": event.kind, **json.loads(event.data)}

    async def versions(self, count: int) -> list[int]:
        """The versions of the next changes."""
        return [(await self.next())["version"] for _ in range(count)]

    async def over(self) -> bool:
        """Whether the stream ends, after what is left of it."""
        async with asyncio.timeout(5):
            async for _ in self.parts:
                pass
        return True


class Bench:
    """A feed at work."""

    def __init__(self) -> None:
        self.clock = HeldClock()
        self.source = Source(self.clock)
        self.whole = Whole()
        self.feed = Feed(source=self.source, clock=self.clock, whole=self.whole)

    async def turn(self, count: int = 1) -> None:
        """Let the feed look so many times."""
        for _ in range(count):
            self.source.looked.clear()
            self.clock.advance(LOOK_SECONDS)
            await asyncio.wait_for(self.source.looked.wait(), 5)
        await asyncio.sleep(0)

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[Ear]:
        """One listener."""
        async with self.feed.listening("gateway") as parts:
            yield Ear(parts)


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    """A feed that runs."""
    made = Bench()
    task = asyncio.create_task(made.feed.run())
    yield made
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def test_a_listener_hears_everything_from_the_snapshot_on(bench: Bench):
    """Who is held comes first, then each change, with versions that follow each other."""
    bench.source.deny("alice")
    bench.source.deny("bob")
    async with bench.listening() as ear:
        snapshot = await ear.next()
        assert (snapshot["event"], snapshot["version"]) == ("snapshot", 2)
        assert {held["sub"] for held in snapshot["held"]} == {"alice", "bob"}
        bench.source.allow("bob")
        bench.source.deny("carol")
        await bench.turn()
        assert await ear.next() == {
            "event": "change",
            "version": 3,
            "iss": ISS,
            "sub": "bob",
            "realm": "",
            "effective": True,
            "reason": "",
        }
        later = await ear.next()
        assert (later["sub"], later["effective"], later["reason"]) == (
            "carol",
            False,
            LEFT.replace("alice", "carol"),
        )


async def test_another_replicas_commit_is_told_within_half_a_second(bench: Bench):
    """One look is enough, and looks are close together."""
    assert LOOK_SECONDS <= 0.5
    async with bench.listening() as ear:
        await ear.next()
        bench.source.deny("alice")
        await bench.turn()
        assert await ear.versions(1) == [1]


async def test_our_own_commit_is_told_at_once(bench: Bench):
    """`look` after a commit does not wait for the next turn."""
    async with bench.listening() as ear:
        await ear.next()
        bench.source.deny("alice")
        await bench.feed.look()
        assert await ear.versions(1) == [1]


async def test_heartbeats_come_every_three_seconds(bench: Bench):
    """A comment, so that silence means something."""
    async with bench.listening() as ear:
        await ear.next()
        await bench.turn(int(2 * HEARTBEAT_SECONDS / LOOK_SECONDS))
        bench.source.deny("alice")
        await bench.turn()
        heartbeats = 0
        while await ear.next() is None:
            heartbeats += 1
        assert 2 <= heartbeats <= 3


async def test_no_heartbeat_while_the_database_is_away(bench: Bench):
    """What cannot see changes must not say that there are none; it goes on when it can."""
    async with bench.listening() as ear:
        await ear.next()
        bench.source.away = True
        await bench.turn(40)
        bench.source.away = False
        bench.source.deny("alice")
        await bench.turn()
        assert await ear.versions(1) == [1]
        bench.source.away = True
        with pytest.raises(Unavailable):
            async with bench.listening():
                pass


async def test_who_may_act_is_known_from_memory(bench: Bench):
    """A signature costs no question to the database while what is known is fresh."""
    bench.source.deny("alice")
    await bench.turn()
    asked = bench.source.asked
    alice, bob = Identity(ISS, "alice"), Identity(ISS, "bob")
    assert await bench.feed.denial(alice, "site1") == LEFT
    assert await bench.feed.denial(bob, "site1") is None
    assert bench.source.asked == asked


async def test_what_was_seen_too_long_ago_is_looked_up(bench: Bench):
    """Whoever was suspended elsewhere since the last look is not said to be free."""
    feed, alice = (
        Feed(source=bench.source, clock=bench.clock, whole=bench.whole),
        Identity(ISS, "alice"),
    )
    assert await feed.denial(alice, "site1") is None
    bench.source.deny("alice")
    bench.clock.advance(2 * KNOWN_SECONDS)
    assert await feed.denial(alice, "site1") == LEFT
    bench.source.away = True
    bench.clock.advance(2 * KNOWN_SECONDS)
    with pytest.raises(Unavailable):
        await feed.denial(alice, "site1")


async def test_a_look_that_began_before_a_commit_is_not_enough(bench: Bench):
    """Who asks for a look after a commit waits for one that begins after it."""
    bench.source.slow = asyncio.Event()
    early = asyncio.create_task(bench.feed.look())
    await asyncio.sleep(0)
    bench.source.deny("alice")
    late = [asyncio.create_task(bench.feed.look()) for _ in range(3)]
    await asyncio.sleep(0)
    bench.source.slow.set()
    asked = bench.source.asked
    await asyncio.gather(early, *late)
    assert await bench.feed.denial(Identity(ISS, "alice"), "site1") == LEFT
    assert bench.source.asked <= asked + 2


def test_the_times_leave_no_gap():
    """What is known is younger than what is waited for before live certificates are revoked."""
    assert LOOK_SECONDS < KNOWN_SECONDS < SETTLED_SECONDS - 0.1


async def test_a_listener_that_does_not_listen_is_cut_off(bench: Bench):
    """It takes bounded memory, and the others hear everything."""
    async with bench.listening() as deaf, bench.listening() as ear:
        await ear.next()
        for number in range(MAX_BEHIND + 5):
            bench.source.deny(f"user{number}")
            await bench.feed.look()
            assert await ear.versions(1) == [number + 1]
        assert await deaf.over()


async def test_changes_that_are_not_kept_make_everybody_begin_again(bench: Bench):
    """Where the next change is missing, only a snapshot is true."""
    async with bench.listening() as ear:
        await ear.next()
        bench.source.deny("alice")
        bench.source.deny("bob")
        bench.source.forgotten = 1
        await bench.turn()
        assert await ear.over()


async def test_a_database_that_went_back_frees_nobody(bench: Bench):
    """With fewer changes than there were, nobody is known to be free, and no listener is served."""
    for number in range(3):
        bench.source.deny(f"user{number}")
    async with bench.listening() as ear:
        await ear.next()
        del bench.source.log[1:]
        bench.source.held.clear()
        await bench.turn()
        assert bench.whole.old
        for sub in ("user2", "alice"):
            with pytest.raises(Unavailable):
                await bench.feed.denial(Identity(ISS, sub), "site1")
        with pytest.raises(Unavailable):
            async with bench.listening():
                pass
        for _ in range(2 * int(HEARTBEAT_SECONDS / LOOK_SECONDS)):
            bench.clock.advance(LOOK_SECONDS)
            await asyncio.sleep(0)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(ear.parts), 0.1)


async def test_a_closed_feed_sends_everybody_away(bench: Bench):
    """A service that stops ends its streams at once, and opens none."""
    async with bench.listening() as ear:
        bench.feed.close()
        assert await ear.over()
    with pytest.raises(TooMany):
        async with bench.listening():
            pass


async def test_listeners_are_limited(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    """One more than the limit is refused with a time to come back; a place that is left is free."""
    monkeypatch.setattr(changes, "MAX_LISTENERS", 1)
    async with bench.listening():
        with pytest.raises(TooMany):
            async with bench.listening():
                pass
    async with bench.listening() as ear:
        assert (await ear.next())["event"] == "snapshot"


async def test_a_long_absence_is_caught_up_in_parts(bench: Bench, monkeypatch: pytest.MonkeyPatch):
    """More changes than one look reads come all the same, in order."""
    monkeypatch.setattr(changes, "CHANGES_AT_ONCE", 3)
    async with bench.listening() as ear:
        await ear.next()
        for number in range(10):
            bench.source.deny(f"user{number}")
        await bench.turn()
        assert await ear.versions(10) == list(range(1, 11))
