"""What the gateway can do as a user, and one conversation with the session program doing it."""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncGenerator, Callable
from typing import Any, Protocol

import msgspec

from gateway.jobs import Sealed
from gateway.sessions.frames import Decoder, ProtocolError, encode

ANNOUNCE_TIMEOUT = 20.0
REPLY_TIMEOUT = 180.0
CHUNK = 65536


class SessionLost(Exception):  # noqa: N818 - a condition: what was under way is unknown
    """The connection is gone: what was asked may have been done or not."""


class SessionUnavailable(Exception):  # noqa: N818 - a condition
    """No session can be had now: nothing was asked."""


class SessionRefused(Exception):  # noqa: N818 - an answer
    """The session program said no: a code, the words of whom it asked, and the job's files."""

    def __init__(self, code: str, words: str, state: "JobFiles | None" = None) -> None:
        super().__init__(f"{code}: {words}")
        self.code = code
        self.words = words
        self.state = state


class Submitted(msgspec.Struct, frozen=True):
    """sbatch's answer; `words` is what it or the site's plugins said besides."""

    attempt: int
    job_id: int
    words: str = ""


class JobFiles(msgspec.Struct, frozen=True):
    """What the files in a job's directory say; `claim` is "<Slurm job id> <node>"."""

    attempt: int = 0
    submitted: Submitted | None = None
    claim: str | None = None
    exit: int | None = None
    failure: str | None = None


class UserSession(Protocol):
    """One user on one login node. Methods raise SessionLost and SessionRefused."""

    @property
    def alive(self) -> bool:
        """Whether new requests can be sent."""

    async def submit(self, sealed: Sealed, attempt: int) -> Submitted:
        """Hand a job to sbatch, once per attempt; said again, the same answer comes again."""

    async def cancel(self, row: str, job_id: int) -> None:
        """End a job of this row."""

    async def files(self, row: str, directory: str) -> JobFiles | None:
        """What the job's files say once nobody is submitting it; None: there are none."""

    def read(
        self, row: str, directory: str, file: str, *, offset: int, limit: int
    ) -> AsyncGenerator[bytes]:
        """Bytes of `stdout` or `stderr`, in chunks."""

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


class Conversation:
    """A `UserSession` over any pair of byte streams; requests run side by side."""

    def __init__(
        self, *, reader: Reader, writer: Writer, nonce: str, hang_up: Callable[[], None]
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._hang_up = hang_up
        self._decoder = Decoder(nonce)
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Queue[tuple[dict[str, Any], bytes] | None]] = {}
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
            raise SessionUnavailable("the session program does not announce itself") from error
        if not self._decoder.announced:
            await self.close()
            raise SessionUnavailable(f"no session program: {self._decoder.noise()}")

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
        return msgspec.convert(reply, Submitted)

    async def cancel(self, row: str, job_id: int) -> None:
        """See `UserSession`."""
        await self._ask({"op": "cancel", "row": row, "job_id": job_id})

    async def files(self, row: str, directory: str) -> JobFiles | None:
        """See `UserSession`."""
        reply = await self._ask({"op": "state", "row": row, "directory": directory})
        return msgspec.convert(reply["state"], JobFiles | None)

    async def read(
        self, row: str, directory: str, file: str, *, offset: int, limit: int
    ) -> AsyncGenerator[bytes]:
        """See `UserSession`."""
        header = {"op": "read", "row": row, "directory": directory, "file": file}
        async with contextlib.aclosing(
            self._exchange({**header, "offset": offset, "limit": limit})
        ) as frames:
            async for _, body in frames:
                if body:
                    yield body

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
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _ask(self, header: dict[str, Any], body: bytes = b"") -> dict[str, Any]:
        """Send one message, return its one reply."""
        reply: dict[str, Any] = {}
        async for reply, _ in self._exchange(header, body):  # noqa: B007 - the last one counts
            pass
        return reply

    async def _exchange(
        self, header: dict[str, Any], body: bytes = b""
    ) -> AsyncGenerator[tuple[dict[str, Any], bytes]]:
        if self._ended:
            raise SessionLost("the session has ended")
        key = next(self._ids)
        queue: asyncio.Queue[tuple[dict[str, Any], bytes] | None] = asyncio.Queue()
        self._waiting[key] = queue
        try:
            async with asyncio.timeout(REPLY_TIMEOUT):
                await self._send(encode({**header, "id": key}, body))
            more = True
            while more:
                async with asyncio.timeout(REPLY_TIMEOUT):
                    frame = await queue.get()
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
                    queue = self._waiting.get(int(header.get("id", 0)))
                    if queue is not None:
                        queue.put_nowait((header, body))
                if self._decoder.announced:
                    self._announced.set()
        except (OSError, EOFError, ProtocolError):
            self._hang_up()
        finally:
            self._end()
            self._announced.set()

    def _end(self) -> None:
        self._ended = True
        self._answered.set()
        for queue in self._waiting.values():
            queue.put_nowait(None)


def _raise_refusal(reply: dict[str, Any]) -> None:
    if not reply.get("ok"):
        state = msgspec.convert(reply.get("state"), JobFiles | None)
        raise SessionRefused(str(reply.get("code")), str(reply.get("words", "")).strip(), state)
