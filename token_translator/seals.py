"""What may be done later without a token: seals, and the one command each of their uses allows."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Protocol
from uuid import UUID

from headgate.identity import Identity
from headgate.problems import Conflict
from token_translator.revocations import Order

PROGRAM = re.compile(r"(/[A-Za-z0-9._-]+)+")
_UUID = r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
ONLY = re.compile(rf"submit:{_UUID},sha256:[0-9a-f]{{64}}|(status|cancel|collect|clean):{_UUID}")
"""What follows `--only` in the force-command of a delegated certificate."""


ENDED = "The person has ended this delegation."


class Verb(StrEnum):
    """What a service may do for a sealed row once the token is gone."""

    SUBMIT = "submit"
    STATUS = "status"
    CANCEL = "cancel"
    COLLECT = "collect"
    CLEAN = "clean"


@dataclass(frozen=True, slots=True)
class Seal:
    """One row a service may act on: registered with the person's valid token, never changed.

    `digest` is the lower-case hex SHA-256 of what will be executed; `token` a fingerprint;
    `ended_at` when its owner took it back.
    """

    instance: str
    row: UUID
    digest: str
    identity: Identity
    realm: str
    client_id: str
    token: str
    sealed_at: datetime
    ended_at: datetime | None = None

    def same_as(self, other: "Seal") -> bool:
        """Whether this registers the same thing for the same person, whenever and however."""
        return (self.instance, self.row, self.digest, self.identity, self.realm) == (
            other.instance,
            other.row,
            other.digest,
            other.identity,
            other.realm,
        )

    def command(self, program: str, verb: Verb) -> str:
        """The only command that a certificate for this seal and verb runs."""
        if verb is Verb.SUBMIT:
            return f"{program} --only submit:{self.row},sha256:{self.digest}"
        return f"{program} --only {verb}:{self.row}"


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """Where a seal is in the list of a person's; `sealed_at` in Unix seconds."""

    sealed_at: int
    instance: str
    row: UUID

    @classmethod
    def of(cls, seal: Seal) -> "Place":
        """The place of a seal."""
        return cls(int(seal.sealed_at.timestamp()), seal.instance, seal.row)


class SealStore(Protocol):
    """Where seals are kept. Adding is durable when it returns."""

    async def add(self, seal: Seal) -> bool:
        """True if it is new, False if the same was there; raises `seal_conflict` otherwise."""

    async def find(self, instance: str, row: UUID) -> Seal | None:
        """The seal of a service's row, if there is one."""

    async def of(
        self, identity: Identity, *, since: datetime, limit: int, after: Place | None = None
    ) -> Sequence[Seal]:
        """A person's seals made later than `since`, the newest first: those behind a place."""

    async def end(self, identity: Identity, row: UUID, at: datetime) -> Order | None:
        """Take a person's seals of that row back, for good; None: there are none.

        With that is written down, once, the order to revoke what lives for the row: this one.
        """


def settle(wanted: Sequence[Seal], known: Sequence[Seal]) -> list[bool | Conflict]:
    """For each wanted seal, in order: new, the same again, or in conflict with an earlier one."""
    held = {(seal.instance, seal.row): seal for seal in known}
    outcomes: list[bool | Conflict] = []
    for seal in wanted:
        earlier = held.setdefault((seal.instance, seal.row), seal)
        if earlier is seal:
            outcomes.append(True)
        elif earlier.ended_at is not None:
            outcomes.append(Conflict(ENDED, code="delegation_ended"))
        elif earlier.same_as(seal):
            outcomes.append(False)
        else:
            outcomes.append(
                Conflict("This row is sealed already, for something else.", code="seal_conflict")
            )
    return outcomes
