"""Which service is calling: a short JWT signed with the caller's own key, good for one request."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
from joserfc import jwk
from joserfc.errors import JoseError

from headgate.clock import Clock
from headgate.problems import Forbidden, Unauthenticated
from headgate.settings import Section, SettingsError, read_secret
from headgate.signatures import SignatureError, sign, unverified, verified

HEADER = "Headgate-Peer"
TYPE = "headgate-peer+jwt"
ALGORITHM = "EdDSA"
LIFETIME = timedelta(seconds=60)
SKEW = timedelta(seconds=60)


class PeerSettings(Section, frozen=True):
    """One service that may call us: its name, its public keys (JWK, OKP Ed25519) and its verbs."""

    instance: str
    keys: tuple[dict[str, str], ...]
    verbs: frozenset[str]
    audience: str = ""
    """The audience of users' tokens that this peer may present; empty: only our own."""


@dataclass(frozen=True, slots=True)
class Peer:
    """An authenticated calling service."""

    instance: str
    verbs: frozenset[str]
    audience: str

    def require(self, verb: str) -> None:
        """Raise `Forbidden` unless this peer may do that."""
        if verb not in self.verbs:
            raise Forbidden(f"{self.instance} has no right to {verb}.", code="peer_verb")


class _Claims(msgspec.Struct, frozen=True):
    iss: str
    sub: str
    aud: str
    iat: int
    exp: int
    jti: str


class PeerSigner:
    """Makes the header for calls to other services."""

    def __init__(self, *, instance: str, key: jwk.OKPKey, clock: Clock) -> None:
        self._instance = instance
        self._key = key
        self._clock = clock

    @classmethod
    def from_file(cls, *, instance: str, path: Path, clock: Clock) -> "PeerSigner":
        """With the private key (PEM, PKCS#8 Ed25519) in a file of mode 0600.

        Raises:
            SettingsError: the file cannot be used.
        """
        try:
            key = jwk.OKPKey.import_key(read_secret(path))
        except (JoseError, ValueError) as error:
            raise SettingsError(f"{path}: not an Ed25519 private key") from error
        return cls(instance=instance, key=key, clock=clock)

    def headers(self, audience: str) -> dict[str, str]:
        """The header for one request to the service whose configured URL is `audience`."""
        now = int(self._clock.now().timestamp())
        claims = {
            "iss": self._instance,
            "sub": self._instance,
            "aud": audience,
            "iat": now,
            "exp": now + int(LIFETIME.total_seconds()),
            "jti": secrets.token_urlsafe(16),
        }
        header = {"alg": ALGORITHM, "typ": TYPE, "kid": self._key.thumbprint()}
        return {HEADER: sign(header, claims, self._key)}


class PeerVerifier:
    """Accepts the header of listed services, each `jti` once."""

    def __init__(self, *, peers: Sequence[PeerSettings], audience: str, clock: Clock) -> None:
        self._audience = audience
        self._clock = clock
        self._by_kid: dict[str, tuple[Peer, jwk.OKPKey]] = {}
        self._seen: dict[str, datetime] = {}
        for settings in peers:
            peer = Peer(settings.instance, settings.verbs, settings.audience)
            for document in settings.keys:
                key = jwk.OKPKey.import_key(dict(document))
                self._by_kid[key.thumbprint()] = (peer, key)

    def verify(self, header: str) -> Peer:
        """The calling service.

        Raises:
            Unauthenticated: missing, unknown, forged, stale, for another service, or used before.
        """
        if not header:
            raise Unauthenticated("This is for other services of this site only.", code="no_peer")
        try:
            shown, _ = unverified(header)
            peer, key = self._by_kid[str(shown.get("kid"))]
            claims = msgspec.convert(verified(header, key, algorithms=[ALGORITHM]), _Claims)
            issued, expires = _moment(claims.iat), _moment(claims.exp)
        except (SignatureError, KeyError, ValueError, OverflowError, OSError) as error:
            raise Unauthenticated("The calling service is not known here.", code="peer") from error
        now = self._clock.now()
        in_time = issued <= now + SKEW and now - SKEW < expires and expires - issued <= LIFETIME
        named = claims.iss == claims.sub == peer.instance and claims.aud == self._audience
        if shown.get("typ") != TYPE or not in_time or not named:
            raise Unauthenticated("The calling service's credential is not valid.", code="peer")
        self._once(claims.jti, expires + SKEW, now)
        return peer

    def _once(self, jti: str, until: datetime, now: datetime) -> None:
        if jti in self._seen:
            raise Unauthenticated("The calling service's credential was used before.", code="peer")
        # In order of arrival: what is oldest expires first, give or take the skew.
        while self._seen and next(iter(self._seen.values())) <= now:
            del self._seen[next(iter(self._seen))]
        self._seen[jti] = until


def _moment(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
