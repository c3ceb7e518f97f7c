"""`ssh -J`: one TCP connection of a person to an allowed target, end to end theirs."""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import cast

import asyncssh
import structlog

from token_translator.frontdoor.flow import Outflow, Valve

log = structlog.get_logger(__name__)

CONNECT_SECONDS = 10.0


async def connect(
    addresses: Sequence[str], port: int, *, outflow: Outflow, ended: Callable[[], None]
) -> "Jump":
    """A connection to the first of the addresses that answers; `ended` is called at its end.

    Raises:
        OSError: none does. TimeoutError: none in time.
    """
    loop = asyncio.get_running_loop()
    failures: list[OSError] = []
    async with asyncio.timeout(CONNECT_SECONDS):
        for address in addresses:
            try:
                _, side = await loop.create_connection(_TargetSide, address, port)
            except OSError as error:
                failures.append(error)
            else:
                return Jump(side, outflow, ended)
    raise failures[0]


class Jump(asyncssh.SSHTCPSession[bytes]):
    """The person's side."""

    _channel: asyncssh.SSHTCPChannel[bytes]

    def __init__(self, target: "_TargetSide", outflow: Outflow, ended: Callable[[], None]) -> None:
        self._target = target
        self._outflow = outflow
        self._ended = ended
        self._valve = Valve(
            stop=target.transport.pause_reading, start=target.transport.resume_reading
        )

    def connection_made(self, chan: asyncssh.SSHTCPChannel[bytes]) -> None:
        """The channel is open."""
        self._channel = chan

    def session_started(self) -> None:
        """Bytes may flow."""
        self._outflow.add(self._valve)
        self._target.join(self._channel, self._valve)

    def data_received(self, data: bytes, datatype: asyncssh.DataType) -> None:
        """Bytes of the person."""
        del datatype
        self._target.transport.write(data)

    def eof_received(self) -> bool:
        """The person sends no more; the target still may."""
        self._target.finish()
        return True

    def pause_writing(self) -> None:
        """The person reads slower than the target sends."""
        self._valve.full("window")

    def resume_writing(self) -> None:
        """The person has caught up."""
        self._valve.free("window")

    def connection_lost(self, exc: Exception | None) -> None:
        """The person is gone."""
        del exc
        self._outflow.remove(self._valve)
        self._target.transport.abort()
        self._ended()


class _TargetSide(asyncio.Protocol):
    """The target's side."""

    transport: asyncio.Transport

    def __init__(self) -> None:
        self._channel: asyncssh.SSHTCPChannel[bytes] | None = None
        self._finished = False
        self._heard_all = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connected; nothing is read before there is somebody to read it."""
        self.transport = cast("asyncio.Transport", transport)
        self.transport.pause_reading()

    def join(self, channel: asyncssh.SSHTCPChannel[bytes], valve: Valve) -> None:
        """Bytes go to that channel from now on."""
        self._channel = channel
        if self.transport.is_closing():
            channel.close()
        elif not valve.is_shut:
            self.transport.resume_reading()

    def finish(self) -> None:
        """Nothing more will be sent."""
        self._finished = True
        if self._heard_all:
            self.transport.close()
        elif not self.transport.is_closing():
            self.transport.write_eof()

    def data_received(self, data: bytes) -> None:
        """Bytes of the target."""
        if self._channel is not None:
            # A channel that closes meanwhile says so to its own session, and that ends this.
            with contextlib.suppress(BrokenPipeError):
                self._channel.write(data)

    def eof_received(self) -> bool:
        """The target sends no more; the person still may."""
        self._heard_all = True
        if self._channel is not None:
            self._channel.write_eof()
        return not self._finished

    def pause_writing(self) -> None:
        """The target reads slower than the person sends."""
        if self._channel is not None:
            self._channel.pause_reading()

    def resume_writing(self) -> None:
        """The target has caught up."""
        if self._channel is not None:
            self._channel.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """The target is gone."""
        del exc
        if self._channel is not None:
            self._channel.close()
