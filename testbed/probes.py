"""Seeing whether a component is ready: one question, asked again until it is."""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator

from headgate.command import CommandError, run
from testbed.components import Accepts, Answers, Greets, Listens, Prints, Probe

ASK_SECONDS = 5.0
AGAIN_SECONDS = 0.05

_Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def until_ready(probe: Probe) -> None:
    """Return when the component is ready; the caller sets the deadline."""
    while not await _asked(probe):  # noqa: ASYNC110 - another process: only asking tells
        await asyncio.sleep(AGAIN_SECONDS)


async def _asked(probe: Probe) -> bool:
    """Whether it is ready now; one that does not answer in time is not."""
    try:
        async with asyncio.timeout(ASK_SECONDS):
            return await _ready(probe)
    except (OSError, CommandError, TimeoutError):  # not there yet: that is what is being asked
        return False


async def _ready(probe: Probe) -> bool:
    match probe:
        case Listens(port):
            async with _connected(port):
                return True
        case Greets(port, prefix):
            async with _connected(port) as (reader, _):
                return (await reader.readline()).startswith(prefix.encode())
        case Answers(port, path):
            async with _connected(port) as (reader, writer):
                writer.write(f"GET {path} HTTP/1.0\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
                return b" 200 " in await reader.readline()
        case Accepts(socket):
            _, writer = await asyncio.open_unix_connection(socket)
            await _closed(writer)
            return True
        case Prints(argv, pattern):
            done = await run(argv, timeout=ASK_SECONDS)
            lines = done.stdout.decode(errors="replace").splitlines()
            return done.status == 0 and any(re.fullmatch(pattern, line.strip()) for line in lines)
        case _:  # a step is ready when it has ended: the supervisor sees that itself
            return False


@contextlib.asynccontextmanager
async def _connected(port: int) -> AsyncIterator[_Streams]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        await _closed(writer)


async def _closed(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(ConnectionError):  # the peer may have gone first
        await writer.wait_closed()
