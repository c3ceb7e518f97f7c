"""Signing keys with rotation, and access tokens in IAM's profiles."""

import base64
import hashlib
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from joserfc import jwk, jwt
from joserfc.errors import JoseError

from headgate.clock import Clock
from testbed.issuer.directory import Client, User

ALGORITHM = "RS256"
WLCG_ANY = "https://wlcg.cern.ch/jwt/v1/any"


class Keys:
    """RSA keys: the newest signs, the older ones are published until they are retired."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._keys: list[jwk.RSAKey] = []
        if path is not None and path.exists():
            documents = msgspec.json.decode(path.read_bytes())
            self._keys = [jwk.RSAKey.import_key(document) for document in documents]
        if not self._keys:
            self.rotate()

    @property
    def signing(self) -> jwk.RSAKey:
        """The key that signs now."""
        return self._keys[-1]

    def rotate(self) -> str:
        """Sign with a new key from now on; its `kid`."""
        kid = f"rsa-{secrets.token_hex(4)}"
        self._keys.append(jwk.RSAKey.generate_key(2048, {"kid": kid, "use": "sig"}))
        self._save()
        return kid

    def retire(self, kid: str) -> None:
        """Publish that key no longer; the one that signs stays."""
        self._keys = [key for key in self._keys if key.kid != kid or key is self.signing]
        self._save()

    def published(self) -> list[dict[str, Any]]:
        """The public keys as JWKs (RFC 7517)."""
        public = [{**key.as_dict(private=False), "alg": ALGORITHM} for key in self._keys]
        return [dict(document) for document in public]

    def verify(self, token: str) -> dict[str, Any] | None:
        """The claims of a token that one of these keys signed; times are not looked at."""
        for key in reversed(self._keys):
            try:
                return dict(jwt.decode(token, key, algorithms=[ALGORITHM]).claims)
            except (JoseError, ValueError):
                continue
        return None

    def _save(self) -> None:
        if self._path is None:
            return
        fresh = self._path.with_suffix(".new")
        fresh.touch(mode=0o600)
        fresh.write_bytes(msgspec.json.encode([key.as_dict(private=True) for key in self._keys]))
        fresh.replace(self._path)


@dataclass(frozen=True, slots=True)
class Grant:
    """What a token is for: a user (None: the client itself), a client, scopes, audiences.

    `acr` and `auth_time` (epoch seconds, 0: nobody signed in) say how and when the user did.
    """

    client_id: str
    user: str | None
    scopes: tuple[str, ...] = ()
    audience: tuple[str, ...] = ()
    acr: str = ""
    auth_time: int = 0


@dataclass(frozen=True, slots=True)
class Issued:
    """An access token as the issuer remembers it; `expires_at` is epoch seconds."""

    token: str
    grant: Grant
    subject: str
    expires_at: int


class Tokens:
    """Mints access tokens and remembers them, as IAM's database does, until they expire."""

    def __init__(self, *, keys: Keys, clock: Clock, profile: str, authn: bool, scope: bool) -> None:
        self.keys = keys
        self._clock = clock
        self._profile = profile
        self._authn = authn
        self._scope = scope
        self._issued: dict[str, Issued] = {}

    def mint(
        self,
        grant: Grant,
        user: User | None,
        *,
        issuer: str,
        lifetime: int,
        groups: Iterable[str] | None = None,
        actor: str | Mapping[str, Any] = "",
        claims: Mapping[str, Any] | None = None,
    ) -> Issued:
        """A signed access token; `groups` forces that claim, `actor` is `act` or its `sub`.

        `claims` are added last: what a test wants to see in a token, whoever would put it there.
        """
        now = int(self._clock.now().timestamp())
        subject = user.id if user else grant.client_id
        content: dict[str, Any] = {
            "iss": issuer,
            "sub": subject,
            "iat": now,
            "exp": now + lifetime,
            "jti": secrets.token_urlsafe(16),
            "client_id": grant.client_id,
            **self._profiled(grant, user, now),
            **_signed_in(grant),
        }
        if grant.audience:
            one = len(grant.audience) == 1
            content["aud"] = grant.audience[0] if one else list(grant.audience)
        if groups is not None:
            content["groups"] = list(groups)
        if actor:
            content["act"] = {"sub": actor} if isinstance(actor, str) else dict(actor)
        content |= claims or {}
        token = self._signed(content)
        issued = Issued(token, grant, subject, now + lifetime)
        self._forget_expired(now)
        self._issued[str(content["jti"])] = issued
        return issued

    def identity(
        self, grant: Grant, user: User, *, issuer: str, lifetime: int, nonce: str, token: str
    ) -> str:
        """An ID token (OpenID Connect Core, section 2) that comes with the access token `token`."""
        now = int(self._clock.now().timestamp())
        half = hashlib.sha256(token.encode()).digest()[:16]
        content: dict[str, Any] = {
            "iss": issuer,
            "sub": user.id,
            "aud": grant.client_id,
            "iat": now,
            "exp": now + lifetime,
            "jti": secrets.token_urlsafe(16),
            "at_hash": base64.urlsafe_b64encode(half).decode().rstrip("="),
            **({"nonce": nonce} if nonce else {}),
            **_signed_in(grant),
        }
        return self._signed(content)

    def _signed(self, content: dict[str, Any]) -> str:
        key = self.keys.signing
        header = {"alg": ALGORITHM, "kid": key.kid}
        return str(jwt.encode(header, content, key, algorithms=[ALGORITHM]))

    def _profiled(self, grant: Grant, user: User | None, now: int) -> dict[str, Any]:
        """The claims that depend on the profile (IAM's ScopeAwareProfileResolver)."""
        asked = [scope for scope in grant.scopes if scope in {"iam", "wlcg"}]
        profile = asked[0] if len(asked) == 1 else self._profile
        if profile == "wlcg":
            claims: dict[str, Any] = {
                "scope": " ".join(grant.scopes),
                "nbf": now,
                "wlcg.ver": "1.0",
                "aud": WLCG_ANY,
            }
            if user and "wlcg.groups" in grant.scopes:
                claims["wlcg.groups"] = ["/" + group for group in user.groups]
            return claims
        claims = {"scope": " ".join(grant.scopes)} if self._scope else {}
        if user and self._authn and "profile" in grant.scopes:
            claims |= {
                "name": user.full_name,
                "preferred_username": user.username,
                "groups": list(user.groups),
            }
        return claims

    def find(self, token: str) -> Issued | None:
        """The token if we issued it, it was not revoked and has not expired."""
        claims = self.keys.verify(token)
        issued = self._issued.get(str(claims.get("jti"))) if claims else None
        if issued is None or issued.expires_at <= self._clock.now().timestamp():
            return None
        return issued

    def revoke(self, token: str) -> None:
        """Forget the token (RFC 7009)."""
        claims = self.keys.verify(token)
        if claims:
            self._issued.pop(str(claims.get("jti")), None)

    def _forget_expired(self, now: int) -> None:
        for jti in [jti for jti, issued in self._issued.items() if issued.expires_at <= now]:
            del self._issued[jti]


def _signed_in(grant: Grant) -> dict[str, Any]:
    acr = {"acr": grant.acr} if grant.acr else {}
    return {**acr, **({"auth_time": grant.auth_time} if grant.auth_time else {})}


def allowed_scopes(client: Client, asked: str) -> tuple[str, ...]:
    """What a client gets: what it asked for and is registered for; nothing asked: all of it."""
    words = asked.split()
    return tuple(scope for scope in client.scopes if not words or scope in words)
