"""What is taken in of a connection: how much at a time, and how much before the login."""

import asyncio
import socket
from collections.abc import Callable

import pytest

from token_translator.frontdoor.intake import (
    BEFORE_LOGIN,
    FIRST_READ_BYTES,
    READ_BYTES,
    Intake,
    read_in_turns,
)


class Connection(asyncio.Protocol):
    """Notes how much came at a time, as asyncssh's connection keeps its transport."""

    def __init__(self, made: Callable[["Connection"], object] = str) -> None:
        self._made = made
        self._transport: asyncio.BaseTransport | None = None
        self.reads: list[int] = []
        self.ended = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connected."""
        self._transport = transport
        self._made(self)

    def data_received(self, data: bytes) -> None:
        """Note."""
        self.reads.append(len(data))

    def eof_received(self) -> None:
        """All was read."""
        self.ended.set()


def logged_in(connection: Connection) -> None:
    """Count, and count no more."""
    Intake(connection, exceeded=connection.ended.set).open()


def stranger(connection: Connection) -> None:
    """Count."""
    Intake(connection, exceeded=connection.ended.set)


@pytest.mark.parametrize(
    ("made", "most"),
    [(read_in_turns, READ_BYTES), (logged_in, READ_BYTES), (stranger, FIRST_READ_BYTES)],
)
async def test_reads_are_small(made: Callable[[Connection], object], most: int):
    """No single read keeps the others waiting for long, least of all that of a stranger."""
    ours, theirs = socket.socketpair()
    with theirs:
        theirs.sendall(bytes(50_000))
        theirs.shutdown(socket.SHUT_WR)
        transport, connection = await asyncio.get_running_loop().create_connection(
            lambda: Connection(made), sock=ours
        )
        await connection.ended.wait()
        transport.close()
    assert sum(connection.reads) == 50_000
    assert max(connection.reads) == most


def test_too_much_before_the_login():
    """What is beyond the limit is not looked at, and said once."""
    connection, said = Connection(), []
    Intake(connection, exceeded=lambda: said.append("too much"))
    connection.data_received(bytes(BEFORE_LOGIN))
    assert not said
    connection.data_received(b"x")
    connection.data_received(b"x")
    assert said == ["too much"]
    assert connection.reads == [BEFORE_LOGIN]


def test_after_the_login():
    """Who is logged in may send what they like."""
    connection, said = Connection(), []
    intake = Intake(connection, exceeded=lambda: said.append("too much"))
    connection.data_received(bytes(BEFORE_LOGIN))
    intake.open()
    connection.data_received(b"x")
    assert not said
    assert connection.reads == [BEFORE_LOGIN, 1]
