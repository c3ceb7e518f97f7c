"""Asking an issuer about a token: introspection (RFC 7662) and userinfo, kept for a while."""

import asyncio
import hashlib
from base64 import b64encode
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import aiohttp
import msgspec
import structlog

from headgate.clock import Clock
from headgate.discovery import FETCH_TIMEOUT, MISSHAPEN, Discovery, json_object
from headgate.problems import Unavailable
from headgate.settings import Section, read_secret

log = structlog.get_logger(__name__)

AWAY_SECONDS = 2.0
"""How long an endpoint that failed is taken to be away, without asking it."""
INACTIVE_SECONDS = 10.0
USERINFO_SECONDS = 300.0
MAX_ANSWERS = 4096
STRIPES = 32

_ABOUT_THE_TOKEN = frozenset(range(400, 500)) - {408, 429}
_REFUSALS = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)

Claims = Mapping[str, Any]


class IntrospectionSettings(Section, frozen=True):
    """Our client at the one issuer that is asked about opaque tokens.

    `client_secret_file` has mode 0600. An answer is used again for `cache_seconds`: for so long a
    token that was revoked meanwhile still counts.
    """

    client_id: Annotated[str, msgspec.Meta(min_length=1)]
    client_secret_file: str
    cache_seconds: Annotated[float, msgspec.Meta(ge=0, le=300)] = 60.0

    def authorization(self) -> str:
        """HTTP Basic with both words form-encoded first (RFC 6749, section 2.3.1).

        Raises:
            SettingsError: the secret cannot be read.
        """
        secret = read_secret(Path(self.client_secret_file))
        words = f"{quote(self.client_id, safe='')}:{quote(secret, safe='')}"
        return f"Basic {b64encode(words.encode()).decode()}"


class Inquiry:
    """What one issuer says about tokens of its own; no token is ever sent elsewhere."""

    def __init__(
        self,
        settings: IntrospectionSettings | None,
        *,
        discovery: Discovery,
        session: aiohttp.ClientSession,
        clock: Clock,
    ) -> None:
        self._authorization = settings.authorization() if settings else ""
        self._cache_seconds = settings.cache_seconds if settings else 0.0
        self._introspection = _Endpoint("introspection_endpoint", discovery, session, clock)
        self._userinfo = _Endpoint("userinfo_endpoint", discovery, session, clock)
        self._introspected = _Answers(clock)
        self._informed = _Answers(clock)

    @property
    def introspects(self) -> bool:
        """Whether this is the issuer that is asked about opaque tokens."""
        return bool(self._authorization)

    async def introspect(self, token: str) -> Claims | None:
        """The claims of a token that is active (RFC 7662, section 2.2); None if it is not.

        Raises:
            Unavailable: the issuer does not answer, or refuses our client.
        """

        async def ask() -> tuple[Claims | None, float]:
            status, document = await self._introspection.ask(
                "POST",
                {"Authorization": self._authorization},
                {"token": token, "token_type_hint": "access_token"},
            )
            if status in _REFUSALS:
                log.error("introspection_client_refused", status=status)
                raise _away()
            # Only the literal: `"false"` and 1 are no word of the specification.
            if document.get("active") is not True:
                return None, min(self._cache_seconds, INACTIVE_SECONDS)
            return document, self._cache_seconds

        return await self._introspected.get(token, ask)

    async def userinfo(self, token: str) -> Claims:
        """What the issuer tells the bearer (OpenID Connect Core, section 5.3); often nothing.

        Raises:
            Unavailable: the issuer does not answer.
        """

        async def ask() -> tuple[Claims | None, float]:
            if not await self._userinfo.url():
                return {}, USERINFO_SECONDS
            # 401 and 403 are for tokens without `openid`, and for those that are no person's.
            authorization = {"Authorization": f"Bearer {token}"}
            status, document = await self._userinfo.ask("GET", authorization)
            lasting = status == HTTPStatus.OK or status in _REFUSALS
            return document, USERINFO_SECONDS if lasting else INACTIVE_SECONDS

        return await self._informed.get(token, ask) or {}


Ask = Callable[[], Awaitable[tuple[Claims | None, float]]]
"""Asks once: the claims (None: nothing good), and for how many seconds they may be used again."""


@dataclass(frozen=True, slots=True)
class _Answer:
    claims: Claims | None
    until: float


class _Answers:
    """Answers by the digest of the token; a token is asked about once, however many bring it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept: OrderedDict[bytes, _Answer] = OrderedDict()
        # As many questions at a time as there are locks: made-up tokens are no amplifier.
        self._locks = [asyncio.Lock() for _ in range(STRIPES)]

    async def get(self, token: str, ask: Ask) -> Claims | None:
        digest = hashlib.sha256(token.encode()).digest()
        kept = self._find(digest)
        if kept is None:
            async with self._locks[digest[0] % STRIPES]:
                kept = self._find(digest) or self._keep(digest, *await ask())
        return kept.claims

    def _find(self, digest: bytes) -> _Answer | None:
        kept = self._kept.get(digest)
        return kept if kept and self._clock.monotonic() < kept.until else None

    def _keep(self, digest: bytes, claims: Claims | None, seconds: float) -> _Answer:
        answer = _Answer(claims, self._clock.monotonic() + seconds)
        self._kept[digest] = answer
        self._kept.move_to_end(digest)
        while len(self._kept) > MAX_ANSWERS:
            self._kept.popitem(last=False)
        return answer


class _Endpoint:
    """One of the issuer's endpoints; while it is known to be away it is not asked."""

    def __init__(
        self, name: str, discovery: Discovery, session: aiohttp.ClientSession, clock: Clock
    ) -> None:
        self._name = name
        self._discovery = discovery
        self._session = session
        self._clock = clock
        self._away_until = float("-inf")

    async def url(self) -> str:
        """Where it is; empty if the issuer has none on its own origin."""
        return await self._discovery.endpoint(self._name)

    async def ask(
        self, method: str, headers: Mapping[str, str], form: Mapping[str, str] | None = None
    ) -> tuple[int, Claims]:
        """The document of a 200; a 4xx without one, but for 408 and 429: it is about this token.

        Raises:
            Unavailable: there is no answer, or another one. For a while nobody is asked then.
        """
        url = await self.url()
        if not url:
            log.error("issuer_without_endpoint", endpoint=self._name)
            raise _away()
        if self._clock.monotonic() < self._away_until:
            raise _away()
        try:
            return await self._answer(method, url, headers, form)
        except (aiohttp.ClientError, TimeoutError, ValueError, *MISSHAPEN) as error:
            self._away_until = self._clock.monotonic() + AWAY_SECONDS
            log.warning("issuer_not_answering", endpoint=self._name, error=repr(error))
            raise _away() from error

    async def _answer(
        self, method: str, url: str, headers: Mapping[str, str], form: Mapping[str, str] | None
    ) -> tuple[int, Claims]:
        async with self._session.request(
            method,
            url,
            headers={"Accept": "application/json", **headers},
            data=form,
            allow_redirects=False,
            timeout=FETCH_TIMEOUT,
        ) as response:
            if response.status == HTTPStatus.OK:
                return response.status, await json_object(response)
            if response.status in _ABOUT_THE_TOKEN:
                if response.status not in _REFUSALS:
                    log.warning("token_not_read", endpoint=self._name, status=response.status)
                return response.status, {}
            raise ValueError(f"it answered {response.status}")


def _away() -> Unavailable:
    return Unavailable("The token issuer cannot be asked at the moment.", retry_after=2)
