"""Telling the token translator who is blocked, as holds of ours there: until it knows, and again.

There is no queue that could be lost: the registry says who has to be held, the table `holds` what
the translator was told, and the difference is what is still to be said.
"""

from collections.abc import Awaitable, Callable, Sequence
from http import HTTPStatus
from typing import Protocol, TypeVar

import aiohttp
import msgspec
import structlog

from account_importer.directory import Denial
from account_importer.store import Store, StoreError
from headgate.clock import Clock
from headgate.discovery import whole
from headgate.identity import Identity

log = structlog.get_logger(__name__)

AT_ONCE = 200
AWAY_SECONDS = 5.0
"""After a failure nothing is said for that long; of one who is refused, ever longer."""
LONGEST_PAUSE = 300.0
TIMEOUT = aiohttp.ClientTimeout(total=10)
MAX_ANSWER = 64 * 1024

T = TypeVar("T")
Headers = Callable[[str], dict[str, str]]

REASONS = {
    Denial.INACTIVE: "your account at the identity provider is inactive",
    Denial.EXPIRED: "your account at the identity provider has ended",
    Denial.ABSENT: "the identity provider does not know you any more",
    Denial.NOT_ELIGIBLE: "you are in no group that may use this site",
}
"""What the person is told, by the registry's reason."""


class NotToldError(Exception):
    """The translator refuses this one."""


class AwayError(NotToldError):
    """The translator takes nothing now."""


class Translator(Protocol):
    """Where holds are."""

    async def place(self, identity: Identity, realm: str, reason: str) -> str:
        """Put a hold of ours in force, or find it in force; its id. Raises NotToldError."""

    async def lift(self, hold: str) -> None:
        """Take one back; one that is gone is well. Raises NotToldError."""


class _Hold(msgspec.Struct, frozen=True):
    id: str


class TranslatorClient:
    """The translator's routes for holds; `url` is its own, as it knows itself."""

    def __init__(self, *, url: str, session: aiohttp.ClientSession, headers: Headers) -> None:
        self._url = url
        self._session = session
        self._headers = headers

    async def place(self, identity: Identity, realm: str, reason: str) -> str:
        """Put a hold of ours in force, or find it in force; its id. Raises NotToldError."""
        body = {"iss": identity.iss, "sub": identity.sub, "realm": realm, "reason": reason}
        status, answer = await self._call("POST", "/v1/holds", body)
        if status not in {HTTPStatus.OK, HTTPStatus.CREATED}:
            raise NotToldError(f"status {status}: {_words(answer)}")
        try:
            return msgspec.json.decode(answer, type=_Hold).id
        except msgspec.MsgspecError as error:
            raise NotToldError(f"an answer that is none: {error}") from error

    async def lift(self, hold: str) -> None:
        """Take one back; one that is gone is well. Raises NotToldError."""
        status, answer = await self._call("DELETE", f"/v1/holds/{hold}")
        if status not in {HTTPStatus.NO_CONTENT, HTTPStatus.NOT_FOUND}:
            raise NotToldError(f"status {status}: {_words(answer)}")

    async def _call(self, method: str, path: str, body: object = None) -> tuple[int, bytes]:
        try:
            async with self._session.request(
                method,
                self._url.rstrip("/") + path,
                data=None if body is None else msgspec.json.encode(body),
                headers={**self._headers(self._url), "Content-Type": "application/json"},
                timeout=TIMEOUT,
                allow_redirects=False,
            ) as response:
                answer = await whole(response, MAX_ANSWER)
                if response.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
                    raise AwayError(f"status {response.status}: {_words(answer)}")
                return response.status, answer
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise AwayError(repr(error)) from error


class _Refusals:
    """Who was refused, and when they come again; they stand at nobody else's place meanwhile."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._pauses: dict[Identity, tuple[float, float]] = {}

    def __len__(self) -> int:
        return len(self._pauses)

    def waiting(self, identity: Identity) -> bool:
        """Whether it is too early for this one."""
        until, _ = self._pauses.get(identity, (float("-inf"), 0.0))
        return self._clock.monotonic() < until

    def add(self, identity: Identity) -> None:
        """Refused, once more."""
        now = self._clock.monotonic()
        _, pause = self._pauses.get(identity, (now, 0.0))
        pause = min(2 * pause, LONGEST_PAUSE) or AWAY_SECONDS
        self._pauses[identity] = (now + pause, pause)

    def forget(self, identity: Identity) -> None:
        """Not refused."""
        self._pauses.pop(identity, None)

    def forget_old(self) -> None:
        """Of whom nothing was to be said for long: there is nothing to say any more."""
        oldest = self._clock.monotonic() - 2 * LONGEST_PAUSE
        self._pauses = {who: wait for who, wait in self._pauses.items() if wait[0] > oldest}


class Denying:
    """Keeps the translator's holds of ours as the registry says."""

    def __init__(self, *, store: Store, translator: Translator, realm: str, clock: Clock) -> None:
        self._store = store
        self._translator = translator
        self._realm = realm
        self._clock = clock
        self._quiet_until = float("-inf")
        self._refusals = _Refusals(clock)

    async def turn(self) -> None:
        """Say what is still to be said, denials first; a failure is logged and said again later."""
        if self._clock.monotonic() < self._quiet_until:
            return
        failures: list[str] = []
        self._refusals.forget_old()
        most = AT_ONCE + len(self._refusals)
        try:
            async with self._store.reading(self._realm) as book:
                blocked = await book.holds.to_place(self._clock.now(), limit=most)
                freed = await book.holds.to_lift(self._clock.now(), limit=most)
            for identity, why in self._next(blocked):
                failures += await self._refused(identity, self._place(identity, why))
            for identity, hold in self._next(freed):
                failures += await self._refused(identity, self._lift(identity, hold))
        except (AwayError, StoreError) as error:
            self._quiet_until = self._clock.monotonic() + AWAY_SECONDS
            failures.append(str(error))
        if failures:
            log.error("translator_not_told", count=len(failures), first=failures[0])

    def _next(self, wanted: Sequence[tuple[Identity, T]]) -> list[tuple[Identity, T]]:
        """Those whose turn it is."""
        return [one for one in wanted if not self._refusals.waiting(one[0])][:AT_ONCE]

    async def _refused(self, identity: Identity, telling: Awaitable[None]) -> list[str]:
        """One refusal does not hold up the others."""
        try:
            await telling
        except AwayError:
            raise
        except NotToldError as error:
            self._refusals.add(identity)
            return [str(error)]
        self._refusals.forget(identity)
        return []

    async def _place(self, identity: Identity, why: Denial) -> None:
        reason = REASONS.get(why, "your account on this site is blocked")
        hold = await self._translator.place(identity, self._realm, reason)
        async with self._store.writing(self._realm) as book:
            await book.holds.placed(identity, hold, self._clock.now())
        log.warning("held", sub=identity.sub, hold=hold, reason=why.value)

    async def _lift(self, identity: Identity, hold: str) -> None:
        await self._translator.lift(hold)
        async with self._store.writing(self._realm) as book:
            await book.holds.lifted(identity)
        log.warning("released", sub=identity.sub, hold=hold)


def _words(answer: bytes) -> str:
    return answer[:500].decode(errors="replace")
