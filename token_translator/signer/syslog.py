"""Syslog messages and the ways to send them: RFC 5424, 5425 (TLS), 5426 (UDP), 6587 (TCP)."""

import asyncio
import contextlib
import json
import socket
import ssl
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from headgate.settings import SettingsError
from token_translator.signer.entries import Entry
from token_translator.signer.files import read_private
from token_translator.signer.settings import SyslogSettings

SEVERITY = 5  # notice
MAX_DATAGRAM = 60_000
SECONDS = 5.0
OBJECTION_SECONDS = 0.5


class TooLongError(Exception):
    """A message that does not fit into what it is sent in: it never will."""


class Transport(Protocol):
    """A way to a syslog server. Sending raises `OSError` or `TimeoutError` when it is away."""

    async def send(self, messages: Sequence[bytes]) -> None:
        """Hand over messages in order; raises `TooLongError` for one that cannot be."""

    async def close(self) -> None:
        """Let go of the connection."""


def message(entry: Entry, *, facility: int, host: str, process: int) -> bytes:
    """An entry as a message: its time and kind in the header, its bytes as they are."""
    document = json.loads(entry.entry)
    head = (
        f"<{facility * 8 + SEVERITY}>1 {document['at']} {host or '-'} headgate-signer {process} "
        f"{document['kind']} - "
    )
    return head.encode("ascii") + entry.entry


def transport(settings: SyslogSettings) -> Transport:
    """The way to an address: `tls://`, `tcp://` or `udp://host:port`, or `unix:/path`.

    Raises:
        SettingsError: a file for TLS is not there, or is not what it should be.
    """
    if settings.address.startswith("unix:"):
        return _Datagrams(socket.AF_UNIX, settings.address.removeprefix("unix:"))
    parts = urlsplit(settings.address)
    if parts.scheme == "tls":
        _context(settings)
        return _Tls(parts.hostname or "", parts.port or 0, partial(_context, settings))
    if parts.scheme == "tcp":
        return _Stream(parts.hostname or "", parts.port or 0)
    return _Datagrams(socket.AF_INET, (parts.hostname or "", parts.port or 0))


def _context(settings: SyslogSettings) -> ssl.SSLContext:
    """What a connection over TLS goes by."""
    try:
        context = ssl.create_default_context(cafile=settings.tls_ca or None)
    except OSError as error:
        raise SettingsError(f"syslog: {settings.tls_ca}: {error}") from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if settings.tls_certificate:
        read_private(Path(settings.tls_key))
        try:
            context.load_cert_chain(settings.tls_certificate, settings.tls_key)
        except OSError as error:
            raise SettingsError(f"syslog: {settings.tls_certificate}: {error}") from error
    return context


class _Stream:
    """TCP with octet counting (RFC 6587, section 3.4.1): a message may hold anything."""

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._port = port
        self._writer: asyncio.StreamWriter | None = None
        self._reader: asyncio.StreamReader | None = None

    async def send(self, messages: Sequence[bytes]) -> None:
        try:
            async with asyncio.timeout(SECONDS):
                writer = await self._connected()
                writer.write(_counted(messages))
                await writer.drain()
        except (OSError, TimeoutError):
            await self.close()
            raise

    async def close(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(SECONDS):
                    await writer.wait_closed()

    async def _connected(self) -> asyncio.StreamWriter:
        # A server that went away has closed its end: it is seen here, not after the next message.
        if self._writer is not None and self._reader is not None and self._reader.at_eof():
            await self.close()
        if self._writer is None:
            self._reader, self._writer = await asyncio.open_connection(self._host, self._port)
            # What reaches the kernel is not yet there: little is left behind in a lost connection.
            self._writer.transport.set_write_buffer_limits(0)
        return self._writer


class _Tls:
    """The same over TLS (RFC 5425), in a thread of its own.

    asyncio's TLS calls written what is in its memory; here what was sent has left the process.
    `context` is asked for each connection: files may have been renewed.
    """

    def __init__(self, host: str, port: int, context: Callable[[], ssl.SSLContext]) -> None:
        self._host = host
        self._port = port
        self._context = context
        self._socket: ssl.SSLSocket | None = None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="syslog")

    async def send(self, messages: Sequence[bytes]) -> None:
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._thread, self._send, _counted(messages))

    async def close(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, self._close)
        self._thread.shutdown(wait=False)

    def _send(self, data: bytes) -> None:
        try:
            one = self._connected()
            one.settimeout(SECONDS)
            one.sendall(data)
        except OSError:
            self._close()
            raise

    def _connected(self) -> ssl.SSLSocket:
        # A server that went away has closed its end: it is seen here, not after the next message.
        if self._socket is not None and _ended(self._socket, 0):
            self._close()
        if self._socket is None:
            context = self._context()
            plain = socket.create_connection((self._host, self._port), timeout=SECONDS)
            self._socket = context.wrap_socket(plain, server_hostname=self._host)
            # In TLS 1.3 a server refuses a client's certificate when all seems to be done.
            if _ended(self._socket, OBJECTION_SECONDS):
                raise ConnectionResetError("the syslog server closed the connection at once")
        return self._socket

    def _close(self) -> None:
        one, self._socket = self._socket, None
        if one is not None:
            with contextlib.suppress(OSError, ValueError):
                one.settimeout(1.0)
                one.unwrap()  # says that this is the end
            one.close()


def _ended(one: ssl.SSLSocket, seconds: float) -> bool:
    """Whether the server closes the connection within that time; its objections are raised."""
    one.settimeout(seconds)
    try:
        return one.recv(1) == b""
    except (TimeoutError, ssl.SSLWantReadError):
        return False


def _counted(messages: Sequence[bytes]) -> bytes:
    return b"".join(b"%d %b" % (len(one), one) for one in messages)


@dataclass(slots=True)
class _Datagrams:
    """UDP, or a datagram socket of the host such as /dev/log."""

    family: socket.AddressFamily
    address: str | tuple[str, int]
    connected: socket.socket | None = None

    async def send(self, messages: Sequence[bytes]) -> None:
        try:
            async with asyncio.timeout(SECONDS):
                one = await self._socket()
                for datagram in messages:
                    if len(datagram) > MAX_DATAGRAM:
                        raise TooLongError(f"a datagram of {len(datagram)} bytes")
                    await asyncio.get_running_loop().sock_sendall(one, datagram)
        except (OSError, TimeoutError):
            await self.close()
            raise

    async def close(self) -> None:
        one, self.connected = self.connected, None
        if one is not None:
            one.close()

    async def _socket(self) -> socket.socket:
        if self.connected is not None:
            return self.connected
        loop = asyncio.get_running_loop()
        family: int = self.family
        address: tuple[str | int | bytes, ...] | str = self.address
        if isinstance(self.address, tuple):
            found = await loop.getaddrinfo(*self.address, type=socket.SOCK_DGRAM)
            family, address = found[0][0], found[0][4]
        one = socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        one.settimeout(0)
        try:
            await loop.sock_connect(one, address)
        except OSError:
            one.close()
            raise
        self.connected = one
        return one
