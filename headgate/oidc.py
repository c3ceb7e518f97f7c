"""From a bearer token to a Principal: exact issuer, listed algorithms, own audience."""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal

import aiohttp
import msgspec

from headgate.clock import Clock
from headgate.discovery import Discovery
from headgate.identity import SUBJECT, Identity, Principal
from headgate.introspection import Inquiry, IntrospectionSettings
from headgate.problems import Unauthenticated
from headgate.settings import Section
from headgate.signatures import SignatureError, unverified, verified

Algorithm = Literal[
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA", "Ed25519"
]
"""What an administrator can list: signatures with a public key, nothing else."""
Detail = Literal["groups", "assurance"]
"""What a service may want to know of a person that a token need not say."""
SKEW = timedelta(seconds=60)
MAX_TOKEN_BYTES = 16 * 1024
OPAQUE = re.compile(r"[A-Za-z0-9._~+/-]+=*")
"""RFC 6750, section 2.1. With two or four dots it is a JWS or a JWE, not opaque."""
ID_TOKEN_CLAIMS = frozenset({"nonce", "at_hash", "c_hash", "s_hash"})
OTHER_TOKENS = frozenset({"id", "refresh", "offline", "logout"})
"""What some issuers write into the claims `typ` or `token_use` of what is no access token."""


class IssuerSettings(Section, frozen=True):
    """One trusted issuer. `url` is compared with `iss` byte for byte, trailing slash included.

    `audiences` are accepted besides the service's own; `client_audiences` maps a `client_id` to
    audiences (`""`: none at all) that are accepted from that client alone. `required_type` is the
    only `typ` of a JWT then (RFC 9068), `max_token_age` the most seconds since `iat`.
    `introspection` makes it the one issuer that is asked about opaque tokens.
    """

    url: str
    audiences: tuple[str, ...] = ()
    client_audiences: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    required_scopes: tuple[str, ...] = ()
    algorithms: tuple[Algorithm, ...] = ("RS256", "ES256", "EdDSA")
    groups_claim: str = "groups"
    required_type: Literal["at+jwt"] | None = None
    max_token_age: Annotated[int, msgspec.Meta(ge=60)] | None = None
    introspection: IntrospectionSettings | None = None


def check_issuers(issuers: Sequence[IssuerSettings]) -> None:
    """Return if these can be trusted side by side.

    Raises:
        ValueError: one is there twice, or several would be asked about opaque tokens: a token
            that does not say whose it is must not be shown to everybody.
    """
    urls = [issuer.url for issuer in issuers]
    if len(set(urls)) < len(urls):
        raise ValueError("issuers: one is listed twice")
    if sum(issuer.introspection is not None for issuer in issuers) > 1:
        raise ValueError("issuers: only one can have introspection")


