"""One conversation with a session program that is slow, hostile, or suddenly gone."""

import asyncio
import json
import struct
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from gateway.sessions import session as sessions
from gateway.sessions.session import (
    PART,
    Conversation,
    SessionLost,
    SessionRefused,
    SessionUnavailable,
)

NONCE = "n" * 24
ROW = "6f3b6c1e-0000-4000-8000-000000000001"
PREFIX = struct.Struct(">II")
Behaviour = Callable[["Peer", dict[str, Any]], None]


def frame(header: dict[str, Any], body: bytes = b"") -> bytes:
    """One frame."""
    encoded = json.dumps({"v": 1, **header}).encode()
    return PREFIX.pack(len(encoded), len(body)) + encoded + body


class Peer:
    """The other side, in memory: what it says is decided by what it hears."""

    def __init__(self, behaviour: Behaviour, *, announces: bool = True) -> None:
        self.behaviour = behaviour
        self.heard: list[dict[str, Any]] = []
        self.stream = asyncio.StreamReader(limit=1 << 30)
        self.hung_up = False
        if announces:
            self.stream.feed_data(f"HGS1 {NONCE}\n".encode())

    def write(self, data: bytes) -> None:
        """Hear a frame."""
        size, _ = PREFIX.unpack_from(data)
        header = json.loads(data[PREFIX.size : PREFIX.size + size])
        self.heard.append(header)
        self.behaviour(self, header)

    async def drain(self) -> None:
        """There is always room."""

    def say(self, header: dict[str, Any], body: bytes = b"") -> None:
        """Send a frame."""
        self.stream.feed_data(frame(header, body))

    def hang_up(self) -> None:
        """Note that it was hung up."""
        self.hung_up = True
        if not self.stream.at_eof():
            self.stream.feed_eof()

    async def gone(self) -> None:
        """Nothing is left of it."""

    def conversation(self, in_force: Callable[[], bool] = lambda: True) -> Conversation:
        """Talk to it."""
        return Conversation(
            reader=self.stream,
            writer=self,
            nonce=NONCE,
            hang_up=self.hang_up,
            gone=self.gone,
            in_force=in_force,
        )


@pytest.fixture
async def opened() -> AsyncIterator[Callable[[Behaviour], Any]]:
    """Opens conversations with peers, and closes them in the end."""
    all_of_them = []

    async def open_(behaviour: Behaviour) -> tuple[Conversation, Peer]:
        peer = Peer(behaviour)
        conversation = peer.conversation()
        await conversation.start()
        all_of_them.append(conversation)
        return conversation, peer

    yield open_
    for conversation in all_of_them:
        await conversation.close()


def a_file_of(size: int) -> Behaviour:
    """Serve a file of zeros, as the session program does."""

    def behaviour(peer: Peer, header: dict[str, Any]) -> None:
        left = min(header["limit"], size - header["offset"])
        while left > 0:
            chunk = min(left, 256 * 1024)
            peer.say({"id": header["id"], "ok": True, "more": True}, bytes(chunk))
            left -= chunk
        peer.say({"id": header["id"], "ok": True, "size": size})

    return behaviour


async def test_a_slow_reader_of_a_large_file_fills_no_memory(opened: Any):
    """Of a gigabyte nothing more is asked for than one part beyond what was taken."""
    conversation, peer = await opened(a_file_of(1 << 30))
    chunks = conversation.read(ROW, "/d", "stdout", offset=0, limit=1 << 30)
    taken = 0
    for _ in range(20):
        taken += len(await anext(chunks))
        await asyncio.sleep(0)
        asked = sum(header["limit"] for header in peer.heard)
        assert asked <= taken + PART
    await chunks.aclose()


async def test_a_file_is_read_whole_over_part_boundaries(opened: Any):
    """All bytes come, also of a file that ends exactly with a part, and of an empty one."""
    for size in (0, 1, PART - 1, PART, PART + 1, 3 * PART):
        conversation, _ = await opened(a_file_of(size))
        chunks = conversation.read(ROW, "/d", "stdout", offset=0, limit=1 << 40)
        assert sum([len(chunk) async for chunk in chunks]) == size


