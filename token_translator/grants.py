"""Policy as values: what a token may get, as a Grant, or a refusal that says why."""

import hashlib
import ipaddress
import re
from collections.abc import Sequence
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
PRINCIPAL = re.compile(rf"hg:{REALM}:{ACCOUNT}")

Extension = Literal[
    "permit-X11-forwarding",
    "permit-agent-forwarding",
    "permit-port-forwarding",
    "permit-pty",
    "permit-user-rc",
]
Moment = Annotated[datetime, msgspec.Meta(tz=True)]


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


class Rule(Section, frozen=True):
    """Who gets a certificate and what it carries. An empty list of a condition means: any.

    Rules are tried in order and the first whose conditions all hold decides. `lifetime` is in
    seconds. `extensions` and `source_addresses` concern a person's own certificates; a service's
    addresses are `session_source_addresses`.
    """

    name: str
    profiles: frozenset[Profile] = frozenset(Profile)
    issuers: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()
    clients: frozenset[str] = frozenset()
    scopes: frozenset[str] = frozenset()
    lifetime: Annotated[int, msgspec.Meta(ge=60, le=7 * 86400)] = 8 * 3600
    extensions: tuple[Extension, ...] = ("permit-pty",)
    source_addresses: tuple[str, ...] = ()
    session_source_addresses: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse networks that are none: sshd would refuse the whole certificate.

        Raises:
            ValueError: one is not in CIDR form.
        """
        for network in (*self.source_addresses, *self.session_source_addresses):
            ipaddress.ip_network(network)


EVERYBODY = Rule(name="everybody with an active account")


def admit(principal: Principal, profile: Profile, rules: Sequence[Rule]) -> Rule:
    """The rule that lets this principal have a certificate of this profile.

    Raises:
        Forbidden: none does; the detail says what each would need.
    """
    reasons = []
    for rule in rules:
        reason = mismatch(rule, principal, profile)
        if not reason:
            return rule
        reasons.append(f"{rule.name}: {reason}")
    raise Forbidden(
        f"No rule of this site gives you a certificate of the profile {profile}.",
        code="no_rule",
        members={"rules": reasons},
    )


def mismatch(rule: Rule, principal: Principal, profile: Profile) -> str:
    """Why a rule does not apply, as words for the person; empty if it does."""
    if profile not in rule.profiles:
        return f"it is for {', '.join(sorted(rule.profiles))}"
    if rule.issuers and principal.identity.iss not in rule.issuers:
        return "the token is from another issuer"
    if rule.clients and principal.client_id not in rule.clients:
        return f"the client {principal.client_id or '(none)'} is not listed"
    if rule.groups and not rule.groups & principal.groups:
        return f"it needs one of the groups {', '.join(sorted(rule.groups))}"
    missing = rule.scopes - principal.scopes
    if missing:
        return f"it needs the scope {min(missing)}"
    return ""


def grant_person(principal: Principal, account: Account, rule: Rule, *, now: datetime) -> Grant:
    """A person's own login under a rule, no longer than the token lives."""
    return _grant(
        account,
        now=now,
        until=min(now + timedelta(seconds=rule.lifetime), principal.expires_at),
        source_addresses=rule.source_addresses,
        extensions=rule.extensions,
    )


def grant_session(
    principal: Principal, account: Account, rule: Rule, *, program: str, now: datetime
) -> Grant:
    """A service's connection as the person: the session program, and no terminal."""
    return _grant(
        account,
        now=now,
        until=min(now + timedelta(seconds=rule.lifetime), principal.expires_at),
        source_addresses=rule.session_source_addresses,
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


def _grant(
    account: Account,
    *,
    now: datetime,
    until: datetime,
    source_addresses: tuple[str, ...],
    force_command: str = "",
    extensions: tuple[Extension, ...] = (),
) -> Grant:
    principal = f"hg:{account.realm}:{account.account}"
    if not PRINCIPAL.fullmatch(principal) or account.uid == 0 or account.account == "root":
        raise Forbidden(
            "The account this identity is mapped to never gets a certificate.",
            code="account_unsuitable",
        )
    until = until.astimezone(UTC).replace(microsecond=0)
    if until <= now:
        raise Unauthenticated("The token has expired.")
    return Grant(
        principals=(principal,),
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
        Invalid: an address that is none, or not within the networks of the grant.
    """
    if lifetime is not None:
        until = (now + timedelta(seconds=lifetime)).astimezone(UTC).replace(microsecond=0)
        grant = replace(grant, valid_before=min(grant.valid_before, until))
    if source_address is None:
        return grant
    try:
        address = ipaddress.ip_address(source_address)
    except ValueError as error:
        detail = "This is no IP address."
        raise Invalid(detail, faults=[Fault("/source_address", detail)]) from error
    allowed = [ipaddress.ip_network(network) for network in grant.source_addresses]
    if allowed and not any(address in network for network in allowed):
        detail = f"A certificate is good from {', '.join(grant.source_addresses)} only."
        raise Invalid(detail, faults=[Fault("/source_address", detail)])
    return replace(grant, source_addresses=(str(ipaddress.ip_network(address)),))


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
