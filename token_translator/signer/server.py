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

MAX_CONNECTIONS = 16
"""Of one uid: nobody takes another's."""
MAX_IN_FLIGHT = 256
"""Of one connection: whoever takes no answers waits for themselves."""
TAKEN_SECONDS = 30.0
"""An answer that nobody takes for that long ends its connection."""
LAST_SECONDS = 10.0
MAX_PATH = 107
"""Bytes of sun_path in unix(7), less its end."""
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


def require_place(path: Path, group: str = "") -> None:
    """Return if a socket can be made there; nothing is made.

    Raises:
        SettingsError: its folder is not there or not ours to write, or there is no such group.
    """
    if not path.parent.is_dir():
        raise SettingsError(f"{path}: there is no folder {path.parent}")
    if not os.access(path.parent, os.W_OK | os.X_OK, effective_ids=True):
        raise SettingsError(f"{path}: nothing can be made in {path.parent} by uid {os.geteuid()}")
    if len(os.fsencode(path)) > MAX_PATH:
        raise SettingsError(f"{path}: longer than a socket's path can be ({MAX_PATH} bytes)")
    if path.exists() and not path.is_socket():
        raise SettingsError(f"{path}: there already, and no socket")
    try:
        if group:
            grp.getgrnam(group)
    except KeyError as error:
        raise SettingsError(f"socket_group: there is no group {group}") from error


def _bind(path: Path, group: str) -> socket.socket:
    require_place(path, group)
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
        self._open: dict[asyncio.StreamWriter, int] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, until the other side closes it or breaks the protocol."""
        self._open[writer] = uid = peer_uid(writer.get_extra_info("socket"))
        try:
            if self._admitted(uid):
                await self._requests(reader, writer)
        except (wire.FrameError, msgspec.MsgspecError, ConnectionError) as error:
            log.warning("connection_ended", error=str(error))
        finally:
            del self._open[writer]
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

    def _admitted(self, uid: int) -> bool:
        if uid not in self._allowed:
            log.warning("connection_refused", uid=uid)
            return False
        if sum(1 for other in self._open.values() if other == uid) > MAX_CONNECTIONS:
            log.warning("too_many_connections", uid=uid, most=MAX_CONNECTIONS)
            return False
        return True

    async def _requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        decoder = msgspec.json.Decoder(wire.Request)
        sending, in_flight = asyncio.Lock(), asyncio.Semaphore(MAX_IN_FLIGHT)
        while (body := await wire.read_frame(reader)) is not None:
            request = decoder.decode(body)
            await in_flight.acquire()
            task = asyncio.create_task(self._answer(request, writer, sending))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            task.add_done_callback(lambda _: in_flight.release())

    async def _answer(
        self, request: wire.Request, writer: asyncio.StreamWriter, sending: asyncio.Lock
    ) -> None:
        answer = await self._answering.answer(request)
        # A list is long: whoever asks for many and takes none has one of them written out.
        async with sending:
            if writer.is_closing():
                return
            writer.write(wire.frame(answer))
            try:
                async with asyncio.timeout(TAKEN_SECONDS):
                    await writer.drain()
            except ConnectionError:
                pass  # its asker has gone away
            except TimeoutError:
                log.warning("answers_not_taken", uid=self._open.get(writer))
                writer.transport.abort()


def peer_uid(connection: socket.socket) -> int:
    """The uid of the process at the other end, as the kernel knows it (SO_PEERCRED, unix(7))."""
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    uid: int = _UCRED.unpack(data)[1]
    return uid
