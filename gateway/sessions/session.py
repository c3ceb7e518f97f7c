"""What the gateway can do as a user, and one conversation with the session program doing it."""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import msgspec
import structlog

from gateway.jobs import JobFiles, Sealed, Submitted
from gateway.sessions.frames import MAX_HEADER, Decoder, ProtocolError, encode

T = TypeVar("T")

log = structlog.get_logger(__name__)

ANNOUNCE_TIMEOUT = 20.0
REPLY_TIMEOUT = 180.0
GONE_TIMEOUT = 5.0
CHUNK = 65536
FRAME_COST = 64
"""What a frame counts for besides its body, so that empty ones have a limit too."""
PART = 1024 * 1024
"""At most that much of a file is read at a time: a slow reader must not fill our memory."""


class SessionLost(Exception):  # noqa: N818 - a condition: what was under way is unknown
    """The connection is gone: what was asked may have been done or not."""


class SessionUnavailable(Exception):  # noqa: N818 - a condition
    """No session can be had now: nothing was asked."""


class NodeAway(SessionUnavailable):
    """The login node cannot be reached, or is not the one we know: whoever asks."""


class LoginStuck(SessionUnavailable):
    """The login node answers, but this user's login does not come to an end."""


class NotAdmitted(SessionUnavailable):
    """The login node's sshd refuses this user's certificate."""


class NotCertified(SessionUnavailable):
    """The translator gives no certificate for this, whatever becomes of others.

    `final`: it never will, for this job.
    """

    def __init__(self, words: str, *, final: bool = False) -> None:
        super().__init__(words)
        self.final = final


class SessionDenied(SessionUnavailable):
    """The user may not act at the moment."""


class SessionRefused(Exception):  # noqa: N818 - an answer
    """The session program said no: a code, the words of whom it asked, and the job's files."""

    def __init__(self, code: str, words: str, state: JobFiles | None = None) -> None:
        super().__init__(f"{code}: {words}")
        self.code = code
        self.words = words
        self.state = state


class UserSession(Protocol):
    """One user on one login node. Methods raise SessionLost and SessionRefused."""

    @property
    def alive(self) -> bool:
        """Whether new requests can be sent."""

    async def submit(self, sealed: Sealed, attempt: int) -> Submitted:
        """Hand a job to sbatch, once per attempt; said again, the same answer comes again."""

    async def cancel(self, row: str, job_id: int, directory: str = "") -> None:
        """End a job of this row; with its directory, also what may be started of it later."""

    async def files(self, row: str, directory: str) -> JobFiles | None:
        """What the job's files say once nobody is submitting it; None: there are none."""

    async def withdraw(self, row: str, directory: str, attempt: int) -> bool:
        """Forbid an attempt that nobody has begun, for ever; False: it has begun."""

    def read(
        self, row: str, directory: str, file: str, *, offset: int, limit: int
    ) -> AsyncGenerator[bytes]:
        """Bytes of `stdout` or `stderr`, in chunks."""

    async def request(
        self, header: dict[str, Any], body: bytes = b"", *, expected: int = 0
    ) -> tuple[dict[str, Any], bytes]:
        """One message, its last reply, and the bytes that came with it: `expected` at most."""

    async def drain(self) -> None:
        """Return when nothing that was asked is still under way."""

    async def close(self) -> None:
        """Hang up."""


class Writer(Protocol):
    """The sending end of a pipe or channel."""

    def write(self, data: bytes) -> None:
        """Queue bytes."""

    async def drain(self) -> None:
        """Wait until there is room for more."""


class Reader(Protocol):
    """The receiving end of a pipe or channel."""

    async def read(self, n: int = -1) -> bytes:
        """Some bytes, empty at the end."""


@dataclass(slots=True)
class _Exchange:
    """A request under way: the frames that came for it, and how many bytes may still come."""

    room: int
    frames: asyncio.Queue[tuple[dict[str, Any], bytes] | None] = field(
        default_factory=asyncio.Queue
    )