class TokenVerifier:
    """Verifies access tokens (RFC 9068, RFC 8725) of the configured issuers for one audience.

    Nothing is fetched for an issuer that is not configured, and an opaque token is shown to the one
    issuer with `introspection` alone. `details` are what this service needs to know: where a token
    does not say it, its issuer's introspection is asked, then its userinfo.
    """

    def __init__(
        self,
        *,
        issuers: Sequence[IssuerSettings],
        audience: str,
        session: aiohttp.ClientSession,
        clock: Clock,
        details: frozenset[Detail] = frozenset(),
    ) -> None:
        check_issuers(issuers)
        self._issuers: Mapping[str, IssuerSettings] = {issuer.url: issuer for issuer in issuers}
        self._audience = audience
        self._clock = clock
        self._details = details
        self._discovery = {
            url: Discovery(url, session=session, clock=clock) for url in self._issuers
        }
        self._inquiry = {
            url: Inquiry(
                issuer.introspection, discovery=self._discovery[url], session=session, clock=clock
            )
            for url, issuer in self._issuers.items()
        }

    async def verify(self, token: str, *, also_accept: frozenset[str] = frozenset()) -> Principal:
        """The principal of an access token; `also_accept` are further audiences (a peer's).

        Raises:
            Unauthenticated: for every fault of the token, with a sentence that says which.
            Unavailable: the issuer has to be asked and does not answer.
        """
        if len(token) > MAX_TOKEN_BYTES:
            raise Unauthenticated("The token is too long.")
        if OPAQUE.fullmatch(token) and token.count(".") not in (2, 4):
            return await self._opaque(token, also_accept)
        issuer, claims = await self._signed(token)
        principal = self._principal(issuer, claims, also_accept)
        missing = self._missing(issuer, claims)
        if not missing:
            return principal
        more = await self._more(issuer, token, claims, missing)
        return self._principal(issuer, {**more, **claims}, also_accept)

    async def _signed(self, token: str) -> tuple[IssuerSettings, Mapping[str, Any]]:
        """The issuer and the claims of a compact JWT, its signature checked and nothing else."""
        header, peeked = _peek(token)
        issuer = self._issuers.get(str(peeked.get("iss")))
        if issuer is None:
            raise Unauthenticated("The token is from an issuer that is not trusted here.")
        if header.get("alg") not in issuer.algorithms:
            raise Unauthenticated("The token is signed with an algorithm that is not accepted.")
        if "crit" in header or header.get("b64") is False:
            raise Unauthenticated("The token has critical header parameters; none is understood.")
        _check_type(issuer, header)
        key = await self._discovery[issuer.url].key(header.get("kid"))
        try:
            return issuer, verified(token, key, algorithms=issuer.algorithms)
        except SignatureError as error:
            raise Unauthenticated("The token's signature is not valid.") from error

    async def _opaque(self, token: str, also_accept: frozenset[str]) -> Principal:
        asked = [url for url, inquiry in self._inquiry.items() if inquiry.introspects]
        if not asked:
            raise Unauthenticated("The token is not a signed JWT.")
        issuer = self._issuers[asked[0]]
        claims = await self._introspected(issuer, token)
        principal = self._principal(issuer, claims, also_accept)
        missing = self._missing(issuer, claims)
        if not missing:
            return principal
        more = await self._informed(issuer, token, principal.identity.sub)
        return self._principal(issuer, {**_chosen(more, missing), **claims}, also_accept)

    async def _introspected(self, issuer: IssuerSettings, token: str) -> Mapping[str, Any]:
        """The claims of an active token of this issuer, as a JWT would have them."""
        document = await self._inquiry[issuer.url].introspect(token)
        if document is None:
            raise Unauthenticated("The token is not valid, or not any more, says its issuer.")
        if document.get("iss", issuer.url) != issuer.url:
            raise Unauthenticated("The token is from an issuer that is not trusted here.")
        if str(document.get("token_type", "Bearer")).lower() != "bearer":
            raise Unauthenticated("The token is not a bearer token.")
        audience = document.get("aud")
        # INDIGO IAM joins several by spaces, as `scope` has it.
        words = audience.split() if isinstance(audience, str) else audience
        return {**document, "iss": issuer.url, "aud": words}

    def _missing(self, issuer: IssuerSettings, claims: Mapping[str, Any]) -> frozenset[str]:
        """Claims of which none is there though this service needs one of them."""
        wanted: set[str] = set()
        for detail in self._details:
            names = _claims_of(issuer, detail)
            if names.isdisjoint(claims):
                wanted |= names
        return frozenset(wanted)

    async def _more(
        self,
        issuer: IssuerSettings,
        token: str,
        claims: Mapping[str, Any],
        missing: frozenset[str],
    ) -> Mapping[str, Any]:
        """What the issuer says besides the token: introspection first, then userinfo."""
        found: dict[str, Any] = {}
        if self._inquiry[issuer.url].introspects:
            introspected = await self._introspected(issuer, token)
            if introspected.get("sub", claims["sub"]) != claims["sub"]:
                raise Unauthenticated("The token's issuer says it is somebody else's.")
            found = _chosen(introspected, missing)
        still = self._missing(issuer, {**found, **claims})
        # Userinfo is for tokens with the scope openid; some do not say their scopes.
        if still and "openid" in _text(claims, "scope", default="openid").split():
            found |= _chosen(await self._informed(issuer, token, claims["sub"]), still)
        return found

    async def _informed(self, issuer: IssuerSettings, token: str, sub: str) -> Mapping[str, Any]:
        document = await self._inquiry[issuer.url].userinfo(token)
        if document and document.get("sub") != sub:  # OpenID Connect Core, section 5.3.2
            raise Unauthenticated("The token's issuer says it is somebody else's.")
        return document

    def _principal(
        self,
        issuer: IssuerSettings,
        claims: Mapping[str, Any],
        also_accept: frozenset[str],
    ) -> Principal:
        if claims.get("iss") != issuer.url:
            raise Unauthenticated("The token is from an issuer that is not trusted here.")
        _check_purpose(claims)
        expires_at = self._check_times(issuer, claims)
        subject = claims.get("sub")
        if not isinstance(subject, str) or not re.match(SUBJECT, subject):
            raise Unauthenticated("The token has no usable subject.")
        client_id = _client_id(claims)
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
            groups=frozenset(group.removeprefix("/") for group in groups if group != "/"),
            client_id=client_id,
            actor=_text(act, "sub") if isinstance(act, dict) else "",
            token_id=_text(claims, "jti"),
            name=_text(claims, "preferred_username") or _text(claims, "name"),
            acr=_text(claims, "acr"),
            authenticated_at=self._authenticated_at(claims),
            assurance=_words(claims.get("eduperson_assurance")),
            entitlements=_words(claims.get("entitlements"))
            | _words(claims.get("eduperson_entitlement")),
        )

    def _authenticated_at(self, claims: Mapping[str, Any]) -> datetime | None:
        """`auth_time`; a login in the future is none."""
        moment = _moment(claims, "auth_time")
        return moment if moment is None or moment <= self._clock.now() + SKEW else None

    def _check_times(self, issuer: IssuerSettings, claims: Mapping[str, Any]) -> datetime:
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
        if issuer.max_token_age is not None:
            issued_at = _moment(claims, "iat")
            oldest = now - timedelta(seconds=issuer.max_token_age) - SKEW
            if issued_at is None or issued_at < oldest:
                raise Unauthenticated("The token is too old here; get a fresh one.")
        return expires_at

    def _check_audience(
        self,
        issuer: IssuerSettings,
        audience: frozenset[str],
        client_id: str,
        also_accept: frozenset[str],
    ) -> None:
        from_client = issuer.client_audiences.get(client_id, ()) if client_id else ()
        accepted = {self._audience, *issuer.audiences, *also_accept, *from_client}
        if audience & accepted or (not audience and "" in from_client):
            return
        raise Unauthenticated(
            f"The token is meant for another service; ask for the audience {self._audience}."
        )


