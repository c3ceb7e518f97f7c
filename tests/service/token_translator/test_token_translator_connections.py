"""Connections to the HTTP service: bounded by source and altogether, and none is held by a word."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from headgate import service
from headgate.clock import SystemClock
from headgate.settings import load
from token_translator.assembly import assembled
from token_translator.settings import Settings

WHOLE = b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Connect = Callable[[], contextlib.AbstractAsyncContextManager[Connection]]


@pytest.fixture
def listening(
    site: Any, folder: Path
) -> Callable[[str], contextlib.AbstractAsyncContextManager[Connect]]:
    """Serves the translator as the command does, with some bounds; gives what connects."""
    del site  # whose files these are

    @contextlib.asynccontextmanager
    async def begin(bounds: str) -> AsyncIterator[Connect]:
        config = folder / "tokens.toml"
        config.write_text(f"{config.read_text()}\n[connections]\n{bounds}\n")
        settings = load(config, Settings)
        async with (
            assembled(settings, SystemClock()) as app,
            service.listening(app, settings.listen) as address,
        ):
            port = int(address.rpartition(":")[2])

            @contextlib.asynccontextmanager
            async def connect() -> AsyncIterator[Connection]:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                try:
                    yield reader, writer
                finally:
                    writer.close()
                    with contextlib.suppress(ConnectionError):
                        await writer.wait_closed()

            yield connect

    return begin


async def ask(connection: Connection, request: bytes = WHOLE) -> bytes:
    """Send, and what comes back: a line, or nothing where the connection is closed."""
    reader, writer = connection
    with contextlib.suppress(ConnectionError):
        writer.write(request)
        await writer.drain()
        line = await asyncio.wait_for(reader.readline(), 5)
        if line:
            await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)
        if b" 200 " in line:
            await asyncio.wait_for(reader.readexactly(len(b"ok\n")), 5)
        return line
    return b""


async def over(connection: Connection) -> bool:
    """Whether the other side closes within some seconds."""
    async with asyncio.timeout(5):
        with contextlib.suppress(ConnectionError):
            while await connection[0].read(100):
                pass
    return True


@pytest.mark.parametrize("bounds", ["per_source = 2\nproxies = []", "total = 2"])
async def test_too_many_are_sent_away(listening: Any, bounds: str) -> None:
    """The next one is told to come later; a place that is left is free again."""
    async with listening(bounds) as connect, connect() as one:
        assert b" 200 " in await ask(one)
        async with connect() as two:
            assert b" 200 " in await ask(two)
            async with connect() as three:
                assert await ask(three) in {b"HTTP/1.1 503 Service Unavailable\r\n", b""}
                assert await over(three)
            assert b" 200 " in await ask(one)
        async with asyncio.timeout(5):
            answered = b""
            while b" 200 " not in answered:
                async with connect() as again:
                    answered = await ask(again)


async def test_a_proxy_speaks_for_many(listening: Any) -> None:
    """Who is listed as a proxy is bounded by the total alone."""
    bounds = 'per_source = 1\nproxies = ["127.0.0.1"]'
    async with listening(bounds) as connect, connect() as one, connect() as two:
        assert b" 200 " in await ask(one)
        assert b" 200 " in await ask(two)


@pytest.mark.parametrize("begun", [b"", b"GET /livez HTTP/1.1\r\nHost:"])
async def test_headers_come_in_time_or_not_at_all(listening: Any, begun: bytes) -> None:
    """A connection on which a request begins and does not go on is closed, early or late."""
    async with listening("header_seconds = 0.5") as connect:
        async with connect() as first:
            first[1].write(begun)
            assert await over(first)
        async with connect() as later:
            assert b" 200 " in await ask(later)
            later[1].write(b"GET /livez HTTP/1.1\r\n")
            for _ in range(20):
                if later[0].at_eof():
                    break
                later[1].write(b"X-Slow: 1\r\n")
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(later[0].read(100), 0.1)
            assert later[0].at_eof()


async def test_a_quiet_connection_is_kept(listening: Any) -> None:
    """Between two requests a client may be quiet for longer than its headers may take."""
    async with listening("header_seconds = 0.5") as connect, connect() as one:
        assert b" 200 " in await ask(one)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(one[0].read(1), 1)
        assert b" 200 " in await ask(one)