class Conversation:
    """A `UserSession` over any pair of byte streams; requests run side by side.

    `hang_up` ends the connection at once, `gone` returns when nothing of it is left. `in_force`
    says whether the right it was opened with still is: after its end nothing is asked. The other
    side runs as the user, who may have got hold of it: nothing it says is believed unchecked.
    """

    def __init__(
        self,
        *,
        reader: Reader,
        writer: Writer,
        nonce: str,
        hang_up: Callable[[], None],
        gone: Callable[[], Awaitable[object]],
        in_force: Callable[[], bool] = lambda: True,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._hang_up = hang_up
        self._gone = gone
        self._in_force = in_force
        self._decoder = Decoder(nonce)
        self._ids = itertools.count(1)
        self._waiting: dict[int, _Exchange] = {}
        self._announced = asyncio.Event()
        self._answered = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._ended = False

    @property
    def alive(self) -> bool:
        """Whether new requests can be sent."""
        return not self._ended

    async def start(self) -> None:
        """Wait for the announcement.

        Raises:
            SessionUnavailable: it does not come.
        """
        self._task = asyncio.create_task(self._receive())
        try:
            async with asyncio.timeout(ANNOUNCE_TIMEOUT):
                await self._announced.wait()
        except TimeoutError as error:
            await self.close()
            raise LoginStuck("the session program does not announce itself") from error
        except asyncio.CancelledError:
            await self.close()
            raise
        if not self._decoder.announced:
            await self.close()
            raise SessionUnavailable(f"no session program of ours: {self._decoder.noise()}")

    async def submit(self, sealed: Sealed, attempt: int) -> Submitted:
        """See `UserSession`."""
        script = sealed.script.encode()
        header = {
            "op": "submit",
            "row": sealed.row,
            "sbatch_args": sealed.sbatch_args,
            "directory": sealed.directory,
            "attempt": attempt,
            "script_bytes": len(script),
        }
        reply = await self._ask(header, script + sealed.environment.encode())
        return _understood(reply, Submitted)

    async def cancel(self, row: str, job_id: int, directory: str = "") -> None:
        """See `UserSession`."""
        place = {"directory": directory} if directory else {}
        await self._ask({"op": "cancel", "row": row, "job_id": job_id, **place})

    async def files(self, row: str, directory: str) -> JobFiles | None:
        """See `UserSession`."""
        reply = await self._ask({"op": "state", "row": row, "directory": directory})
        return None if reply.get("state") is None else _understood(reply["state"], JobFiles)

    async def withdraw(self, row: str, directory: str, attempt: int) -> bool:
        """See `UserSession`."""
        header = {"op": "withdraw", "row": row, "directory": directory, "attempt": attempt}
        return (await self._ask(header)).get("withdrawn") is True

    async def read(
        self, row: str, directory: str, file: str, *, offset: int, limit: int
    ) -> AsyncGenerator[bytes]:
        """See `UserSession`."""
        # A part is asked for when the one before is taken: that bounds what waits in memory.
        end = offset + limit
        while offset < end:
            asked = min(PART, end - offset)
            header = {"op": "read", "row": row, "directory": directory, "file": file}
            exchange = self._exchange({**header, "offset": offset, "limit": asked}, expected=asked)
            got = 0
            async with contextlib.aclosing(exchange) as frames:
                async for _, body in frames:
                    got += len(body)
                    if body:
                        yield body
            if got < asked:
                return
            offset += got

    async def request(
        self, header: dict[str, Any], body: bytes = b"", *, expected: int = 0
    ) -> tuple[dict[str, Any], bytes]:
        """See `UserSession`."""
        reply: dict[str, Any] = {}
        parts = []
        async with contextlib.aclosing(self._exchange(header, body, expected=expected)) as frames:
            async for reply, part in frames:  # noqa: B007 - the last one counts
                parts.append(part)
        return reply, b"".join(parts)

    async def drain(self) -> None:
        """Return when nothing that was asked is still under way."""
        while self._waiting and not self._ended:
            self._answered.clear()
            await self._answered.wait()

    async def close(self) -> None:
        """Hang up; whoever waits for a reply hears `SessionLost`."""
        self._end()
        self._hang_up()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        try:
            async with asyncio.timeout(GONE_TIMEOUT):
                await self._gone()
        except TimeoutError:
            log.warning("session_lingers")

    async def _ask(self, header: dict[str, Any], body: bytes = b"") -> dict[str, Any]:
        """Send one message, return its one reply."""
        return (await self.request(header, body))[0]

    async def _exchange(
        self, header: dict[str, Any], body: bytes = b"", *, expected: int = 0
    ) -> AsyncGenerator[tuple[dict[str, Any], bytes]]:
        if self._ended:
            raise SessionLost("the session has ended")
        if not self._in_force():
            raise SessionUnavailable("the session's certificate has ended")
        key = next(self._ids)
        exchange = self._waiting[key] = _Exchange(room=expected + MAX_HEADER)
        try:
            async with asyncio.timeout(REPLY_TIMEOUT):
                await self._send(encode({**header, "id": key}, body))
            more = True
            while more:
                async with asyncio.timeout(REPLY_TIMEOUT):
                    frame = await exchange.frames.get()
                if frame is None:
                    raise SessionLost("the session ended before it answered")
                reply = frame[0]
                _raise_refusal(reply)
                yield frame
                more = bool(reply.get("more"))
        except TimeoutError as error:
            # What it does with the request now, nobody knows: this session is not asked again.
            self._end()
            self._hang_up()
            raise SessionLost("the session did not answer in time") from error
        finally:
            del self._waiting[key]
            self._answered.set()

    async def _send(self, data: bytes) -> None:
        try:
            self._writer.write(data)
            await self._writer.drain()
        except (OSError, EOFError) as error:
            self._end()
            raise SessionLost("the session has ended") from error

    async def _receive(self) -> None:
        try:
            while data := await self._reader.read(CHUNK):
                for header, body in self._decoder.feed(data):
                    self._hand_on(header, body)
                if self._decoder.announced:
                    self._announced.set()
        except ProtocolError as error:
            log.warning("session_breaks_protocol", error=str(error))
            self._hang_up()
        except (OSError, EOFError):
            self._hang_up()
        finally:
            self._end()
            self._announced.set()

    def _hand_on(self, header: dict[str, Any], body: bytes) -> None:
        """Give a frame to whoever waits for it; nobody does any more where they gave up."""
        key = header.get("id")
        exchange = self._waiting.get(key) if isinstance(key, int) else None
        if exchange is None:
            return
        exchange.room -= len(body) + FRAME_COST
        if exchange.room < 0:
            raise ProtocolError("more than was asked for")
        exchange.frames.put_nowait((header, body))

    def _end(self) -> None:
        self._ended = True
        self._answered.set()
        for exchange in self._waiting.values():
            exchange.frames.put_nowait(None)


def _understood(value: object, kind: type[T]) -> T:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise SessionLost(f"an answer that is none: {error}") from error


def _raise_refusal(reply: dict[str, Any]) -> None:
    if not reply.get("ok"):
        state = reply.get("state")
        files = None if state is None else _understood(state, JobFiles)
        raise SessionRefused(str(reply.get("code")), str(reply.get("words", "")).strip(), files)
