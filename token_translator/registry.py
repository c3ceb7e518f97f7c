"""Asking the registry which account an identity has here, at the moment it counts."""

from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Literal

import aiohttp
import msgspec
import structlog

from headgate.clock import Clock
from headgate.identity import Identity
from headgate.problems import Forbidden, Unavailable
from token_translator.grants import Account

log = structlog.get_logger(__name__)

MAX_ANSWER = 64 * 1024
AWAY_SECONDS = 1.0
"""How long a registry that failed is taken to be away, without asking it."""
PASSED_ON = ("how_to_ask", "requested_at", "waiting_for")

Headers = Callable[[str], dict[str, str]]


class _Entry(msgspec.Struct, frozen=True):
    account: str
    uid: int
    state: Literal["active", "blocked"]
    reason: str = ""


class _Refusal(msgspec.Struct, frozen=True):
    code: str
    detail: str = ""
    how_to_ask: str = ""
    requested_at: str = ""
    waiting_for: str = ""


class Registry:
    """Client of `GET /v1/accounts`; one question per answer, nothing is kept."""

    def __init__(
        self,
        *,
        url: str,
        timeout: float,
        session: aiohttp.ClientSession,
        headers: Headers,
        clock: Clock,
    ) -> None:
        self._url = url
        self._timeout = aiohttp.ClientTimeout(total=timeout)
        self._session = session
        self._headers = headers
        self._clock = clock
        self._away_until = float("-inf")

    async def account(self, identity: Identity, realm: str) -> Account:
        """The active account of an identity in a realm.

        Raises:
            Forbidden: `account_unknown`, `account_pending` or `account_blocked`, with the
                registry's words about what to do.
            Unavailable: the registry does not answer, or not as it should.
        """
        if self._clock.monotonic() < self._away_until:
            raise _away()
        try:
            status, body = await self._ask(identity, realm)
            if status == HTTPStatus.OK:
                return _active(msgspec.json.decode(body, type=_Entry), realm)
            if status == HTTPStatus.NOT_FOUND:
                raise _refusal(msgspec.json.decode(body, type=_Refusal))
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            self._away_until = self._clock.monotonic() + AWAY_SECONDS
            log.warning("registry_away", error=repr(error))
            raise _away() from error
        log.error("registry_answer", status=status, body=body[:500].decode(errors="replace"))
        raise _away()

    async def ready(self) -> str:
        """A readiness check: whether the registry answers at all."""
        try:
            async with self._session.get(f"{self._base}/livez", timeout=self._timeout):
                return ""
        except (aiohttp.ClientError, TimeoutError) as error:
            return f"the registry does not answer: {error!r}"

    @property
    def _base(self) -> str:
        return self._url.rstrip("/")

    async def _ask(self, identity: Identity, realm: str) -> tuple[int, bytes]:
        async with self._session.get(
            f"{self._base}/v1/accounts",
            params={"iss": identity.iss, "sub": identity.sub, "realm": realm},
            headers=self._headers(self._url),
            timeout=self._timeout,
            allow_redirects=False,
        ) as response:
            body = await response.content.read(MAX_ANSWER)
            return response.status, body


def _active(entry: _Entry, realm: str) -> Account:
    if entry.state != "active":
        reason = f": {entry.reason}" if entry.reason else ""
        raise Forbidden(f"Your account here is blocked{reason}.", code="account_blocked")
    return Account(realm=realm, account=entry.account, uid=entry.uid)


def _refusal(refusal: _Refusal) -> Forbidden:
    if refusal.code not in {"account_unknown", "account_pending"}:
        raise ValueError(f"the registry answers 404 with the code {refusal.code!r}")
    members: dict[str, Any] = {
        name: getattr(refusal, name) for name in PASSED_ON if getattr(refusal, name)
    }
    detail = refusal.detail or "You have no account here."
    return Forbidden(detail, code=refusal.code, members=members)


def _away() -> Unavailable:
    return Unavailable(
        "The registry of accounts cannot be asked at the moment.",
        code="registry_away",
        retry_after=2,
    )
