"""Who is held, as this replica knows it; and the change feed's sending end, made of the same."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Collection, Sequence
from typing import Protocol

import msgspec
import structlog

from headgate import sse
from headgate.changes import Change
from headgate.clock import Clock
from headgate.identity import Identity
from headgate.problems import TooMany, Unavailable
from token_translator.holds import EVERYWHERE, Hold

log = structlog.get_logger(__name__)

LOOK_SECONDS = 0.2
"""Another replica's commits are seen that much later at most; our own at once."""
KNOWN_SECONDS = 0.4
"""What was seen longer ago is looked up before somebody is said to be free."""
MAX_LOOK = 6.0
"""Who waits for a look, and for those before it, waits no longer."""
SETTLED_SECONDS = 0.6
"""That long after a commit every replica knows of it: see `suspending`."""
HEARTBEAT_SECONDS = 3.0
MAX_LISTENERS = 256
MAX_BEHIND = 256
"""Parts that may wait for one listener; who falls further behind is cut off and comes back."""
CHANGES_AT_ONCE = 500


class Source(Protocol):
    """Where holds and their changes are; all methods raise `Unavailable`."""

    async def head(self) -> int:
        """The newest change's version."""

    async def changes(self, *, after: int, limit: int) -> Sequence[Change]:
        """The changes after a version, the oldest first."""

    async def everybody_held(self) -> tuple[int, Sequence[Hold]]:
        """A version and all holds in force then, of one identity and realm the oldest last."""


class Whole(Protocol):
    """Whether the database is the one that was written last."""

    async def require(self) -> None:
        """Return if it is; raises `Unavailable`."""

    def suspect(self) -> None:
        """It is not: its changes are fewer than they were."""


class _Held(msgspec.Struct, frozen=True):
    iss: str
    sub: str
    realm: str
    reason: str


class _Snapshot(msgspec.Struct, frozen=True):
    version: int
    held: list[_Held]


class _Change(msgspec.Struct, frozen=True):
    version: int
    iss: str
    sub: str
    realm: str
    effective: bool
    reason: str


class _Listener:
    """The parts that one connection of a service has still to send, then None."""

    def __init__(self, instance: str) -> None:
        self.instance = instance
        self.parts: asyncio.Queue[bytes | None] = asyncio.Queue()

    def give(self, part: bytes) -> bool:
        """Queue a part; False: it is too far behind, and this is its end."""
        behind = self.parts.qsize() >= MAX_BEHIND
        self.parts.put_nowait(None if behind else part)
        return not behind

    def end(self) -> None:
        """Nothing comes any more."""
        self.parts.put_nowait(None)


