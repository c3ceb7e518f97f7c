"""Who may suspend and revoke over HTTP: persons the settings name, freshly logged in."""

from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec

from headgate.clock import Clock
from headgate.identity import Principal
from headgate.problems import Forbidden
from headgate.settings import Section
from token_translator.grants import Profile
from token_translator.rulebook import RuleBook
from token_translator.rules import Asked, Rule, Word, Words, judge


class AdministratorSettings(Section, frozen=True):
    """Some of an issuer's people: those of `subjects`, or the members of any of `groups`.

    Where both are given, both are needed. `acr` are the classes of login that are good enough,
    `max_auth_age` the seconds since it (RFC 9470 on refusal).
    """

    issuer: Word
    subjects: Words | None = None
    groups: Words | None = None
    acr: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)] | None = None
    max_auth_age: Annotated[int, msgspec.Meta(ge=60)] | None = None

    def __post_init__(self) -> None:
        """Refuse an entry that would make everybody an administrator.

        Raises:
            ValueError: it names nobody.
        """
        if self.subjects is None and self.groups is None:
            raise ValueError("administrators: name subjects or groups")

    def rule(self) -> Rule:
        """The entry's conditions but for the subjects."""
        return Rule(
            name="administrators of this site",
            issuers=frozenset({self.issuer}),
            groups=self.groups,
            acr=self.acr,
            max_auth_age=self.max_auth_age,
        )


class Administrators:
    """The right to suspend and revoke; nobody has it where no entry is written."""

    def __init__(self, entries: Sequence[AdministratorSettings], clock: Clock) -> None:
        self._entries = [(entry.subjects, entry.rule()) for entry in entries]
        self._clock = clock

    @property
    def details(self) -> frozenset[Literal["groups"]]:
        """What must be known of a person (`oidc.Detail`)."""
        grouped = any(rule.groups is not None for _, rule in self._entries)
        return frozenset({"groups"} if grouped else ())

    def require(self, principal: Principal) -> str:
        """The administrator as ledger and holds name them: `admin:<iss>#<sub>`.

        Raises:
            Forbidden: `not_administrator`. Unauthenticated: a fresher or stronger login is needed.
        """
        asked = Asked(principal, Profile.PERSON, realm="", now=self._clock.now())
        named = [
            rule
            for subjects, rule in self._entries
            if subjects is None or principal.identity.sub in subjects
        ]
        able = tuple(
            rule
            for rule, verdict in ((rule, judge(rule, asked)) for rule in named)
            if verdict.applies or verdict.after_step_up
        )
        if not able:
            raise Forbidden("This is for administrators of this site.", code="not_administrator")
        RuleBook(able).admit(asked)
        return f"admin:{principal.identity.iss}#{principal.identity.sub}"
