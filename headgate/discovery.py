"""What an issuer publishes about itself: its keys and endpoints, from its own origin, cached."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import msgspec
import structlog
from authlib.oidc.discovery import get_well_known_url
from joserfc import jwk
from joserfc.errors import JoseError
from joserfc.util import urlsafe_b64decode

from headgate.clock import Clock
from headgate.problems import Unauthenticated, Unavailable

log = structlog.get_logger(__name__)

MIN_RSA_BITS = 2048  # RFC 7518, section 3.3
MAX_DOCUMENT_BYTES = 1024 * 1024
KEYS_TTL_SECONDS = 3600.0
KEYS_HARD_TTL_SECONDS = 24 * 3600.0
REFETCH_INTERVAL_SECONDS = 60.0
FETCH_TIMEOUT = aiohttp.ClientTimeout(total=5)
ENDPOINTS = ("jwks_uri", "introspection_endpoint", "userinfo_endpoint")
MISSHAPEN = (KeyError, TypeError, RecursionError)
"""What comes of a JSON document that is not what it should be."""


@dataclass(slots=True)
class _Cached:
    """What is cached of one issuer; times are monotonic seconds."""

    by_kid: dict[str, jwk.Key] = field(default_factory=dict)
    anonymous: list[jwk.Key] = field(default_factory=list)
    endpoints: dict[str, str] = field(default_factory=dict)
    fetched_at: float | None = None
    tried_at: float | None = None


class Discovery:
    """One issuer's metadata (OpenID Connect Discovery, section 4) and keys (RFC 7517).

    They are fetched when first needed, again for an unknown `kid` at most once a minute, and are
    used for a day while the issuer is away.
    """

    def __init__(self, issuer: str, *, session: aiohttp.ClientSession, clock: Clock) -> None:
        self._issuer = issuer
        self._session = session
        self._clock = clock
        self._cached = _Cached()
        self._lock = asyncio.Lock()

    async def key(self, kid: object) -> jwk.Key:
        """The issuer's key of that name; None: its only one, if it has only one.

        Raises:
            Unauthenticated: it publishes no such key. Unavailable: its keys cannot be had.
        """
        # Without the lock: a fetch for somebody's unknown key must not hold up everybody else.
        key = self._find(kid)
        if key is not None and self._age(self._cached.fetched_at) <= KEYS_TTL_SECONDS:
            return key
        async with self._lock:
            if self._find(kid) is None or self._age(self._cached.fetched_at) > KEYS_TTL_SECONDS:
                await self._refresh()
            self._require_fetched()
            key = self._find(kid)
        if key is None:
            raise Unauthenticated("The token is signed by a key its issuer does not publish.")
        return key

    async def endpoint(self, name: str) -> str:
        """Where the issuer answers, by the name in its metadata; empty if it does not say.

        Raises:
            Unavailable: its metadata cannot be had.
        """
        if self._age(self._cached.fetched_at) > KEYS_TTL_SECONDS:
            async with self._lock:
                if self._age(self._cached.fetched_at) > KEYS_TTL_SECONDS:
                    await self._refresh()
        self._require_fetched()
        return self._cached.endpoints.get(name, "")

    def _require_fetched(self) -> None:
        if self._age(self._cached.fetched_at) > KEYS_HARD_TTL_SECONDS:
            raise Unavailable("The token issuer cannot be reached.", retry_after=10)

    def _find(self, kid: object) -> jwk.Key | None:
        if isinstance(kid, str):
            return self._cached.by_kid.get(kid)
        every = [*self._cached.anonymous, *self._cached.by_kid.values()]
        return every[0] if kid is None and len(every) == 1 else None

    def _age(self, since: float | None) -> float:
        return float("inf") if since is None else self._clock.monotonic() - since

    async def _refresh(self) -> None:
        """Fetch the documents, at most once an interval; keep the last good ones on failure."""
        cached = self._cached
        # An issuer that never answered is tried again sooner: its keys are the only way in.
        interval = REFETCH_INTERVAL_SECONDS if cached.fetched_at is not None else 1.0
        if self._age(cached.tried_at) < interval:
            return
        cached.tried_at = self._clock.monotonic()
        try:
            metadata = await self._fetch(get_well_known_url(self._issuer, external=True))
            endpoints = _endpoints(self._issuer, metadata)
            documents = (await self._fetch(endpoints["jwks_uri"]))["keys"]
            by_kid, anonymous = _import_keys(documents)
        except (aiohttp.ClientError, TimeoutError, ValueError, *MISSHAPEN) as error:
            log.warning("issuer_keys_not_fetched", issuer=self._issuer, error=repr(error))
            return
        cached.by_kid, cached.anonymous, cached.endpoints = by_kid, anonymous, endpoints
        cached.fetched_at = self._clock.monotonic()

    async def _fetch(self, url: str) -> dict[str, Any]:
        async with self._session.get(url, allow_redirects=False, timeout=FETCH_TIMEOUT) as response:
            if response.status != HTTPStatus.OK:
                raise ValueError(f"{url} answered {response.status}")
            return await json_object(response)


async def whole(response: aiohttp.ClientResponse, limit: int) -> bytes:
    """An answer's body to its end; raises `ValueError` where it is longer than `limit` bytes."""
    body = bytearray()
    async for chunk in response.content.iter_chunked(65536):
        body += chunk
        if len(body) > limit:
            raise ValueError(f"{response.url} answered more than {limit} bytes")
    return bytes(body)