class Feed:
    """What is held as the database has it, and everybody who listens; somebody runs `run`.

    It is the `Holds` that is asked before and after each signature: from memory, for the price of
    a few small questions a second to the database.

    Heartbeats are sent only after a look at the database that worked: a listener must not believe
    that it hears everything while we do not. An older database put back under us (`whole`) is as
    good as none: nobody is said to be free because it does not know of a hold.
    """

    def __init__(self, *, source: Source, clock: Clock, whole: Whole) -> None:
        self._source = source
        self._whole = whole
        self._clock = clock
        self._held: dict[tuple[str, str, str], str] = {}
        self._version = -1
        self._listeners: set[_Listener] = set()
        self._looking = asyncio.Lock()
        self._looks_begun = 0
        self._last_look = 0
        self._seen_at = float("-inf")
        self._beat_at = float("-inf")
        self._closed = False

    async def run(self) -> None:
        """Look for changes for ever."""
        failing = False
        while True:
            try:
                await self.look()
                self._beat()
                failing = False
            except Unavailable as problem:
                if not failing:
                    log.warning("changes_not_seen", why=repr(problem.__cause__))
                failing = True
            except Exception:
                log.exception("changes_not_seen")
            await self._clock.sleep(LOOK_SECONDS)

    async def denial(self, identity: Identity, realm: str) -> str | None:
        """Why an identity may not act in a realm, as of `KNOWN_SECONDS` ago at most; None: it may.

        Raises:
            Unavailable: the database is away, or an older one, so that nobody knows.
        """
        await self._whole.require()
        if self._clock.monotonic() - self._seen_at > KNOWN_SECONDS:
            await self.look()
        everywhere = self._held.get((identity.iss, identity.sub, EVERYWHERE))
        if everywhere is not None:
            return everywhere
        return self._held.get((identity.iss, identity.sub, realm))

    async def look(self) -> None:
        """See what has changed by now and tell it; raises `Unavailable`, in `MAX_LOOK` at most."""
        try:
            async with asyncio.timeout(MAX_LOOK):
                await self._look()
        except TimeoutError as error:
            raise Unavailable(
                "The database does not answer.", code="database_away", retry_after=1
            ) from error

    async def _look(self) -> None:
        begun_before = self._looks_begun
        async with self._looking:
            if self._last_look > begun_before:
                return  # somebody has looked since we came
            self._looks_begun += 1
            begun_at = self._clock.monotonic()
            await self._catch_up()
            self._last_look, self._seen_at = self._looks_begun, begun_at

    async def _catch_up(self) -> None:
        await self._whole.require()
        while (head := await self._source.head()) != self._version:
            if head < self._version:
                self._whole.suspect()
                await self._whole.require()
            changes = await self._source.changes(after=self._version, limit=CHANGES_AT_ONCE)
            if self._version < 0 or not self._follow(changes):
                await self._begin()
                return
            for change in changes:
                self._apply(change)

    @contextlib.asynccontextmanager
    async def listening(self, instance: str) -> AsyncIterator[AsyncIterator[bytes]]:
        """What one service has to be sent, from the snapshot on, while the context is open.

        Raises:
            Unavailable: the database is away. TooMany: too many listen here.
        """
        if self._closed or len(self._listeners) >= MAX_LISTENERS:
            raise TooMany("Too many listen here.", retry_after=5)
        await self.look()
        listener = _Listener(instance)
        listener.give(self._snapshot())
        self._listeners.add(listener)
        try:
            yield _parts(listener)
        finally:
            self._listeners.discard(listener)

    def send_away(self, instances: Collection[str]) -> None:
        """End the streams of these services: they may not listen any more."""
        for listener in self._listeners:
            if listener.instance in instances:
                listener.end()

    def close(self) -> None:
        """Send everybody away."""
        self._closed = True
        for listener in self._listeners:
            listener.end()

    def _follow(self, changes: Sequence[Change]) -> bool:
        """Whether these are the very next ones."""
        first, count = self._version + 1, len(changes)
        return count > 0 and [c.version for c in changes] == list(range(first, first + count))

    async def _begin(self) -> None:
        """Read everything; who listens already has to begin again, too."""
        self._version, holds = await self._source.everybody_held()
        self._held = {
            (hold.identity.iss, hold.identity.sub, hold.realm): hold.told for hold in holds
        }
        for listener in self._listeners:
            listener.end()

    def _apply(self, change: Change) -> None:
        iss, sub = change.identity.iss, change.identity.sub
        self._version = change.version
        if change.effective:
            self._held.pop((iss, sub, change.realm), None)
        else:
            self._held[iss, sub, change.realm] = change.reason
        told = _Change(change.version, iss, sub, change.realm, change.effective, change.reason)
        self._send(_event("change", change.version, told))

    def _snapshot(self) -> bytes:
        held = [_Held(*key, reason) for key, reason in self._held.items()]
        return _event("snapshot", self._version, _Snapshot(self._version, held))

    def _beat(self) -> None:
        if self._clock.monotonic() - self._beat_at >= HEARTBEAT_SECONDS:
            self._beat_at = self._clock.monotonic()
            self._send(sse.HEARTBEAT)

    def _send(self, part: bytes) -> None:
        self._listeners = {listener for listener in self._listeners if listener.give(part)}


async def _parts(listener: _Listener) -> AsyncIterator[bytes]:
    while (part := await listener.parts.get()) is not None:
        yield part


def _event(kind: str, version: int, document: msgspec.Struct) -> bytes:
    return sse.Event(kind, msgspec.json.encode(document), str(version)).encode()
