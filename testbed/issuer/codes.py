"""Authorization codes: short-lived, for one client and redirect URI, spent once (RFC 6749, 4.1)."""

import base64
import hashlib
import hmac
import secrets
from dataclasses import dataclass, field

from headgate.clock import Clock
from testbed.issuer.tokens import Grant


@dataclass(frozen=True, slots=True)
class Authorization:
    """What a person agreed to; `challenge` is S256's (RFC 7636), the only method here."""

    redirect_uri: str
    challenge: str
    nonce: str
    grant: Grant


@dataclass(slots=True)
class Code:
    """A code that was given out; `tokens` came of it. Times are the clock's monotonic seconds."""

    authorization: Authorization
    expires: float
    spent: bool = False
    tokens: list[str] = field(default_factory=list)


class AuthorizationCodes:
    """All codes of this process; a spent one is kept, so that a second use is seen."""

    def __init__(self, *, clock: Clock, lifetime: int) -> None:
        self._clock = clock
        self._lifetime = lifetime
        self._codes: dict[str, Code] = {}

    def start(self, authorization: Authorization) -> str:
        """A new code."""
        code = secrets.token_urlsafe(32)
        self._codes[code] = Code(authorization, self._clock.monotonic() + self._lifetime)
        return code

    def find(self, code: str) -> Code | None:
        """A code as it stands, whoever asks."""
        return self._codes.get(code)

    def fits(self, code: Code, *, client_id: str, redirect_uri: str, verifier: str) -> bool:
        """Whether this caller is the one who started, in time, and knows the verifier."""
        authorization = code.authorization
        digest = hashlib.sha256(verifier.encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
        return (
            not code.spent
            and code.expires > self._clock.monotonic()
            and client_id == authorization.grant.client_id
            and redirect_uri == authorization.redirect_uri
            and hmac.compare_digest(challenge, authorization.challenge)
        )
