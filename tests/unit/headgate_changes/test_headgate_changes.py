"""Following the change feed over a real socket: denials, silence, lost connections, a liar."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
import structlog
from aiohttp import web
from aiohttp.test_utils import TestServer

from headgate.changes import LAST_PAUSE, SILENT_SECONDS, Change, ChangeFeed, Stale
from headgate.clock import HeldClock
from headgate.identity import Identity
from headgate.sse import HEARTBEAT, Event

ISS = "https://iam.example.org/"
ALICE, BOB = Identity(ISS, "alice"), Identity(ISS, "bob")


def held(sub: str, realm: str = "", reason: str = "stolen laptop") -> dict[str, str]:
    """One entry of a snapshot."""
    return {"iss": ISS, "sub": sub, "realm": realm, "reason": reason}


def snapshot(version: int, *entries: dict[str, str]) -> bytes:
    """The first event."""
    return Event("snapshot", json.dumps({"version": version, "held": entries}).encode()).encode()


def change(version: int, sub: str, *, effective: bool = False, realm: str = "") -> bytes:
    """A later event."""
    document = {"version": version, **held(sub, realm), "effective": effective, "later": 1}
    return Event("change", json.dumps(document).encode(), str(version)).encode()


class Translator:
    """Serves what the test says, to one connection after the other; None ends a connection."""

    def __init__(self) -> None:
        self.connections = 0
        self.status = 200
        self.peers: list[str] = []
        self.says: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.connected = asyncio.Event()

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """GET /v1/changes."""
        self.connections += 1
        self.connected.set()
        self.peers.append(request.headers.get("Headgate-Peer", ""))
        if self.status != 200:
            return web.Response(status=self.status, text="no right to changes.read")
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        while (said := await self.says.get()) is not None:
            await response.write(said)
        return response


class World:
    """A feed that follows a translator, and what it told a subscriber."""

    def __init__(self, translator: Translator, feed: ChangeFeed, clock: HeldClock) -> None:
        self.translator = translator
        self.feed = feed
        self.clock = clock
        self.heard: asyncio.Queue[Change | Stale] = asyncio.Queue()
        feed.subscribe(self.heard.put_nowait)

    def say(self, *parts: bytes | None) -> None:
        """Send these, in order."""
        for part in parts:
            self.translator.says.put_nowait(part)

    async def told(self) -> Change | Stale:
        """The next thing a subscriber hears."""
        return await asyncio.wait_for(self.heard.get(), 5)

    async def denied(self) -> str:
        """The subject of the next denial."""
        told = await self.told()
        assert isinstance(told, Change)
        return told.identity.sub

    async def current(self) -> None:
        """Wait until the feed knows something."""
        await asyncio.wait_for(self.feed.until_current(), 5)

    async def again(self) -> None:
        """Wait for the next connection; the pauses between them pass."""
        before = self.translator.connections
        async with asyncio.timeout(5):
            while self.translator.connections == before:
                self.clock.advance(LAST_PAUSE / 8)
                await asyncio.sleep(0)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    """A feed that follows."""
    translator = Translator()
    app = web.Application()
    app.router.add_get("/v1/changes", translator.serve)
    async with TestServer(app) as server, aiohttp.ClientSession() as session:
        clock = HeldClock()
        feed = ChangeFeed(
            url=str(server.make_url("/")),
            session=session,
            headers=lambda url: {"Headgate-Peer": f"for {url}"},
            clock=clock,
        )
        task = asyncio.create_task(feed.follow())
        made = World(translator, feed, clock)
        await translator.connected.wait()
        yield made
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        made.say(None)


async def test_nothing_is_known_before_the_snapshot(world: World):
    """A feed is not current until it has heard everything once; a heartbeat is not enough."""
    assert not world.feed.current()
    world.say(HEARTBEAT)
    assert await world.feed.ready()
    world.say(snapshot(0))
    await world.current()
    assert await world.feed.ready() == ""
    assert world.translator.peers[0].startswith("for http://")


async def test_denials_of_the_snapshot_and_later(world: World):
    """Who is held already and who is held later are told of, and known with the reason."""
    world.say(snapshot(3, held("alice")), change(4, "bob", realm="site1"))
    assert await world.denied() == "alice"
    assert await world.told() == Change(4, BOB, "site1", effective=False, reason="stolen laptop")
    assert world.feed.denial(ALICE, "anywhere") == "stolen laptop"
    assert world.feed.denial(BOB, "site1") == "stolen laptop"
    assert world.feed.denial(BOB, "site2") is None


async def test_a_hold_that_is_lifted_denies_no_more(world: World):
    """After the change that says so, the identity may act again."""
    world.say(snapshot(1, held("alice")), change(2, "alice", effective=True), change(3, "bob"))
    assert [await world.denied(), await world.denied()] == ["alice", "bob"]
    assert world.feed.denial(ALICE, "site1") is None


async def test_a_reason_may_be_empty(world: World):
    """A hold without words is a hold."""
    world.say(snapshot(1, held("alice", reason="")))
    await world.denied()
    assert world.feed.denial(ALICE, "site1") == ""


async def test_silence_is_told_once_and_ends_with_a_snapshot(world: World):
    """Ten seconds without a word: stale, said once; heartbeats hold that off."""
    world.say(snapshot(0))
    await world.current()
    world.clock.advance(SILENT_SECONDS - 1)
    world.say(HEARTBEAT, change(1, "bob"))
    await world.denied()
    world.clock.advance(SILENT_SECONDS - 1)
    assert world.feed.current()
    world.clock.advance(1)
    assert not world.feed.current()
    assert await world.told() == Stale()
    world.say(None)
    await world.again()
    world.say(snapshot(1, held("bob"), held("alice")))
    await world.current()
    assert await world.denied() == "alice"
    assert world.heard.empty()


async def test_a_lost_connection_is_made_again_and_what_was_missed_is_told(world: World):
    """The next snapshot brings the denials of the time between; nobody is told twice."""
    world.say(snapshot(1, held("bob")), None)
    assert await world.denied() == "bob"
    await world.again()
    world.say(snapshot(2, held("alice"), held("bob")))
    assert await world.denied() == "alice"
    assert world.heard.empty()


async def test_a_gap_between_versions_means_a_new_snapshot(world: World):
    """A change that does not follow the last one is not believed; all is asked for again."""
    world.say(snapshot(1), change(3, "alice"), None)
    await world.again()
    world.say(snapshot(3, held("alice")))
    assert await world.told() == Change(3, ALICE, "", effective=False, reason="stolen laptop")


async def test_a_feed_that_goes_back_frees_nobody(world: World):
    """An older snapshot is not believed: holds stay, all is unknown, until a newer one comes."""
    world.say(snapshot(5, held("alice")), None)
    assert await world.denied() == "alice"
    await world.again()
    with structlog.testing.capture_logs() as logged:
        world.say(snapshot(3))
        await world.again()
    assert {"event": "change_feed_went_back", "known": 5, "now": 3, "log_level": "error"} in logged
    assert world.feed.denial(ALICE, "site1") == "stolen laptop"
    world.clock.advance(SILENT_SECONDS)
    assert not world.feed.current()
    world.say(snapshot(6))
    await world.current()
    assert world.feed.denial(ALICE, "site1") is None


async def test_a_change_said_twice_counts_once(world: World):
    """What the snapshot had already is not applied again."""
    world.say(snapshot(2), change(2, "alice"), change(3, "bob"))
    assert await world.denied() == "bob"
    assert world.feed.denial(ALICE, "site1") is None


@pytest.mark.parametrize("lie", [b"event: snapshot\ndata: {}\n\n", b"data: \xff\n\n"])
async def test_what_is_not_our_feed_is_dropped(world: World, lie: bytes):
    """A stream that makes no sense is no knowledge; the connection is made again."""
    world.say(lie, None)
    await world.again()
    assert not world.feed.current()
    world.say(snapshot(0))
    await world.current()


async def test_a_refusal_is_asked_again(world: World):
    """Without the right there is no feed; it is tried again, ever more slowly."""
    world.translator.status = 403
    world.say(None)
    await world.again()
    assert not world.feed.current()
    world.translator.status = 200
    await world.again()
    world.say(snapshot(0))
    await world.current()


async def test_a_subscriber_that_fails_harms_nobody(world: World):
    """An error in one callback reaches neither the feed nor the others; ended ones hear nothing."""

    def fail(heard: Any) -> None:
        raise ValueError(heard)

    world.feed.subscribe(fail)
    gone: list[Any] = []
    world.feed.subscribe(gone.append)()
    world.say(snapshot(1, held("alice")))
    assert await world.denied() == "alice"
    assert world.feed.current()
    assert gone == []
