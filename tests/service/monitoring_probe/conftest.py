"""A trapper of our own, which speaks Zabbix's protocol or breaks it."""

import asyncio
import contextlib
import json
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

HEADER = struct.Struct("<4sBII")


class FakeTrapper:
    """Takes packets; `behaviour` says how it answers: `take`, or one of the faults below."""

    def __init__(self, behaviour: str) -> None:
        self.behaviour = behaviour
        self.values: list[dict[str, Any]] = []
        self.port = 0
        self._open: set[asyncio.StreamWriter] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, one packet (Zabbix sender protocol)."""
        self._open.add(writer)
        try:
            _, _, length, _ = HEADER.unpack(await reader.readexactly(HEADER.size))
            packet = json.loads(await reader.readexactly(length))
            await self._answer(packet["data"], writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client went away: what some of the tests are about
        finally:
            self._open.discard(writer)
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _answer(self, data: list[dict[str, Any]], writer: asyncio.StreamWriter) -> None:
        if self.behaviour == "silent":
            await asyncio.Event().wait()
        elif self.behaviour == "reset":
            writer.transport.abort()
        elif self.behaviour == "garbage":
            writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        elif self.behaviour == "not json":
            writer.write(_packet(b"processed"))
        elif self.behaviour == "no info":
            writer.write(_packet(b'{"response":"success"}'))
        elif self.behaviour == "other info":
            writer.write(_packet(b'{"response":"success","info":"thank you"}'))
        elif self.behaviour == "an array":
            writer.write(_packet(b"[1]"))
        elif self.behaviour == "failed":
            writer.write(_packet(b'{"response":"failed","info":"no"}'))
        elif self.behaviour == "cut":
            writer.write(_packet(b'{"response":"success"}')[:-5])
        else:
            failed = self.behaviour == "refuse"
            self.values += [] if failed else data
            writer.write(_packet(_info(len(data), failed=len(data) if failed else 0)))

    async def stop(self) -> None:
        """Let go of clients that still wait."""
        for writer in self._open:
            writer.transport.abort()


def _info(total: int, *, failed: int) -> bytes:
    info = f"processed: {total - failed}; failed: {failed}; total: {total}; seconds spent: 0.000041"
    return json.dumps({"response": "success", "info": info}).encode()


def _packet(body: bytes) -> bytes:
    return HEADER.pack(b"ZBXD", 1, len(body), 0) + body


Trappers = Callable[[str], AbstractAsyncContextManager[FakeTrapper]]


@pytest.fixture
def trapper() -> Trappers:
    """Makes servers of a behaviour; used as a context, each listens on its `port`."""

    @contextlib.asynccontextmanager
    async def serving(behaviour: str) -> AsyncIterator[FakeTrapper]:
        fake = FakeTrapper(behaviour)
        server = await asyncio.start_server(fake.serve, "127.0.0.1", 0)
        fake.port = server.sockets[0].getsockname()[1]
        async with server:
            yield fake
            await fake.stop()

    return serving
