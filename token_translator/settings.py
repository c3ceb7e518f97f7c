"""What an administrator sets for the token translator's HTTP service."""

import ipaddress
import re
from typing import Annotated

import msgspec
from joserfc.errors import JoseError
from joserfc.jwk import OKPKey

from headgate.oidc import IssuerSettings, check_issuers
from headgate.peers import PeerSettings
from headgate.service import ListenSettings
from headgate.settings import Section
from token_translator.administrators import AdministratorSettings
from token_translator.connections import ConnectionSettings
from token_translator.grants import REALM
from token_translator.host_settings import HostSettings
from token_translator.keys import ALL_TYPES, DEFAULT_TYPES
from token_translator.pam_settings import PamSettings
from token_translator.rulebook import ClientCeiling, RuleBook
from token_translator.rules import EVERYBODY, Rule
from token_translator.seals import PROGRAM

Seconds = Annotated[float, msgspec.Meta(gt=0, le=60)]


class RegistrySettings(Section, frozen=True):
    """The account_importer: its URL as it knows itself, and how long it may take, in seconds."""

    url: str
    timeout: Seconds = 2.0


class SignerAddress(Section, frozen=True):
    """The signer's socket, and how long it may take, in seconds."""

    socket: str
    timeout: Seconds = 5.0


class PeerIdentity(Section, frozen=True):
    """Who we are to other services: a name, and the file of our Ed25519 key (PEM, 0600)."""

    instance: str
    key_file: str


class DelegationSettings(Section, frozen=True):
    """What services may do without a token; times in seconds.

    A seal is good for `max_age`, a certificate for `lifetime`. An identity for which more than
    `per_minute` are asked is refused, a service that asks for more than `per_minute_of_service`
    too, and that is an alarm in the log. Certificates are good from `source_addresses` (CIDR), or
    from anywhere.
    """

    max_age: Annotated[int, msgspec.Meta(ge=60)] = 30 * 86400
    lifetime: Annotated[int, msgspec.Meta(ge=30, le=300)] = 300
    per_minute: Annotated[int, msgspec.Meta(ge=1)] = 120
    per_minute_of_service: Annotated[int, msgspec.Meta(ge=1)] = 3000
    source_addresses: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)] | None = None

    def __post_init__(self) -> None:
        """Refuse networks that are none: the signer would refuse each certificate.

        Raises:
            ValueError: one is not in CIDR form.
        """
        for network in self.source_addresses or ():
            ipaddress.ip_network(network)


class TokenSettings(Section, frozen=True):
    """What people's tokens are good for: with `one_certificate` each gets one, by its `jti`."""

    one_certificate: bool = False


VERBS = frozenset(
    {
        "certificates.delegated",
        "certificates.login",
        "certificates.session",
        "changes.read",
        "revoke",
        "seals",
        "suspend",
    }
)
"""What another service may be allowed here."""


def _check_peer(peer: PeerSettings) -> None:
    unknown = peer.verbs - VERBS
    if unknown:
        there = ", ".join(sorted(VERBS))
        raise ValueError(f"peers: {peer.instance}: no verb {min(unknown)!r}; there is {there}")
    for key in peer.keys:
        try:
            OKPKey.import_key(dict(key)).thumbprint()
        except (JoseError, ValueError, TypeError, KeyError) as error:
            raise ValueError(f"peers: {peer.instance}: not the JWK of an Ed25519 key") from error


class Settings(Section, frozen=True):
    """The service's TOML.

    `url` is this service's own, as peers call it; `audience` is what users' tokens must be for;
    `realms` are the user bases it serves, the first where a request names none; `database` is a
    SQLAlchemy URL with an async driver; `session_program` is where login nodes have it.
    """

    url: str
    audience: str
    realms: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
    database: str
    session_program: str
    issuers: Annotated[tuple[IssuerSettings, ...], msgspec.Meta(min_length=1)]
    identity: PeerIdentity
    registry: RegistrySettings
    signer: SignerAddress
    peers: tuple[PeerSettings, ...] = ()
    administrators: tuple[AdministratorSettings, ...] = ()
    rules: tuple[Rule, ...] = (EVERYBODY,)
    clients: tuple[ClientCeiling, ...] = ()
    key_types: frozenset[str] = frozenset(DEFAULT_TYPES)
    tokens: TokenSettings = TokenSettings()
    delegation: DelegationSettings = DelegationSettings()
    hosts: HostSettings = HostSettings()
    pam: PamSettings | None = None
    listen: ListenSettings = ListenSettings()
    connections: ConnectionSettings = ConnectionSettings()
    per_minute: Annotated[int, msgspec.Meta(ge=1)] = 60
    retention_days: Annotated[int, msgspec.Meta(ge=1, le=36500)] = 550
    log_level: str = "info"

    def __post_init__(self) -> None:
        """Refuse what could only fail later.

        Raises:
            ValueError: naming the key.
        """
        for realm in self.realms:
            if not re.fullmatch(REALM, realm):
                raise ValueError(f"realms: {realm!r} is not a realm's name")
        check_issuers(self.issuers)
        self.rule_book.check(issuers=[issuer.url for issuer in self.issuers], realms=self.realms)
        for administrator in self.administrators:
            if administrator.issuer not in {issuer.url for issuer in self.issuers}:
                raise ValueError(f"administrators: {administrator.issuer!r} is not an issuer here")
        for peer in self.peers:
            _check_peer(peer)
        if not PROGRAM.fullmatch(self.session_program):
            raise ValueError("session_program: not an absolute path of plain characters")
        if self.pam is not None and self.pam.realm not in self.realms:
            raise ValueError(f"pam: {self.pam.realm!r} is not one of the realms")
        unknown = self.key_types - set(ALL_TYPES)
        if unknown:
            raise ValueError(f"key_types: {min(unknown)!r} is not one of {', '.join(ALL_TYPES)}")

    @property
    def rule_book(self) -> RuleBook:
        """The rules, with the ceilings of clients."""
        return RuleBook(rules=self.rules, clients=self.clients)