async def test_a_session_that_sends_more_than_was_asked_for_is_ended(opened: Any):
    """A user who got hold of the other side cannot fill our memory with frames."""

    def flood(peer: Peer, header: dict[str, Any]) -> None:
        for _ in range(20):
            peer.say({"id": header["id"], "ok": True, "more": True}, bytes(256 * 1024))

    conversation, peer = await opened(flood)
    with pytest.raises(SessionLost):
        await conversation.files(ROW, "/d")
    assert peer.hung_up
    assert not conversation.alive


@pytest.mark.parametrize(
    "answer",
    [
        {"ok": True, "state": {"attempt": "many"}},
        {"ok": True, "state": []},
        {"ok": False, "code": "unsettled", "state": 7},
    ],
)
async def test_answers_that_are_none_end_a_request_and_nothing_else(
    opened: Any, answer: dict[str, Any]
):
    """What does not have the shape of an answer is told as a lost session."""
    conversation, _ = await opened(lambda peer, header: peer.say({"id": header["id"], **answer}))
    with pytest.raises(SessionLost):
        await conversation.files(ROW, "/d")


async def test_frames_for_nobody_are_passed_over(opened: Any):
    """Ids that nobody waits for, or that are no numbers, change nothing."""

    def confused(peer: Peer, header: dict[str, Any]) -> None:
        for key in (99, "1", None, [1], {}):
            peer.say({"id": key, "ok": True})
        peer.say({"id": header["id"], "ok": False, "code": "no_file", "words": "none"})

    conversation, _ = await opened(confused)
    with pytest.raises(SessionRefused, match="no_file"):
        await conversation.files(ROW, "/d")


async def test_a_request_given_up_does_not_disturb_the_next(opened: Any):
    """A caller that is cancelled in the middle of a read leaves a usable session behind."""
    conversation, peer = await opened(lambda *_: None)
    reading = asyncio.create_task(conversation.files(ROW, "/d"))
    await asyncio.sleep(0)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    peer.say({"id": 1, "ok": True, "state": {"attempt": 1}})  # too late
    peer.behaviour = lambda peer, header: peer.say({"id": header["id"], "ok": True, "state": None})
    assert await conversation.files(ROW, "/d") is None
    async with asyncio.timeout(1):
        await conversation.drain()


async def test_all_who_wait_hear_of_a_lost_connection(opened: Any):
    """The end of the stream answers every request under way, and every later one."""
    conversation, peer = await opened(lambda *_: None)
    waiting = [asyncio.create_task(conversation.files(ROW, "/d")) for _ in range(3)]
    await asyncio.sleep(0)
    peer.stream.set_exception(ConnectionResetError("gone"))
    for task in waiting:
        with pytest.raises(SessionLost):
            await task
    with pytest.raises(SessionLost):
        await conversation.files(ROW, "/d")


async def test_a_start_that_is_given_up_hangs_up():
    """Cancelled while it waits for the announcement, a conversation leaves no task behind."""
    peer = Peer(lambda *_: None, announces=False)
    starting = asyncio.create_task(peer.conversation().start())
    await asyncio.sleep(0)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert peer.hung_up


async def test_a_session_that_says_nothing_is_unavailable(monkeypatch: pytest.MonkeyPatch):
    """Without an announcement in time there is no session."""
    monkeypatch.setattr(sessions, "ANNOUNCE_TIMEOUT", 0.01)
    peer = Peer(lambda *_: None, announces=False)
    with pytest.raises(SessionUnavailable):
        await peer.conversation().start()
    assert peer.hung_up


async def test_a_reply_that_does_not_come_ends_the_session(
    opened: Any, monkeypatch: pytest.MonkeyPatch
):
    """What it does with the request nobody knows: the session is asked no more."""
    monkeypatch.setattr(sessions, "REPLY_TIMEOUT", 0.01)
    conversation, peer = await opened(lambda *_: None)
    with pytest.raises(SessionLost):
        await conversation.cancel(ROW, 1)
    assert peer.hung_up
    assert not conversation.alive


async def test_nothing_is_asked_after_the_certificates_end():
    """Whoever still holds the session then hears that nothing was asked; what was, is answered."""
    peer = Peer(lambda peer, header: peer.say({"id": header["id"], "ok": True, "state": None}))
    good = True
    conversation = peer.conversation(lambda: good)
    await conversation.start()
    assert await conversation.files(ROW, "/d") is None
    good = False
    with pytest.raises(SessionUnavailable, match="certificate has ended"):
        await conversation.cancel(ROW, 1)
    assert len(peer.heard) == 1
    await conversation.close()
