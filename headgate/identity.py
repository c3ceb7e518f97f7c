"""Who is asking: an identity is (issuer, subject), a principal is one token of it."""

from dataclasses import dataclass, field
from datetime import datetime

SUBJECT = r"^[^\x00-\x1f\x7f-\x9f\ud800-\udfff]{1,255}\Z"
"""What a `sub` is here (OpenID Connect Core, section 2): what logs, ledgers and orders can hold."""


@dataclass(frozen=True, slots=True, order=True)
class Identity:
    """One person or service of one issuer (OpenID Connect Core, section 2: `iss` and `sub`)."""

    iss: str
    sub: str

    def __str__(self) -> str:
        return f"{self.sub}@{self.iss}"


@dataclass(frozen=True, slots=True)
class Principal:
    """What one verified access token says: made once, at the edge of a service.

    `groups` are spelled without a leading slash, whatever the issuer's profile; `entitlements` are
    what the token says of them otherwise (AARC-G069), as they came. `actor` is the `act.sub` of a
    delegated token (RFC 8693, section 4.1). `acr`, `authenticated_at` (`auth_time`) and `assurance`
    (`eduperson_assurance`) say how sure the issuer is of the person. Times are aware, UTC.
    """

    identity: Identity
    audience: frozenset[str]
    expires_at: datetime
    scopes: frozenset[str] = field(default_factory=frozenset)
    groups: frozenset[str] = field(default_factory=frozenset)
    client_id: str = ""
    actor: str = ""
    token_id: str = ""
    name: str = ""
    acr: str = ""
    authenticated_at: datetime | None = None
    assurance: frozenset[str] = field(default_factory=frozenset)
    entitlements: frozenset[str] = field(default_factory=frozenset)
