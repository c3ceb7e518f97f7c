"""What an administrator sets for the front door."""

import ipaddress
from typing import Annotated

import msgspec

from headgate.oidc import IssuerSettings
from headgate.settings import Section
from token_translator.frontdoor.devices import DeviceFlowSettings
from token_translator.frontdoor.limits import LimitSettings
from token_translator.frontdoor.targets import Target

Port = Annotated[int, msgspec.Meta(ge=0, le=65535)]


class ListenSettings(Section, frozen=True):
    """Where the front door listens; `::` is every address of this machine."""

    host: str = "127.0.0.1"
    port: Port = 2222


class PeerIdentity(Section, frozen=True):
    """Who we are to the translator: a name, and the file of our Ed25519 key (PEM, 0600)."""

    instance: str
    key_file: str


class TranslatorSettings(Section, frozen=True):
    """The token translator.

    `url` is the one it knows itself by; `audience` that of its tokens (empty: its URL), which are
    accepted here too; `timeout` in seconds.
    """

    url: str
    audience: str = ""
    timeout: Annotated[float, msgspec.Meta(gt=0, le=60)] = 10.0


class NodeSettings(Section, frozen=True):
    """One login node. `known_hosts` is a file in OpenSSH's format; there is no way around it."""

    host: str
    port: Annotated[int, msgspec.Meta(ge=1, le=65535)] = 22
    known_hosts: str = "/etc/ssh/ssh_known_hosts"


class Settings(Section, frozen=True):
    """The front door's TOML.

    `audience` is what tokens for this service are for; `realm` the user base of the login nodes,
    which are tried in turn; `usernames` are what one may call oneself before the account is known;
    `source_address` is our own, if certificates are to be good from here only; `state` is the file
    that remembers failed logins; `banner` is shown before the login; `device_flow`, if it is set,
    lets people log in by browser.
    """

    audience: str
    realm: str
    host_key: str
    state: str
    issuers: Annotated[tuple[IssuerSettings, ...], msgspec.Meta(min_length=1)]
    identity: PeerIdentity
    token_translator: TranslatorSettings
    nodes: Annotated[tuple[NodeSettings, ...], msgspec.Meta(min_length=1)]
    jump_targets: tuple[Target, ...] = ()
    usernames: frozenset[str] = frozenset({"site"})
    host_certificate: str = ""
    source_address: str = ""
    banner: str = ""
    device_flow: DeviceFlowSettings | None = None
    listen: ListenSettings = ListenSettings()
    limits: LimitSettings = LimitSettings()
    log_level: str = "info"

    def __post_init__(self) -> None:
        """Refuse what could only fail later.

        Raises:
            ValueError: naming the key.
        """
        if not self.audience:
            raise ValueError("audience: empty")
        known = {issuer.url for issuer in self.issuers}
        if self.device_flow is not None and self.device_flow.issuer not in known:
            raise ValueError("device_flow.issuer: not one of issuers")
        if self.source_address:
            ipaddress.ip_address(self.source_address)
