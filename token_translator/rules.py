"""A rule: who gets a certificate, on which terms, and what is missing where it does not apply."""

import contextlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import Annotated, Any

import msgspec

from headgate.identity import Principal
from token_translator import entitlements
from token_translator.grants import Command, Profile, Terms
from token_translator.keys import ALL_TYPES

Word = Annotated[str, msgspec.Meta(min_length=1)]
Words = Annotated[frozenset[Word], msgspec.Meta(min_length=1)]
"""A condition: never an empty list, which would read as nobody and mean anybody."""
ACR = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")
"""What fits between the quotes of `acr_values` (RFC 9470, section 3) as one word."""


class Rule(Terms, frozen=True, kw_only=True):
    """Who gets a certificate, and on which terms. A condition that is not written always holds.

    All conditions of a rule have to hold. One of `issuers`, `clients`, `groups`, `entitlements`,
    `acr`, `realms` and `key_types` is enough; of `scopes` and `assurance` all are needed. With
    `subgroups`, a member of a group below a listed one is a member of it. `max_auth_age` is in
    seconds since the person's own login (`auth_time`).
    """

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=100)]
    profiles: Annotated[frozenset[Profile], msgspec.Meta(min_length=1)] = frozenset(Profile)
    realms: Words | None = None
    issuers: Words | None = None
    clients: Words | None = None
    groups: Words | None = None
    entitlements: Words | None = None
    subgroups: bool = False
    scopes: Words | None = None
    acr: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)] | None = None
    max_auth_age: Annotated[int, msgspec.Meta(ge=60)] | None = None
    assurance: Words | None = None
    key_types: Words | None = None

    def __post_init__(self) -> None:
        """Refuse words that can mean nothing, and limits that would not hold for services.

        Raises:
            ValueError: naming the key.
        """
        Terms.__post_init__(self)
        for urn in self.entitlements or ():
            try:
                entitlements.parse(urn)
            except entitlements.EntitlementError as error:
                raise ValueError(f"entitlements: {urn!r}: {error}") from error
        for word in self.acr or ():
            if not ACR.fullmatch(word):
                raise ValueError(f"acr: {word!r} cannot be asked for")
        unknown = (self.key_types or frozenset()) - set(ALL_TYPES)
        if unknown:
            raise ValueError(f"key_types: {min(unknown)!r} is not one of {', '.join(ALL_TYPES)}")
        if self.subgroups and self.groups is None and self.entitlements is None:
            raise ValueError("subgroups: there is no group that they could be below")
        limited = self.hosts is not None or self.command is not Command.SHELL
        if limited and self.profiles != {Profile.PERSON}:
            # A service's connection runs jobs, which is more than either of them allows.
            raise ValueError('hosts, command: they hold for logins only; say profiles = ["person"]')

    @property
    def conditions(self) -> frozenset[str]:
        """The names of the conditions that are written, `profiles` aside."""
        return frozenset(name for name in _CONDITIONS if getattr(self, name, None) is not None)


EVERYBODY = Rule(name="everybody with an active account")


@dataclass(frozen=True)
class Asked:
    """What somebody asks for, as the rules look at it; `key_type` None: no key is certified."""

    principal: Principal
    profile: Profile
    realm: str
    now: datetime
    key_type: str | None = None

    @cached_property
    def memberships(self) -> tuple[entitlements.Membership, ...]:
        """The group memberships among the entitlements; others stand beside them."""
        found = []
        for urn in self.principal.entitlements:
            with contextlib.suppress(entitlements.EntitlementError):
                found.append(entitlements.parse(urn))
        return tuple(found)


class Unmet(msgspec.Struct, frozen=True):
    """A condition that does not hold: its name, what would satisfy it, and if a new login would."""

    condition: str
    detail: str
    step_up: bool = False


class Verdict(msgspec.Struct, frozen=True):
    """What one rule says: it applies if nothing is unmet."""

    rule: str
    unmet: tuple[Unmet, ...] = ()

    @property
    def applies(self) -> bool:
        """Whether all conditions hold."""
        return not self.unmet

    @property
    def after_step_up(self) -> bool:
        """Whether a new, stronger login is all that is missing (RFC 9470)."""
        return bool(self.unmet) and all(unmet.step_up for unmet in self.unmet)

    def __str__(self) -> str:
        said = "; ".join(unmet.detail for unmet in self.unmet)
        return f"{self.rule}: {said or 'applies'}"


