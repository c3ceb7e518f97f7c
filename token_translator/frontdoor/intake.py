"""How much is taken in of a connection: at a time, so that others have their turn, and in all.

asyncssh handles everything that one read brings before anybody else is heard, and before the login
it takes whatever comes.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

READ_BYTES = 32 * 1024
"""About one packet of data as OpenSSH sends it; of the smallest some thousand: 20 ms."""
FIRST_READ_BYTES = 2 * 1024
"""The same before the login: strangers may be many."""
BEFORE_LOGIN = 64 * 1024
"""The key exchange takes a few KiB and a token 16 at most: several attempts have room."""


class Receiving(Protocol):
    """What there is to know here of asyncssh's connections."""

    _transport: asyncio.Transport | None

    def data_received(self, data: bytes) -> None:
        """Handle what came."""


def read_in_turns(connection: Receiving, size: int = READ_BYTES) -> None:
    """Read less at a time from this connection than asyncio would; `size` in bytes."""
    transport = connection._transport  # noqa: SLF001 - asyncssh does not show it
    if transport is not None:  # else the connection is lost already
        transport.max_size = size  # type: ignore[attr-defined] # of asyncio's socket transports


class Intake:
    """Counts the bytes of a connection until its login, and has few read at a time.

    What is beyond `BEFORE_LOGIN` is not handed on; `exceeded` is called once.
    """

    def __init__(self, connection: Receiving, *, exceeded: Callable[[], None]) -> None:
        self._connection = connection
        self._hand_on = connection.data_received
        self._exceeded = exceeded
        self._left: int | None = BEFORE_LOGIN
        read_in_turns(connection, FIRST_READ_BYTES)
        connection.data_received = self._receive  # type: ignore[method-assign] # asyncio's hook

    def open(self) -> None:
        """Count no more: it is known now who they are."""
        self._left = None
        read_in_turns(self._connection)

    def _receive(self, data: bytes) -> None:
        if self._left is None:
            self._hand_on(data)
        elif self._left >= len(data):
            self._left -= len(data)
            self._hand_on(data)
        elif self._left >= 0:
            self._left = -1
            self._exceeded()
