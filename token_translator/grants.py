"""What a certificate says, as values: the terms of a rule, an account and a token make a Grant."""

import hashlib
import ipaddress
import re
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Annotated, Literal
from urllib.parse import quote

import msgspec
from msgspec.structs import replace

from headgate.identity import Principal
from headgate.problems import Fault, Forbidden, Invalid, Unauthenticated
from headgate.settings import Section

BACKDATE = timedelta(seconds=60)
"""Certificates are valid from a minute ago: clocks of login nodes may be behind."""

REALM = r"[a-z0-9][a-z0-9._-]{0,62}"
ACCOUNT = r"[a-z_][a-z0-9_.-]{0,31}"
PRINCIPAL = re.compile(rf"hg:{REALM}(@{REALM})?:{ACCOUNT}")
"""`hg:<realm>:<account>`, or `hg:<realm>@<host set>:<account>`; no part can hold `@` or `:`."""
MAX_LIFETIME = 7 * 86400
SFTP_COMMAND = "internal-sftp"
"""sshd's own server for sftp and scp (sshd_config, Subsystem): nothing is executed for it."""

Extension = Literal[
    "permit-X11-forwarding",
    "permit-agent-forwarding",
    "permit-port-forwarding",
    "permit-pty",
    "permit-user-rc",
]
Moment = Annotated[datetime, msgspec.Meta(tz=True)]
HostSet = Annotated[str, msgspec.Meta(pattern=rf"^{REALM}\Z")]
Networks = Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
"""Never an empty list: to sshd that would be anywhere."""
_Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class Profile(StrEnum):
    """What a certificate is for: a person's own login, or the session program only."""

    PERSON = "person"
    SESSION = "session"


class Account(msgspec.Struct, frozen=True):
    """The local account of an identity in a realm, as the registry knows it."""

    realm: str
    account: str
    uid: int


class Grant(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Everything a user certificate says besides its key, serial and key-id.

    Source: OpenSSH PROTOCOL.certkeys. `force_command` empty: none; `source_addresses` are CIDR
    networks, empty: any. Times are aware, whole seconds.
    """

    principals: tuple[str, ...]
    valid_after: Moment
    valid_before: Moment
    source_addresses: tuple[str, ...] = ()
    force_command: str = ""
    extensions: tuple[Extension, ...] = ()


class Command(StrEnum):
    """What a person's login runs: whatever they like, or file transfers alone (sshd's own sftp)."""

    SHELL = "shell"
    SFTP = "sftp"


class Terms(Section, frozen=True):
    """What a certificate carries. Times in seconds, addresses as networks in CIDR form.

    `command`, `hosts`, `extensions` and `source_addresses` concern a person's own login; a
    service's addresses are `session_source_addresses`. `hosts` are sets of login nodes: with them
    the certificate is good there and nowhere else, without on every node of the realm.
    """

    lifetime: Annotated[int, msgspec.Meta(ge=60, le=MAX_LIFETIME)] = 8 * 3600
    command: Command = Command.SHELL
    hosts: Annotated[tuple[HostSet, ...], msgspec.Meta(min_length=1, max_length=4)] | None = None
    extensions: tuple[Extension, ...] = ("permit-pty",)
    source_addresses: Networks | None = None
    session_source_addresses: Networks | None = None

    def __post_init__(self) -> None:
        """Refuse what sshd or the signer would refuse, and what contradicts itself.

        Raises:
            ValueError: naming the key.
        """
        for network in (*(self.source_addresses or ()), *(self.session_source_addresses or ())):
            ipaddress.ip_network(network)
        if self.command is not Command.SHELL and set(self.extensions) - {"permit-pty"}:
            raise ValueError(f"extensions: with command {self.command} there is none")


def grant_person(principal: Principal, account: Account, terms: Terms, *, now: datetime) -> Grant:
    """A person's own login on these terms, no longer than the token lives."""
    sftp = terms.command is Command.SFTP
    return _grant(
        account,
        hosts=terms.hosts,
        now=now,
        until=min(now + timedelta(seconds=terms.lifetime), principal.expires_at),
        source_addresses=terms.source_addresses or (),
        force_command=SFTP_COMMAND if sftp else "",
        extensions=() if sftp else terms.extensions,
    )


def grant_session(
    principal: Principal, account: Account, terms: Terms, *, program: str, now: datetime
) -> Grant:
    """A service's connection as the person: the session program, and no terminal."""
    return _grant(
        account,
        now=now,
        until=min(now + timedelta(seconds=terms.lifetime), principal.expires_at),
        source_addresses=terms.session_source_addresses or (),
        force_command=program,
    )


def grant_sealed(
    account: Account,
    *,
    command: str,
    now: datetime,
    until: datetime,
    source_addresses: tuple[str, ...] = (),
) -> Grant:
    """A service's connection without a token: one sealed command, and nothing else."""
    return _grant(
        account, now=now, until=until, source_addresses=source_addresses, force_command=command
    )


def require_suitable(account: Account) -> None:
    """Return unless the registry maps somebody to an account that nobody may be.

    Raises:
        Forbidden: `account_unsuitable`: root by name or by number, or no name of an account.
    """
    named = re.fullmatch(ACCOUNT, account.account) and re.fullmatch(REALM, account.realm)
    if not named or account.uid == 0 or account.account == "root":
        raise _unsuitable()


