"""From a bearer token to a Principal: exact issuer, listed algorithms, own audience."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import Any, Literal
from urllib.parse import urlsplit

import aiohttp
import msgspec
import structlog
from authlib.oidc.discovery import get_well_known_url
from joserfc import jwk
from joserfc.errors import JoseError
from joserfc.util import urlsafe_b64decode

from headgate.clock import Clock
from headgate.identity import Identity, Principal
from headgate.problems import Unauthenticated, Unavailable
from headgate.settings import Section
from headgate.signatures import SignatureError, unverified, verified

log = structlog.get_logger(__name__)

Algorithm = Literal[
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA", "Ed25519"
]
"""What an administrator can list: signatures with a public key, nothing else."""
SKEW = timedelta(seconds=60)
MIN_RSA_BITS = 2048  # RFC 7518, section 3.3
MAX_SUBJECT = 255  # OpenID Connect Core, section 2
MAX_TOKEN_BYTES = 16 * 1024
MAX_DOCUMENT_BYTES = 1024 * 1024
KEYS_TTL_SECONDS = 3600.0
KEYS_HARD_TTL_SECONDS = 24 * 3600.0
REFETCH_INTERVAL_SECONDS = 60.0
FETCH_TIMEOUT = aiohttp.ClientTimeout(total=5)
_MISSHAPEN = (KeyError, TypeError, RecursionError)
"""What comes of a JSON document that is not what it should be."""


class IssuerSettings(Section, frozen=True):
    """One trusted issuer. `url` is compared with `iss` byte for byte, trailing slash included.

    `audiences` are accepted besides the service's own; `client_audiences` maps a `client_id` to
    audiences (`""`: none at all) that are accepted from that client alone.
    """

    url: str
    audiences: tuple[str, ...] = ()
    client_audiences: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    required_scopes: tuple[str, ...] = ()
    algorithms: tuple[Algorithm, ...] = ("RS256", "ES256", "EdDSA")
    groups_claim: str = "groups"


@dataclass(slots=True)
class _Keys:
    """What is cached of one issuer; times are monotonic seconds."""

    by_kid: dict[str, jwk.Key] = field(default_factory=dict)
    anonymous: list[jwk.Key] = field(default_factory=list)
    fetched_at: float | None = None
    tried_at: float | None = None
    userinfo_endpoint: str = ""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class TokenVerifier:
    """Verifies access tokens (RFC 9068, RFC 8725) of the configured issuers for one audience.

    Nothing is fetched for an issuer that is not configured. Keys are fetched when first needed,
    again for an unknown `kid` at most once a minute, and are used for a day while the issuer is
    away.
    """

    def __init__(
        self,
        *,
        issuers: Sequence[IssuerSettings],
        audience: str,
        session: aiohttp.ClientSession,
        clock: Clock,
    ) -> None:
        self._issuers: Mapping[str, IssuerSettings] = {issuer.url: issuer for issuer in issuers}
        self._audience = audience
        self._session = session
        self._clock = clock
        self._keys = {url: _Keys() for url in self._issuers}

    async def verify(self, token: str, *, also_accept: frozenset[str] = frozenset()) -> Principal:
        """The principal of a compact JWT; `also_accept` are further audiences (a peer's).

        Raises:
            Unauthenticated: for every fault of the token, with a sentence that says which.
            Unavailable: the issuer's keys are needed and cannot be had.
        """
        header, unverified = _peek(token)
        issuer = self._issuers.get(str(unverified.get("iss")))
        if issuer is None:
            raise Unauthenticated("The token is from an issuer that is not trusted here.")
        if header.get("alg") not in issuer.algorithms:
            raise Unauthenticated("The token is signed with an algorithm that is not accepted.")
        if "crit" in header or header.get("b64") is False:
            raise Unauthenticated("The token has critical header parameters; none is understood.")
        key = await self._key(issuer, header)
        try:
            claims = verified(token, key, algorithms=issuer.algorithms)
        except SignatureError as error:
            raise Unauthenticated("The token's signature is not valid.") from error
        return self._principal(issuer, header, claims, also_accept)

    def _principal(
        self,
        issuer: IssuerSettings,
        header: Mapping[str, Any],
        claims: Mapping[str, Any],
        also_accept: frozenset[str],
    ) -> Principal:
        if claims.get("iss") != issuer.url:
            raise Unauthenticated("The token is from an issuer that is not trusted here.")
        if str(header.get("typ", "JWT")).lower() not in {"jwt", "at+jwt", "application/at+jwt"}:
            raise Unauthenticated("The token is not an access token.")
        if "nonce" in claims or "at_hash" in claims:
            raise Unauthenticated("This is an ID token; an access token is needed.")
        expires_at = self._check_times(claims)
        subject = claims.get("sub")
        if not isinstance(subject, str) or not subject or len(subject) > MAX_SUBJECT:
            raise Unauthenticated("The token has no usable subject.")
        client_id = _text(claims, "client_id") or _text(claims, "azp")
        audience = _words(claims.get("aud"))
        self._check_audience(issuer, audience, client_id, also_accept)
        scopes = frozenset(_text(claims, "scope").split())
        missing = [scope for scope in issuer.required_scopes if scope not in scopes]
        if missing:
            raise Unauthenticated(f"The token lacks the scope {missing[0]}.")
        act = claims.get("act")
        groups = _words(claims.get(issuer.groups_claim)) | _words(claims.get("wlcg.groups"))
        return Principal(
            identity=Identity(issuer.url, subject),
            audience=audience,
            expires_at=expires_at,
            scopes=scopes,
            groups=frozenset(group.removeprefix("/") for group in groups),
            client_id=client_id,
            actor=_text(act, "sub") if isinstance(act, dict) else "",
            token_id=_text(claims, "jti"),
            name=_text(claims, "preferred_username") or _text(claims, "name"),
        )

    def _check_times(self, claims: Mapping[str, Any]) -> datetime:
        now = self._clock.now()
        expires_at = _moment(claims, "exp")
        if expires_at is None:
            raise Unauthenticated("The token has no expiry.")
        if expires_at <= now - SKEW:
            raise Unauthenticated("The token has expired.")
        for name in ("nbf", "iat"):
            moment = _moment(claims, name)
            if moment is not None and moment > now + SKEW:
                raise Unauthenticated("The token is not valid yet.")
        return expires_at

    def _check_audience(
        self,
        issuer: IssuerSettings,
        audience: frozenset[str],
        client_id: str,
        also_accept: frozenset[str],
    ) -> None:
        accepted = {self._audience, *issuer.audiences, *also_accept}
        if audience & accepted:
            return
        from_client = issuer.client_audiences.get(client_id, ()) if client_id else ()
        if audience & set(from_client) or (not audience and "" in from_client):
            return
        raise Unauthenticated(
            f"The token is meant for another service; ask for the audience {self._audience}."
        )

    async def _key(self, issuer: IssuerSettings, header: Mapping[str, Any]) -> jwk.Key:
        keys = self._keys[issuer.url]
        kid = header.get("kid")
        # Without the lock: a fetch for somebody's unknown key must not hold up everybody else.
        key = _find(keys, kid)
        if key is not None and self._age(keys.fetched_at) <= KEYS_TTL_SECONDS:
            return key
        async with keys.lock:
            if self._age(keys.fetched_at) > KEYS_TTL_SECONDS or _find(keys, kid) is None:
                await self._refresh(issuer, keys)
            if self._age(keys.fetched_at) > KEYS_HARD_TTL_SECONDS:
                raise Unavailable("The token issuer cannot be reached.", retry_after=10)
            key = _find(keys, kid)
        if key is None:
            raise Unauthenticated("The token is signed by a key its issuer does not publish.")
        return key

    def _age(self, since: float | None) -> float:
        return float("inf") if since is None else self._clock.monotonic() - since

    async def _refresh(self, issuer: IssuerSettings, keys: _Keys) -> None:
        """Fetch the issuer's keys, at most once an interval; keep the last good ones on failure."""
        # An issuer that never answered is tried again sooner: its keys are the only way in.
        interval = REFETCH_INTERVAL_SECONDS if keys.fetched_at is not None else 1.0
        if self._age(keys.tried_at) < interval:
            return
        keys.tried_at = self._clock.monotonic()
        try:
            metadata = await self._fetch(get_well_known_url(issuer.url, external=True))
            documents = (await self._fetch(_jwks_uri(issuer.url, metadata)))["keys"]
            by_kid, anonymous = _import_keys(documents)
        except (aiohttp.ClientError, TimeoutError, ValueError, *_MISSHAPEN) as error:
            log.warning("issuer_keys_not_fetched", issuer=issuer.url, error=repr(error))
            return
        keys.by_kid, keys.anonymous = by_kid, anonymous
        keys.userinfo_endpoint = str(metadata.get("userinfo_endpoint", ""))
        keys.fetched_at = self._clock.monotonic()

    async def _fetch(self, url: str) -> dict[str, Any]:
        async with self._session.get(url, allow_redirects=False, timeout=FETCH_TIMEOUT) as response:
            if response.status != HTTPStatus.OK:
                raise ValueError(f"{url} answered {response.status}")
            body = bytearray()
            async for chunk in response.content.iter_chunked(65536):
                body += chunk
                if len(body) > MAX_DOCUMENT_BYTES:
                    raise ValueError(f"{url} answered more than {MAX_DOCUMENT_BYTES} bytes")
        return _object(msgspec.json.decode(bytes(body)))


def _jwks_uri(issuer: str, metadata: Mapping[str, Any]) -> str:
    """Where the issuer's keys are (OpenID Connect Discovery, section 4.3): on its own origin."""
    if metadata["issuer"] != issuer:
        raise ValueError(f"discovery names the issuer {metadata['issuer']!r}")
    jwks_uri = str(metadata["jwks_uri"])
    if urlsplit(jwks_uri)[:2] != urlsplit(issuer)[:2]:
        raise ValueError("jwks_uri is on another origin")
    return jwks_uri


def _find(keys: _Keys, kid: object) -> jwk.Key | None:
    """The key of that name; without a name the issuer's only one, if it has only one."""
    if isinstance(kid, str):
        return keys.by_kid.get(kid)
    every = [*keys.anonymous, *keys.by_kid.values()]
    return every[0] if kid is None and len(every) == 1 else None


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


def _peek(token: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Header and claims of a compact JWS, unverified: only to find the issuer and its key."""
    if len(token) > MAX_TOKEN_BYTES:
        raise Unauthenticated("The token is too long.")
    try:
        return unverified(token)
    except SignatureError as error:
        raise Unauthenticated("The token is not a signed JWT.") from error


def _object(document: object) -> dict[str, Any]:
    if not isinstance(document, dict):
        raise ValueError("not a JSON object")  # noqa: TRY004 - a fault of the document, not a type
    return document


def _text(claims: Mapping[str, Any], name: str) -> str:
    value = claims.get(name)
    return value if isinstance(value, str) else ""


def _words(value: object) -> frozenset[str]:
    if isinstance(value, str):
        return frozenset({value}) if value else frozenset()
    if isinstance(value, list):
        return frozenset(word for word in value if isinstance(word, str) and word)
    return frozenset()


def _moment(claims: Mapping[str, Any], name: str) -> datetime | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Unauthenticated(f"The token's {name} is not a number.")
    try:
        return datetime.fromtimestamp(value, UTC)
    except (OverflowError, ValueError, OSError) as error:
        raise Unauthenticated(f"The token's {name} is out of range.") from error