async def json_object(response: aiohttp.ClientResponse) -> dict[str, Any]:
    """The JSON object of an answer of at most a megabyte.

    Raises:
        ValueError: it is none, or longer.
    """
    document = msgspec.json.decode(await whole(response, MAX_DOCUMENT_BYTES))
    if not isinstance(document, dict):
        raise ValueError("not a JSON object")  # noqa: TRY004 - a fault of the document, not a type
    return document


def _endpoints(issuer: str, metadata: Mapping[str, Any]) -> dict[str, str]:
    """The addresses we use, if they are on the issuer's own origin: no other is ever asked."""
    if metadata["issuer"] != issuer:
        raise ValueError(f"discovery names the issuer {metadata['issuer']!r}")
    origin = urlsplit(issuer)[:2]
    named = {name: str(metadata[name]) for name in ENDPOINTS if name in metadata}
    return {name: url for name, url in named.items() if urlsplit(url)[:2] == origin}


def _import_keys(documents: object) -> tuple[dict[str, jwk.Key], list[jwk.Key]]:
    """Public signing keys of a JWK set (RFC 7517); keys of other uses or kinds are left out."""
    by_kid: dict[str, jwk.Key] = {}
    anonymous: list[jwk.Key] = []
    for document in documents if isinstance(documents, list) else []:
        try:
            key = _import_key(document)
        except (JoseError, ValueError, TypeError, KeyError) as error:
            log.warning("issuer_key_unusable", error=repr(error))
            continue
        kid = document.get("kid")
        if isinstance(kid, str):
            by_kid[kid] = key
        else:
            anonymous.append(key)
    return by_kid, anonymous


def _import_key(document: object) -> jwk.Key:
    if not isinstance(document, dict) or document.get("kty") not in ("RSA", "EC", "OKP"):
        raise ValueError("not a public key of a type that signs")
    if document.get("use", "sig") != "sig":
        raise ValueError("not a key for signatures")
    # Before the library sees it: that only warns.
    if document["kty"] == "RSA" and _bits(str(document["n"])) < MIN_RSA_BITS:
        raise ValueError("RSA key too small")
    if document["kty"] == "OKP" and _is_low_order(str(document["x"])):
        raise ValueError("Ed25519 key of low order")
    return jwk.import_key(document)


def _bits(number: str) -> int:
    return int.from_bytes(urlsafe_b64decode(number.encode()), "big").bit_length()


def _is_low_order(point: str) -> bool:
    """Whether one signature of an Ed25519 key could fit many messages (RFC 8032, section 8.4)."""
    prime = 2**255 - 19
    y = int.from_bytes(urlsafe_b64decode(point.encode()), "little") % 2**255 % prime
    return y in (0, 1, prime - 1, *_ORDER_EIGHT)


_ORDER_EIGHT = (
    0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826,
    0x7A03AC9277FDC74EC6CC392CFA53202A0F67100D760B3CBA4FD84D3D706A17C7,
)
