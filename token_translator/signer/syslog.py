"""Syslog messages, and the three ways to send them: RFC 5424, RFC 5426 (UDP), RFC 6587 (TCP)."""

import asyncio
import contextlib
import json
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import urlsplit

from token_translator.signer.entries import Entry

SEVERITY = 5  # notice
MAX_DATAGRAM = 60_000
SECONDS = 5.0


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


def transport(address: str) -> Transport:
    """The way to an address: `tcp://host:port`, `udp://host:port` or `unix:/path`."""
    if address.startswith("unix:"):
        return _Datagrams(socket.AF_UNIX, address.removeprefix("unix:"))
    parts = urlsplit(address)
    if parts.scheme == "tcp":
        return _Stream(parts.hostname or "", parts.port or 0)
    return _Datagrams(socket.AF_INET, (parts.hostname or "", parts.port or 0))


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
                writer.writelines(b"%d %b" % (len(one), one) for one in messages)
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