def judge(rule: Rule, asked: Asked) -> Verdict:
    """What a rule says, every condition that does not hold included."""
    unmet = []
    if asked.profile not in rule.profiles:
        unmet.append(Unmet("profiles", f"it is for {_either(rule.profiles)}"))
    for name in sorted(rule.conditions):
        found = _CONDITIONS[name](rule, asked)
        if found:
            unmet.append(Unmet(name, found, step_up=name in _STEP_UP))
    return Verdict(rule.name, tuple(unmet))


def _realms(rule: Rule, asked: Asked) -> str:
    return (
        "" if asked.realm in (rule.realms or ()) else f"it is for the realm {_either(rule.realms)}"
    )


def _issuers(rule: Rule, asked: Asked) -> str:
    return (
        ""
        if asked.principal.identity.iss in (rule.issuers or ())
        else "the token is from another issuer"
    )


def _clients(rule: Rule, asked: Asked) -> str:
    client = asked.principal.client_id
    return (
        "" if client in (rule.clients or ()) else f"the client {client or '(none)'} is not listed"
    )


def _groups(rule: Rule, asked: Asked) -> str:
    held, wanted = asked.principal.groups, {name.removeprefix("/") for name in rule.groups or ()}
    below = tuple(f"{name}/" for name in wanted)
    if held & wanted or (rule.subgroups and any(name.startswith(below) for name in held)):
        return ""
    return f"it needs one of the groups {_listed(wanted)}{_or_below(rule)}"


def _entitlements(rule: Rule, asked: Asked) -> str:
    wanted = [entitlements.parse(urn) for urn in rule.entitlements or ()]
    for held in asked.memberships:
        if any(held.satisfies(one, subgroups=rule.subgroups) for one in wanted):
            return ""
    return f"it needs one of the entitlements {_listed(rule.entitlements)}{_or_below(rule)}"


def _scopes(rule: Rule, asked: Asked) -> str:
    missing = (rule.scopes or frozenset()) - asked.principal.scopes
    return f"it needs the scope {_listed(missing)}" if missing else ""


def _acr(rule: Rule, asked: Asked) -> str:
    if asked.principal.acr in (rule.acr or ()):
        return ""
    return f"it needs a login of the class {_either(rule.acr)}"


def _max_auth_age(rule: Rule, asked: Asked) -> str:
    age = timedelta(seconds=rule.max_auth_age or 0)
    since = asked.principal.authenticated_at
    if since is not None and asked.now - since <= age:
        return ""
    said = "" if since is not None else ", and the token does not say when it was"
    return f"it needs a login of the last {age.total_seconds():.0f} s{said}"


def _assurance(rule: Rule, asked: Asked) -> str:
    missing = (rule.assurance or frozenset()) - asked.principal.assurance
    return f"it needs the assurance {_listed(missing)}" if missing else ""


def _key_types(rule: Rule, asked: Asked) -> str:
    if asked.key_type is None or asked.key_type in (rule.key_types or ()):
        return ""
    return f"it needs a key of the type {_either(rule.key_types)}"


_CONDITIONS: Mapping[str, Callable[[Rule, Asked], str]] = {
    "realms": _realms,
    "issuers": _issuers,
    "clients": _clients,
    "groups": _groups,
    "entitlements": _entitlements,
    "scopes": _scopes,
    "acr": _acr,
    "max_auth_age": _max_auth_age,
    "assurance": _assurance,
    "key_types": _key_types,
}
"""Each condition by its key: what would satisfy it, as words for the person; empty if it holds."""
_STEP_UP = frozenset({"acr", "max_auth_age"})


def _either(words: Sequence[str] | frozenset[Any] | None) -> str:
    return " or ".join(words if isinstance(words, tuple) else sorted(words or ()))


def _listed(words: frozenset[str] | set[str] | None) -> str:
    return ", ".join(sorted(words or ()))


def _or_below(rule: Rule) -> str:
    return " or a group below" if rule.subgroups else ""