def _claims_of(issuer: IssuerSettings, detail: Detail) -> frozenset[str]:
    if detail == "assurance":
        return frozenset({"eduperson_assurance"})
    return frozenset({issuer.groups_claim, "wlcg.groups", "entitlements", "eduperson_entitlement"})


def _chosen(document: Mapping[str, Any], names: frozenset[str]) -> dict[str, Any]:
    return {name: value for name, value in document.items() if name in names}


def _check_type(issuer: IssuerSettings, header: Mapping[str, Any]) -> None:
    """The header's `typ` (RFC 9068, section 4; older issuers write JWT, or nothing)."""
    typ = str(header.get("typ", "JWT")).lower().removeprefix("application/")
    if typ == "at+jwt" or (typ == "jwt" and issuer.required_type is None):
        return
    raise Unauthenticated("The token is not an access token.")


def _check_purpose(claims: Mapping[str, Any]) -> None:
    if not ID_TOKEN_CLAIMS.isdisjoint(claims):
        raise Unauthenticated("This is an ID token; an access token is needed.")
    if {_text(claims, "typ").lower(), _text(claims, "token_use").lower()} & OTHER_TOKENS:
        raise Unauthenticated("The token is not an access token.")
    if "cnf" in claims:
        # RFC 7800: it is worth something only with a proof of a key, which nothing here checks.
        raise Unauthenticated("The token is bound to a key; a plain bearer token is needed.")


def _client_id(claims: Mapping[str, Any]) -> str:
    """Who got the token: `client_id` (RFC 9068), or `azp` where an issuer writes that."""
    client_id, party = _text(claims, "client_id"), _text(claims, "azp")
    if client_id and party and client_id != party:
        raise Unauthenticated("The token names two clients.")
    return client_id or party


def _peek(token: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Header and claims of a compact JWS, unverified: only to find the issuer and its key."""
    try:
        return unverified(token)
    except SignatureError as error:
        raise Unauthenticated("The token is not a signed JWT.") from error


def _text(claims: Mapping[str, Any], name: str, *, default: str = "") -> str:
    value = claims.get(name, default)
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
