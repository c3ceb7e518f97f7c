"""Talking to a site's supervisor over its unix socket: one JSON line each way, one call each."""

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import msgspec

from testbed.components import Component, Status

LINE_LIMIT = 1024 * 1024

_Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Add(msgspec.Struct, frozen=True, tag="add"):
    """Make components known and start them, each when those before it are ready."""

    components: tuple[Component, ...]


class Start(msgspec.Struct, frozen=True, tag="start"):
    """Start a component that is not running, and wait until it is ready."""

    name: str


class Stop(msgspec.Struct, frozen=True, tag="stop"):
    """TERM, after `grace` seconds KILL; answered when the process is gone."""

    name: str
    grace: float = 10.0


class Signal(msgspec.Struct, frozen=True, tag="signal"):
    """Send a signal; a KILL is answered when the process is gone."""

    name: str
    number: int


class Wait(msgspec.Struct, frozen=True, tag="wait"):
    """Wait until these components are ready (none named: all of them)."""

    names: tuple[str, ...] = ()


class Show(msgspec.Struct, frozen=True, tag="show"):
    """How all components fare."""


class Down(msgspec.Struct, frozen=True, tag="down"):
    """End every process, remove the folder, end."""


Request = Add | Start | Stop | Signal | Wait | Show | Down


class Reply(msgspec.Struct, frozen=True):
    """What became of a request; `error` is empty when it was done."""

    error: str = ""
    components: tuple[Status, ...] = ()


class ControlError(Exception):
    """The supervisor is not there, or says why a request could not be done."""


class Control:
    """The caller's side; root only, as the socket is."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def call(self, request: Request, *, seconds: float = 120.0) -> tuple[Status, ...]:
        """Ask the supervisor; the answer is how the components fare now.

        Raises:
            ControlError: no supervisor, no answer in time, or it refused.
        """
        try:
            async with asyncio.timeout(seconds):
                reply = await self._exchange(request)
        except TimeoutError as error:
            raise ControlError(f"{self._path}: no answer within {seconds:g} s") from error
        if reply.error:
            raise ControlError(reply.error)
        return reply.components

    async def pid(self) -> int:
        """The supervisor's process id as the caller sees it: a way into its namespaces.

        Raises:
            ControlError: no supervisor.
        """
        async with self._connected() as (_, writer):
            return _peer(writer.get_extra_info("socket"))

    async def _exchange(self, request: Request) -> Reply:
        async with self._connected() as (reader, writer):
            try:
                writer.write(msgspec.json.encode(request) + b"\n")
                line = await reader.readline()
            except OSError as error:
                raise ControlError(f"{self._path}: the site went away: {error}") from error
        if not line:
            raise ControlError(f"{self._path}: the site went away")
        return msgspec.json.decode(line, type=Reply)

    @contextlib.asynccontextmanager
    async def _connected(self) -> AsyncIterator[_Streams]:
        try:
            reader, writer = await asyncio.open_unix_connection(self._path, limit=LINE_LIMIT)
        except OSError as error:
            raise ControlError(f"{self._path}: no site answers: {error.strerror}") from error
        try:
            yield reader, writer
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):  # a site that went down closed it first
                await writer.wait_closed()


def _peer(connection: socket.socket) -> int:
    # unix(7), SO_PEERCRED: struct ucred, its pid translated into the asker's PID namespace.
    size = struct.calcsize("3i")
    pid, _, _ = struct.unpack(
        "3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    )
    return int(pid)


async def answering(path: Path, handle: Callable[[Request], Awaitable[Reply]]) -> asyncio.Server:
    """The supervisor's side: serve requests on a socket that only root may use."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):  # the caller left: nobody to tell
            if line := await reader.readline():
                try:
                    reply = await handle(msgspec.json.decode(line, type=Request))
                except msgspec.DecodeError as error:
                    reply = Reply(error=f"not a request: {error}")
                writer.write(msgspec.json.encode(reply) + b"\n")
                await writer.drain()
            writer.close()
            await writer.wait_closed()

    # Who sees the socket may connect to it: it gets its name when somebody listens.
    unnamed = path.with_suffix(".new")
    server = await asyncio.start_unix_server(serve, unnamed, limit=LINE_LIMIT)
    unnamed.chmod(0o600)
    unnamed.rename(path)
    return server