def _unsuitable() -> Forbidden:
    return Forbidden(
        "The account this identity is mapped to never gets a certificate.",
        code="account_unsuitable",
    )


def _grant(
    account: Account,
    *,
    now: datetime,
    until: datetime,
    source_addresses: tuple[str, ...],
    hosts: tuple[str, ...] | None = None,
    force_command: str = "",
    extensions: tuple[Extension, ...] = (),
) -> Grant:
    places = [account.realm] if hosts is None else [f"{account.realm}@{host}" for host in hosts]
    principals = tuple(f"hg:{place}:{account.account}" for place in places)
    if not principals or not all(PRINCIPAL.fullmatch(principal) for principal in principals):
        raise _unsuitable()
    require_suitable(account)
    until = until.astimezone(UTC).replace(microsecond=0)
    if until <= now:
        raise Unauthenticated("The token has expired.")
    return Grant(
        principals=principals,
        valid_after=(now - BACKDATE).astimezone(UTC).replace(microsecond=0),
        valid_before=until,
        source_addresses=source_addresses,
        force_command=force_command,
        extensions=tuple(sorted(set(extensions))),
    )


def narrowed(
    grant: Grant, *, lifetime: int | None, source_address: str | None, now: datetime
) -> Grant:
    """The grant with what the caller asked to have less of: `lifetime` in seconds, one address.

    Raises:
        Invalid: a lifetime of nothing, an address that is none, or one not within the networks of
            the grant.
    """
    if lifetime is not None:
        if lifetime < 1:
            raise _invalid("/lifetime", "A certificate lives for a second at least.")
        until = now + timedelta(seconds=min(lifetime, MAX_LIFETIME))
        until = until.astimezone(UTC).replace(microsecond=0)
        # A second is the resolution of certificates: never an end before the beginning.
        until = max(until, now.astimezone(UTC).replace(microsecond=0) + timedelta(seconds=1))
        grant = replace(grant, valid_before=min(grant.valid_before, until))
    if source_address is None:
        return grant
    host = _single(source_address)
    if grant.source_addresses and not _within(host, grant.source_addresses):
        detail = f"A certificate is good from {', '.join(grant.source_addresses)} only."
        raise _invalid("/source_address", detail)
    return replace(grant, source_addresses=(str(host),))


def through_door(grant: Grant, *, client_address: str | None, door_address: str | None) -> Grant:
    """The grant of somebody who logs in through a service that stands between them and the nodes.

    The nodes see that service's address, so whether the client's is within the grant's networks
    is looked at here; the certificate is then good from `door_address` alone.

    Raises:
        Forbidden: `address_refused`: the client is elsewhere, or nobody knows where it is;
            `door_address`: the service does not say where the certificate will be used.
        Invalid: `client_address` is no address.
    """
    client = None if client_address is None else _single(client_address, "/client_address")
    if not grant.source_addresses:
        return grant
    networks = ", ".join(grant.source_addresses)
    if client is None or not _within(client, grant.source_addresses):
        here = f"not from {client.network_address}" if client else "and nobody said from where"
        raise Forbidden(
            f"Your access is good from {networks} only, {here}.", code="address_refused"
        )
    if door_address is None:
        raise Forbidden(
            f"The login service has to name its own address: the rule is for {networks} only.",
            code="door_address",
        )
    return replace(grant, source_addresses=(str(_single(door_address)),))


def _within(host: _Network, networks: tuple[str, ...]) -> bool:
    return any(host.network_address in ipaddress.ip_network(network) for network in networks)


def _single(text: str, pointer: str = "/source_address") -> _Network:
    """One address as a network of its own, as sshd will see it: IPv4 within IPv6 is IPv4."""
    try:
        address = ipaddress.ip_address(text)
        if isinstance(address, ipaddress.IPv6Address):
            if address.scope_id:
                raise _invalid(pointer, "An address with a zone is good nowhere else.")
            address = address.ipv4_mapped or address
        return ipaddress.ip_network(address)
    except ValueError as error:
        raise _invalid(pointer, "This is no IP address.") from error


def _invalid(pointer: str, detail: str) -> Invalid:
    return Invalid(detail, faults=[Fault(pointer, detail)])


def token_fingerprint(principal: Principal) -> str:
    """What is kept of a token: the start of the SHA-256 of its `jti`; empty if it has none."""
    if not principal.token_id:
        return ""
    return hashlib.sha256(principal.token_id.encode()).hexdigest()[:16]


KEY_ID = re.compile(r"v1(;[a-z]{1,16}=[A-Za-z0-9%/:@._~-]{1,192}){1,12}")
"""The audit string of certificates; sshd writes it to its log, so nothing in it breaks a line."""


def key_id(**parts: str) -> str:
    """The audit string: `v1;name=value;…`, values percent-encoded and cut at 192 characters."""
    named = (f"{name}={quote(value, safe='/:@')[:192]}" for name, value in parts.items() if value)
    return ";".join(["v1", *named])
