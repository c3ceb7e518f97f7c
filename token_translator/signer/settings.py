"""What an administrator sets for the signer."""

import ipaddress
import re
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import msgspec

from headgate.settings import Section

_FINGERPRINT = r"^SHA256:[A-Za-z0-9+/]{43}\Z"


class AgentKey(Section, frozen=True, tag="agent", tag_field="kind"):
    """A key in the ssh-agent at `socket`, found by its fingerprint (`ssh-add -l`)."""

    socket: str
    fingerprint: Annotated[str, msgspec.Meta(pattern=_FINGERPRINT)]


class TokenKey(Section, frozen=True, tag="pkcs11", tag_field="kind"):
    """A key pair in a hardware token.

    `module` is the vendor's PKCS #11 library, `token` and `label` the names that `pkcs11-tool -L`
    and `-O` show; `pin_file` holds the user PIN (0600, owned by the signer).
    """

    module: str
    token: str
    label: str
    pin_file: str


Key = str | AgentKey | TokenKey
"""Where an authority's key is: a file, an agent, a token."""
Keys = Annotated[tuple[Key, ...], msgspec.Meta(min_length=1, max_length=2)]


class SyslogSettings(Section, frozen=True):
    """Where each entry of the ledger is sent at once, as RFC 5424 messages.

    `address`: `tls://host:6514` (RFC 5425), `tcp://host:601` (octet counting, RFC 6587),
    `udp://host:514` or `unix:/dev/log`. A server's certificate must be for that host, by `tls_ca`
    (PEM; empty: the system's); `tls_certificate` and `tls_key` (0600, ours) are the signer's own,
    for a server that asks who sends. An entry that is not there after `alarm_after` seconds is an
    alarm in our own log.
    """

    address: str
    tls_ca: str = ""
    tls_certificate: str = ""
    tls_key: str = ""
    facility: Annotated[int, msgspec.Meta(ge=0, le=23)] = 10  # authpriv
    alarm_after: Annotated[int, msgspec.Meta(ge=1, le=3600)] = 30

    def __post_init__(self) -> None:
        """Refuse an address that is none, and files for TLS where there is none.

        Raises:
            ValueError: saying what an address is.
        """
        tls = (self.tls_ca, self.tls_certificate, self.tls_key)
        if any(tls) and not self.address.startswith("tls://"):
            raise ValueError("syslog: tls_ca, tls_certificate and tls_key are for tls://host:port")
        if bool(self.tls_certificate) != bool(self.tls_key):
            raise ValueError("syslog: tls_certificate and tls_key come together")
        if re.fullmatch(r"unix:/.{1,100}", self.address):
            return
        parts = urlsplit(self.address)
        if parts.scheme not in {"tls", "tcp", "udp"} or not parts.hostname or not parts.port:
            raise ValueError("syslog: address: tls://, tcp:// or udp://host:port, or unix:/path")
        if ":" in parts.hostname:
            ipaddress.ip_address(parts.hostname)


class SignerSettings(Section, frozen=True):
    """The signer's TOML; every key is a path, a name or a number, none a secret.

    `user_ca` and `host_ca` say where the authorities' keys are: the first of each signs, up to one
    more is handed out as trusted for the time of a rotation. A file is an OpenSSH private key
    (0600, owned by the signer). `allowed_users` are the login names (or uids) of the processes
    that may connect, asked of the kernel. `socket_group` may open the socket at all; empty: only
    our own uid. `ledger` and `persons` are SQLAlchemy URLs, two databases on purpose: backups of
    the one must not hold the other. `position` is where the ledger's end is remembered, a file
    that must not be restored together with it; empty: `ledger.position` beside the index key.
    `serial_floor`: serials begin above it. Entries older than `retention_days` are deleted by
    `headgate-signer ledger retain`. `embedded`: one uid runs everything, so the ceilings file may
    be that uid's own.
    """

    socket: str
    ceilings: str
    user_ca: Keys
    host_ca: Keys
    ledger: str
    persons: str
    index_key: str
    allowed_users: tuple[str | int, ...]
    socket_group: str = ""
    position: str = ""
    serial_floor: Annotated[int, msgspec.Meta(ge=0, le=2**62)] = 0
    retention_days: Annotated[int, msgspec.Meta(ge=31, le=36500)] = 550
    syslog: SyslogSettings | None = None
    embedded: bool = False
    log_level: str = "info"

    @property
    def position_file(self) -> Path:
        """Where the ledger's end is remembered."""
        return Path(self.position or Path(self.index_key).with_name("ledger.position"))

    @property
    def sent_file(self) -> Path:
        """How far the copy was sent."""
        return self.position_file.with_name(f"{self.position_file.name}.sent")
