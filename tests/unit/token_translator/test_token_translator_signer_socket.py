"""The signer's socket under somebody who asks and does not listen."""

import asyncio
import contextlib
import os
from pathlib import Path

import pytest

from headgate.settings import SettingsError
from testbed.waiting import until
from token_translator import wire
from token_translator.signer import server

LARGE = 4 * 1024 * 1024


class Large:
    """Answers everything with a large list."""

    def __init__(self) -> None:
        self.asked = 0
        self.body = b"x" * LARGE

    async def answer(self, request: wire.Request) -> wire.Answer:
        """The same bytes for everybody."""
        self.asked += 1
        return wire.RevokedNow(request.id, 1, "", self.body, "v1", ())


async def test_large_answers_are_made_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever asks for a hundred lists and takes none costs the memory of one; then all come."""
    answering, made = Large(), 0
    frame = wire.frame

    def counted(message: wire.Request | wire.Answer) -> bytes:
        nonlocal made
        made += isinstance(message, wire.RevokedNow)
        return frame(message)

    monkeypatch.setattr(wire, "frame", counted)
    path = tmp_path / "signer.sock"
    async with server.listening(answering, path, allowed_uids=frozenset({os.getuid()})):
        reader, writer = await asyncio.open_unix_connection(str(path))
        for number in range(100):
            writer.write(frame(wire.ListRevoked(number)))
        await until(lambda: answering.asked == 100, seconds=10)
        other_reader, other_writer = await asyncio.open_unix_connection(str(path))
        other_writer.write(frame(wire.ListRevoked(7)))
        assert await wire.read_frame(other_reader, wire.MAX_ANSWER)
        assert made == 2
        for _ in range(100):
            assert await wire.read_frame(reader, wire.MAX_ANSWER)
        for one in (writer, other_writer):
            one.close()
            with contextlib.suppress(ConnectionError):
                await one.wait_closed()


async def test_who_does_not_listen_does_not_keep_the_signer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends when it is told to, whatever somebody has still to take."""
    monkeypatch.setattr(server, "LAST_SECONDS", 0.1)
    answering = Large()
    path = tmp_path / "signer.sock"
    async with asyncio.timeout(10):
        async with server.listening(answering, path, allowed_uids=frozenset({os.getuid()})):
            _, writer = await asyncio.open_unix_connection(str(path))
            for number in range(10):
                writer.write(wire.frame(wire.ListRevoked(number)))
            await until(lambda: answering.asked == 10, seconds=10)
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def test_who_does_not_listen_starves_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However much somebody asks for, others are answered; and in the end they are cut off."""
    monkeypatch.setattr(server, "TAKEN_SECONDS", 0.2)
    answering = Large()
    path = tmp_path / "signer.sock"
    async with (
        asyncio.timeout(20),
        server.listening(answering, path, allowed_uids=frozenset({os.getuid()})),
    ):
        _, writer = await asyncio.open_unix_connection(str(path), limit=1024)
        writer.transport.pause_reading()  # type: ignore[attr-defined]  # of a connected socket
        for number in range(1500):
            writer.write(wire.frame(wire.ListRevoked(number)))
        await until(lambda: answering.asked >= server.MAX_IN_FLIGHT, seconds=10)
        other_reader, other_writer = await asyncio.open_unix_connection(str(path))
        other_writer.write(wire.frame(wire.ListRevoked(7)))
        assert await wire.read_frame(other_reader, wire.MAX_ANSWER)
        assert answering.asked == server.MAX_IN_FLIGHT + 1
        with contextlib.suppress(ConnectionError):
            await writer.drain()
        await closed(writer, other_writer)


async def test_nobody_takes_anothers_connections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each uid has connections of its own, so many and no more."""
    uids = iter([1] * 17 + [2])
    monkeypatch.setattr(server, "peer_uid", lambda _: next(uids))
    path = tmp_path / "signer.sock"
    async with server.listening(Large(), path, allowed_uids=frozenset({1, 2})):
        writers, answered = [], []
        for _ in range(18):
            reader, writer = await asyncio.open_unix_connection(str(path))
            writer.write(wire.frame(wire.ListRevoked(7)))
            writers.append(writer)
            try:
                answered.append(await wire.read_frame(reader, wire.MAX_ANSWER) is not None)
            except ConnectionError:
                answered.append(False)
        assert answered == [True] * 16 + [False, True]
        await closed(*writers)


@pytest.mark.parametrize(
    ("place", "group", "words"),
    [
        ("nowhere/signer.sock", "", "there is no folder"),
        ("file", "", "no socket"),
        ("s" * 108, "", "longer than"),
        ("signer.sock", "no-such-group", "no group no-such-group"),
    ],
)
async def test_a_place_for_no_socket(tmp_path: Path, place: str, group: str, words: str) -> None:
    """Where no socket can be made this is said, by `check-config` before and at the start."""
    (tmp_path / "file").touch()
    with pytest.raises(SettingsError, match=words):
        server.require_place(tmp_path / place, group)
    with pytest.raises(SettingsError, match=words):
        async with server.listening(
            Large(), tmp_path / place, allowed_uids=frozenset(), group=group
        ):
            pass
    server.require_place(tmp_path / "signer.sock")


async def closed(*writers: asyncio.StreamWriter) -> None:
    """Close connections."""
    for one in writers:
        one.close()
        with contextlib.suppress(ConnectionError):
            await one.wait_closed()
