"""All rules of a site together: which one decides, and what a refusal says."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec

from headgate.problems import Forbidden, Unauthenticated, stronger_login
from headgate.settings import Section
from token_translator.grants import Profile
from token_translator.rules import EVERYBODY, Asked, Rule, Verdict, Word, judge


class ClientCeiling(Section, frozen=True):
    """The most a client of an issuer gets, whatever the rules say: an orchestrator, no login."""

    issuer: Word
    client_id: Word
    profiles: Annotated[frozenset[Profile], msgspec.Meta(min_length=1)]


class RuleBook(msgspec.Struct, frozen=True):
    """The rules of a site and the ceilings of its clients."""

    rules: tuple[Rule, ...] = (EVERYBODY,)
    clients: tuple[ClientCeiling, ...] = ()

    def verdicts(self, asked: Asked) -> tuple[Verdict, ...]:
        """What each rule says, in order."""
        return tuple(judge(rule, asked) for rule in self.rules)

    def admit(self, asked: Asked) -> Rule:
        """The first rule all of whose conditions hold.

        Raises:
            Forbidden: `client_ceiling`, or `no_rule` with the verdict of each rule.
            Unauthenticated: `insufficient_user_authentication`, where a new login would do.
        """
        self._check_client(asked)
        verdicts = []
        for rule in self.rules:
            verdict = judge(rule, asked)
            if verdict.applies:
                return rule
            verdicts.append(verdict)
        members = {"rules": [str(verdict) for verdict in verdicts], "verdicts": verdicts}
        for rule, verdict in zip(self.rules, verdicts, strict=True):
            if verdict.after_step_up:
                raise _step_up(rule, members)
        raise Forbidden(
            f"No rule of this site gives you a certificate of the profile {asked.profile}.",
            code="no_rule",
            members=members,
        )

    def _check_client(self, asked: Asked) -> None:
        who = (asked.principal.identity.iss, asked.principal.client_id)
        for ceiling in self.clients:
            if (ceiling.issuer, ceiling.client_id) == who and asked.profile not in ceiling.profiles:
                allowed = ", ".join(sorted(ceiling.profiles))
                raise Forbidden(
                    f"Tokens of the client {ceiling.client_id} get certificates of the profile "
                    f"{allowed} only.",
                    code="client_ceiling",
                )

    def check(self, *, issuers: Sequence[str], realms: Sequence[str]) -> None:
        """Return if no word of the rules can only be a mistake.

        Raises:
            ValueError: naming the rule.
        """
        names = [rule.name for rule in self.rules]
        for at, rule in enumerate(self.rules):
            if rule.name in names[:at]:
                raise ValueError(f"rules: two are called {rule.name!r}")
            for earlier in self.rules[:at]:
                if not earlier.conditions and rule.profiles <= earlier.profiles:
                    raise ValueError(
                        f"rules: {rule.name!r} is never reached: {earlier.name!r} stands before it "
                        "and is for everybody"
                    )
            _check_words(rule, issuers, realms)
        for ceiling in self.clients:
            if ceiling.issuer not in issuers:
                raise ValueError(f"clients: {ceiling.issuer!r} is not one of the issuers")

    @property
    def details(self) -> frozenset[Literal["groups", "assurance"]]:
        """What the rules need to know of a person that a token need not say (`oidc.Detail`)."""
        written = frozenset[str]().union(*(rule.conditions for rule in self.rules))
        needed: set[Literal["groups", "assurance"]] = set()
        if {"groups", "entitlements"} & written:
            needed.add("groups")
        if "assurance" in written:
            needed.add("assurance")
        return frozenset(needed)


def _check_words(rule: Rule, issuers: Sequence[str], realms: Sequence[str]) -> None:
    for name, known in (("issuers", issuers), ("realms", realms)):
        unknown = frozenset(getattr(rule, name) or ()) - set(known)
        if unknown:
            raise ValueError(f"rules: {rule.name!r}: {min(unknown)!r} is not one of the {name}")
    for name in ("groups", "entitlements", "clients"):
        # Else any of them could make somebody a member of another's group.
        if len(issuers) > 1 and rule.issuers is None and getattr(rule, name) is not None:
            raise ValueError(
                f"rules: {rule.name!r}: {name} are one issuer's words; say whose, with issuers"
            )


def _step_up(rule: Rule, members: Mapping[str, Any]) -> Unauthenticated:
    """Which login would satisfy this rule."""
    return stronger_login(
        "This needs another login, or a more recent one: log in again as said, and ask again.",
        acr_values=rule.acr or (),
        max_age=rule.max_auth_age,
        members=members,
    )
