"""The signer's unix socket: who may connect, and frames in, frames out."""

import asyncio
import contextlib
import grp
import os
import socket
import struct
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Protocol

import msgspec
import structlog

from headgate.settings import SettingsError
from token_translator import wire

log = structlog.get_logger(__name__)

MAX_CONNECTIONS = 32
MAX_IN_FLIGHT = 1024
LAST_SECONDS = 10.0
_UCRED = struct.Struct("3i")  # pid, uid, gid: struct ucred of unix(7)


class Answering(Protocol):
    """What stands behind the socket."""

    async def answer(self, request: wire.Request) -> wire.Answer:
        """The answer to one request; it does not raise."""


@contextlib.asynccontextmanager
async def listening(
    answering: Answering, path: Path, *, allowed_uids: frozenset[int], group: str = ""
) -> AsyncIterator[None]:
    """Serve the socket while the context is open.

    Raises:
        SettingsError: the socket cannot be made, or another signer answers there.
    """
    connections = _Connections(answering, allowed_uids)
    listener = _bind(path, group)
    try:
        server = await asyncio.start_unix_server(connections.serve, sock=listener)
        try:
            yield
        finally:
            server.close()
            await connections.drain()
            await server.wait_closed()
    finally:
        _remove(path)


def _bind(path: Path, group: str) -> socket.socket:
    if _answers(path):
        raise SettingsError(f"{path}: another signer answers there")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        _remove(path)  # what a killed signer left behind
        # Nobody may connect before the mode is what it should be.
        mask = os.umask(0o177)
        try:
            listener.bind(str(path))
        finally:
            os.umask(mask)
        if group:
            os.chown(path, -1, grp.getgrnam(group).gr_gid)
            path.chmod(0o660)
    except (OSError, KeyError) as error:
        listener.close()
        raise SettingsError(f"{path}: {error}") from error
    return listener


def _answers(path: Path) -> bool:
    if not path.is_socket():
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
        return other.connect_ex(str(path)) == 0


def _remove(path: Path) -> None:
    if path.is_socket():
        path.unlink()


class _Connections:
    def __init__(self, answering: Answering, allowed_uids: frozenset[int]) -> None:
        self._answering = answering
        self._allowed = allowed_uids
        self._open: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._in_flight = asyncio.Semaphore(MAX_IN_FLIGHT)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, until the other side closes it or breaks the protocol."""
        self._open.add(writer)
        try:
            if self._admitted(writer):
                await self._requests(reader, writer)
        except (wire.FrameError, msgspec.MsgspecError, ConnectionError) as error:
            log.warning("connection_ended", error=str(error))
        finally:
            self._open.discard(writer)
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def drain(self) -> None:
        """Answer what was asked, then close every connection; who takes no answer gets none."""
        if self._tasks:
            _, left = await asyncio.wait(self._tasks, timeout=LAST_SECONDS)
            for task in left:
                task.cancel()
        for writer in list(self._open):
            if writer.transport.get_write_buffer_size():
                writer.transport.abort()
            writer.close()

    def _admitted(self, writer: asyncio.StreamWriter) -> bool:
        uid = peer_uid(writer.get_extra_info("socket"))
        if uid not in self._allowed:
            log.warning("connection_refused", uid=uid)
            return False
        if len(self._open) > MAX_CONNECTIONS:
            log.warning("too_many_connections", most=MAX_CONNECTIONS)
            return False
        return True

    async def _requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        decoder = msgspec.json.Decoder(wire.Request)
        sending = asyncio.Lock()
        while (body := await wire.read_frame(reader)) is not None:
            request = decoder.decode(body)
            await self._in_flight.acquire()
            task = asyncio.create_task(self._answer(request, writer, sending))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _answer(
        self, request: wire.Request, writer: asyncio.StreamWriter, sending: asyncio.Lock
    ) -> None:
        try:
            answer = await self._answering.answer(request)
            # A list is long: whoever asks for many and takes none has one of them written out.
            async with sending:
                if not writer.is_closing():
                    writer.write(wire.frame(answer))
                    with contextlib.suppress(ConnectionError):  # its asker has gone away
                        await writer.drain()
        finally:
            self._in_flight.release()


def peer_uid(connection: socket.socket) -> int:
    """The uid of the process at the other end, as the kernel knows it (SO_PEERCRED, unix(7))."""
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    uid: int = _UCRED.unpack(data)[1]
    return uid
