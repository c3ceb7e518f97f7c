"""Asking the registry which local account an identity has: the client of `GET /v1/accounts`."""

from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Literal

import aiohttp
import msgspec
import structlog

from headgate.clock import Clock
from headgate.discovery import whole
from headgate.identity import Identity
from headgate.problems import Forbidden, Unavailable

log = structlog.get_logger(__name__)

MAX_ANSWER = 64 * 1024
AWAY_SECONDS = 1.0
"""How long a registry that failed is taken to be away, without asking it."""
PASSED_ON = ("how_to_ask", "requested_at", "waiting_for")

Headers = Callable[[str], dict[str, str]]
"""The peer header for the service of that URL: `PeerSigner.headers`."""


class Account(msgspec.Struct, frozen=True):
    """A local account: its name, its ids, and whether it may be used."""

    account: str
    uid: int
    gid: int
    state: Literal["active", "blocked"]
    version: int
    home: str = ""
    reason: str = ""


class Standing(msgspec.Struct, frozen=True):
    """How an identity stands here: an account, or why there is none.

    `facts` are the registry's words for the person: `reason`, or how to ask, or who is waited for.
    """

    state: Literal["active", "blocked", "pending", "unknown"]
    account: Account | None = None
    facts: dict[str, Any] = {}

    def active_account(self) -> Account:
        """The account to act as.

        Raises:
            Forbidden: `account_blocked`, `account_pending` or `account_unknown`; it says who helps.
        """
        if self.account is not None and self.state == "active":
            return self.account
        sentence, code, hint = _REFUSALS[self.state]
        detail = f"{sentence} {self.facts.get(hint, '')}".strip()
        raise Forbidden(detail, code=code, members=self.facts)


_REFUSALS = {
    "blocked": ("Your account on this site is blocked.", "account_blocked", "reason"),
    "pending": ("Your account on this site is not ready yet.", "account_pending", "waiting_for"),
    "unknown": ("You have no account on this site.", "account_unknown", "how_to_ask"),
}


class RegistryClient:
    """One question per answer, nothing is kept; `url` is the registry's as it knows itself."""

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

    async def standing(self, identity: Identity, realm: str) -> Standing:
        """How an identity stands in a realm.

        Raises:
            Unavailable: the registry does not answer, or not as it should.
        """
        if self._clock.monotonic() < self._away_until:
            raise _away()
        try:
            status, body = await self._ask(identity, realm)
            if status == HTTPStatus.OK:
                return _known(msgspec.json.decode(body, type=Account))
            if status == HTTPStatus.NOT_FOUND:
                return _absent(msgspec.json.decode(body, type=dict[str, Any]))
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
            return response.status, await whole(response, MAX_ANSWER)


def _known(account: Account) -> Standing:
    return Standing(account.state, account, {"reason": account.reason} if account.reason else {})


def _absent(document: dict[str, Any]) -> Standing:
    facts = {name: str(document[name]) for name in PASSED_ON if document.get(name)}
    match document.get("code"):
        case "account_unknown":
            return Standing("unknown", None, facts)
        case "account_pending":
            return Standing("pending", None, facts)
        case code:
            raise ValueError(f"the registry answers 404 with the code {code!r}")


def _away() -> Unavailable:
    return Unavailable(
        "The registry of accounts cannot be asked at the moment.",
        code="registry_away",
        retry_after=2,
    )
