"""The change feed as services follow it: who may not act any more, heard within seconds or not.

`GET /v1/changes` of the token translator: an event `snapshot` {version, held: [{iss, sub, realm,
reason}]}, then events `change` {version, iss, sub, realm, effective, reason} with versions that
have no gap, and a comment every 3 s. `realm` is empty where it means all. Whoever has heard nothing
for `SILENT_SECONDS` knows nothing: `current()` is false until the next snapshot.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus

import aiohttp
import msgspec
import structlog

from headgate import sse
from headgate.clock import Clock
from headgate.identity import Identity

log = structlog.get_logger(__name__)

PATH = "/v1/changes"
SILENT_SECONDS = 10.0
"""Without a word for that long, nothing is known any more."""
READ_SECONDS = 7.0
"""Without a word for that long (two heartbeats), the connection is given up for another."""
CONNECT_SECONDS = 3.0
FIRST_PAUSE, LAST_PAUSE = 0.25, 2.0
MAX_EVENT = 32 * 1024 * 1024
"""Bytes of one event: a snapshot of about 200 000 holds."""
CHUNK = 64 * 1024

Headers = Callable[[str], dict[str, str]]
"""The peer header for the service of that URL: `PeerSigner.headers`."""


@dataclass(frozen=True, slots=True)
class Change:
    """An identity may not act any more in a realm (empty: in none), or, `effective`, may again."""

    version: int
    identity: Identity
    realm: str
    effective: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Stale:
    """Nothing was heard for `SILENT_SECONDS`: anybody may have been denied meanwhile."""


Callback = Callable[[Change | Stale], None]


class _Held(msgspec.Struct, frozen=True):
    iss: str
    sub: str
    realm: str
    reason: str = ""


class _Snapshot(msgspec.Struct, frozen=True):
    version: int
    held: tuple[_Held, ...]


class _Change(_Held, frozen=True, kw_only=True):
    version: int
    effective: bool


class _LostError(Exception):
    """This connection is of no more use."""


class ChangeFeed:
    """Follows one translator's feed; `url` is its configured URL, `headers` makes our credential.

    Somebody has to run `follow`; all other methods only look at what it has heard.
    """

    def __init__(
        self, *, url: str, session: aiohttp.ClientSession, headers: Headers, clock: Clock
    ) -> None:
        self._url = url
        self._session = session
        self._headers = headers
        self._clock = clock
        self._callbacks: dict[object, Callback] = {}
        self._held: dict[tuple[Identity, str], str] = {}
        self._version = -1
        self._stale_at = float("-inf")
        self._live = asyncio.Event()
        self._pause = FIRST_PAUSE

    def current(self) -> bool:
        """Whether what is known is no older than `SILENT_SECONDS`."""
        return self._clock.monotonic() < self._stale_at

    def denial(self, identity: Identity, realm: str) -> str | None:
        """Why an identity may not act in a realm; None: nothing is known against it."""
        everywhere = self._held.get((identity, ""))
        return everywhere if everywhere is not None else self._held.get((identity, realm))

    def subscribe(self, callback: Callback) -> Callable[[], None]:
        """Be told of each denial as it is heard, and when the feed goes stale; how to end that.

        Whoever was denied while nothing could be heard is told of with the next snapshot. The
        callback must not block; what it raises is logged.
        """
        token = object()
        self._callbacks[token] = callback

        def end() -> None:
            self._callbacks.pop(token, None)

        return end

    async def until_current(self) -> None:
        """Return once something is known; at once if it is."""
        while not self.current():
            self._live.clear()
            await self._live.wait()

    async def ready(self) -> str:
        """A readiness check: whether the feed is heard."""
        return "" if self.current() else "the change feed of the token translator is silent"

    async def follow(self) -> None:
        """Listen until cancelled; a connection that is lost is made again."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch())
            while True:
                try:
                    await self._listen()
                except (aiohttp.ClientError, TimeoutError, OSError, _LostError) as error:
                    # Once for each outage: what follows is the same again, every two seconds.
                    note = log.warning if self._pause == FIRST_PAUSE else log.debug
                    note("change_feed_lost", error=str(error) or repr(error))
                except Exception:
                    log.exception("change_feed_failed")
                await self._clock.sleep(self._pause)
                self._pause = min(2 * self._pause, LAST_PAUSE)

    async def _watch(self) -> None:
        """Say so, once, whenever nothing has been heard for too long."""
        while True:
            await self.until_current()
            while self.current():
                await self._clock.sleep(self._stale_at - self._clock.monotonic())
            log.error("change_feed_silent", seconds=SILENT_SECONDS)
            self._tell(Stale())

    async def _listen(self) -> None:
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=CONNECT_SECONDS, sock_read=READ_SECONDS
        )
        async with self._session.get(
            self._url.rstrip("/") + PATH,
            headers={**self._headers(self._url), "Accept": sse.MEDIA_TYPE},
            timeout=timeout,
            allow_redirects=False,
        ) as response:
            if response.status != HTTPStatus.OK or response.content_type != sse.MEDIA_TYPE:
                words = (await response.content.read(500)).decode(errors="replace")
                raise _LostError(f"status {response.status}: {words}")
            parser = sse.Parser(max_line=MAX_EVENT)
            heard_all = False
            while chunk := await response.content.read(CHUNK):
                try:
                    for event in parser.feed(chunk):
                        heard_all = self._hear(event) or heard_all
                except (msgspec.MsgspecError, sse.StreamError) as error:
                    raise _LostError(f"not our feed: {error}") from error
                if heard_all:
                    self._alive()
        raise _LostError("the stream has ended")

    def _alive(self) -> None:
        self._pause = FIRST_PAUSE
        self._stale_at = self._clock.monotonic() + SILENT_SECONDS
        self._live.set()

    def _hear(self, event: sse.Event) -> bool:
        """Take one event in; whether everything is known with it."""
        match event.kind:
            case "snapshot":
                self._replace(msgspec.json.decode(event.data, type=_Snapshot))
                return True
            case "change":
                self._apply(msgspec.json.decode(event.data, type=_Change))
        return False

    def _replace(self, snapshot: _Snapshot) -> None:
        if snapshot.version < self._version:
            # An older database knows fewer holds: that frees nobody.
            log.error("change_feed_went_back", known=self._version, now=snapshot.version)
            raise _LostError("the feed went back")
        before = self._held
        self._held = {
            (Identity(held.iss, held.sub), held.realm): held.reason for held in snapshot.held
        }
        self._version = snapshot.version
        for (identity, realm), reason in self._held.items():
            if (identity, realm) not in before:
                self._tell(
                    Change(snapshot.version, identity, realm, effective=False, reason=reason)
                )

    def _apply(self, change: _Change) -> None:
        if change.version <= self._version:
            return
        if change.version != self._version + 1:
            raise _LostError(f"change {change.version} came after {self._version}")
        self._version = change.version
        identity = Identity(change.iss, change.sub)
        if change.effective:
            self._held.pop((identity, change.realm), None)
            return
        self._held[identity, change.realm] = change.reason
        self._tell(
            Change(change.version, identity, change.realm, effective=False, reason=change.reason)
        )

    def _tell(self, heard: Change | Stale) -> None:
        for callback in list(self._callbacks.values()):
            try:
                callback(heard)
            except Exception:
                log.exception("change_not_handled")
