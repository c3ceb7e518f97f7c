"""Asking the registry which local account an identity has."""

from datetime import timedelta
from http import HTTPStatus
from typing import Any

import aiohttp
import msgspec

from headgate.clock import Clock
from headgate.identity import Identity
from headgate.peers import PeerSigner
from headgate.problems import Forbidden, Unavailable

TIMEOUT = aiohttp.ClientTimeout(total=5)
FRESH = timedelta(seconds=2)
"""An answer is used again that long: bursts of one user, not decisions of an administrator."""


class Account(msgspec.Struct, frozen=True):
    """A local account: its name, its ids, and whether it may be used."""

    account: str
    uid: int
    gid: int
    state: str
    version: int
    home: str = ""


class Standing(msgspec.Struct, frozen=True):
    """How an identity stands here: an account, or why there is none."""

    state: str
    account: Account | None = None
    facts: dict[str, Any] = {}


class Registry:
    """The account_importer's read interface."""

    def __init__(
        self, *, url: str, session: aiohttp.ClientSession, signer: PeerSigner, clock: Clock
    ) -> None:
        self._url = url
        self._session = session
        self._signer = signer
        self._clock = clock
        self._recent: dict[tuple[Identity, str], tuple[float, Standing]] = {}

    async def active_account(self, identity: Identity, realm: str) -> Account:
        """The account to act as.

        Raises:
            Forbidden: there is none, or it is blocked; the problem says who can help.
            Unavailable: the registry is away.
        """
        standing = await self.standing(identity, realm)
        if standing.account is not None and standing.state == "active":
            return standing.account
        sentence, code = _REFUSALS.get(standing.state, _REFUSALS["unknown"])
        hint = standing.facts.get("how_to_ask") or standing.facts.get("waiting_for") or ""
        detail = f"{sentence} {hint}".strip()
        raise Forbidden(detail, code=code, members=standing.facts)

    async def standing(self, identity: Identity, realm: str) -> Standing:
        """How an identity stands; raises `Unavailable`."""
        key = (identity, realm)
        now = self._clock.monotonic()
        known = self._recent.get(key)
        if known is not None and now - known[0] < FRESH.total_seconds():
            return known[1]
        standing = await self._ask(identity, realm)
        self._recent = {k: v for k, v in self._recent.items() if now - v[0] < FRESH.total_seconds()}
        self._recent[key] = (now, standing)
        return standing

    async def _ask(self, identity: Identity, realm: str) -> Standing:
        try:
            async with self._session.get(
                f"{self._url}/v1/accounts",
                params={"iss": identity.iss, "sub": identity.sub, "realm": realm},
                headers=self._signer.headers(self._url),
                timeout=TIMEOUT,
            ) as response:
                document = msgspec.json.decode(await response.read(), type=dict[str, Any])
                if response.status == HTTPStatus.OK:
                    account = msgspec.convert(document, Account)
                    facts = {k: document[k] for k in ("reason",) if document.get(k)}
                    return Standing(account.state, account, facts)
        except (aiohttp.ClientError, TimeoutError, msgspec.DecodeError) as error:
            raise Unavailable("The account registry does not answer.", retry_after=5) from error
        if response.status == HTTPStatus.NOT_FOUND:
            state = {"account_pending": "pending"}.get(document.get("code", ""), "unknown")
            names = ("requested_at", "waiting_for", "how_to_ask")
            return Standing(state, None, {k: document[k] for k in names if k in document})
        raise Unavailable("The account registry does not answer.", retry_after=5)


_REFUSALS = {
    "blocked": ("Your account on this site is blocked.", "account_blocked"),
    "pending": ("Your account on this site is not ready yet.", "account_pending"),
    "unknown": ("You have no account on this site.", "account_unknown"),
}
