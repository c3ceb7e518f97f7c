"""What the ledger is told besides certificates, and the marks by which an old database shows."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol
from uuid import UUID

from token_translator import wire

Mark = Literal["changes", "denials"]
"""What is counted: changes of holds; ends of delegations, stops and starts of services, hosts that
are enrolled and forgotten."""
MAX_DETAIL = MAX_ACTOR = 255


@dataclass(frozen=True, slots=True)
class Note:
    """Something that happened; `mark` and `number` say how far the database was with it.

    `iss` and `sub` are empty where it is about no person. Of a hold `row` is the id and `actor` the
    owner, if that is short enough. The ledger keeps `detail` encrypted.
    """

    id: UUID
    at: datetime
    event: str
    mark: Mark
    number: int
    iss: str = ""
    sub: str = ""
    realm: str = ""
    instance: str = ""
    row: str = ""
    actor: str = ""
    detail: str = ""

    def subject(self) -> wire.Subject:
        """Whom and what it is about, as the signer is told."""
        return wire.Subject(
            iss=self.iss,
            sub=self.sub,
            account="",
            realm=self.realm,
            profile="denial",
            instance=self.instance,
            row=self.row,
            actor=self.actor,
        )


@dataclass(frozen=True, slots=True)
class Reached:
    """How far a database is; `went_back_at`: since when it is known to be an older one.

    `told_…`: up to there the ledger may have been told. That is written down before it is told, so
    a database to which the ledger's marks are news is an older one, whatever was counted in it
    since. `old_…` is what it had told when that was noticed: what it has lost comes after it.
    """

    changes: int
    denials: int
    told_changes: int
    told_denials: int
    went_back_at: datetime | None = None
    old_changes: int = 0
    old_denials: int = 0

    def number(self, mark: Mark) -> int:
        """That of one mark."""
        return self.changes if mark == "changes" else self.denials

    def told(self, mark: Mark) -> int:
        """Until which number of one mark the ledger may have been told."""
        return self.told_changes if mark == "changes" else self.told_denials

    def kept(self, mark: Mark) -> int:
        """Until which number nothing is lost."""
        if self.went_back_at is None:
            return self.told(mark)
        return self.old_changes if mark == "changes" else self.old_denials


class NoteStore(Protocol):
    """Where notes wait. All methods raise `Unavailable`."""

    async def pending(self) -> Sequence[Note]:
        """The oldest that the signer has still to be told."""

    async def done(self, note: UUID) -> None:
        """Forget one."""

    async def reached(self) -> Reached:
        """How far the database is."""

    async def will_tell(self, reached: Reached) -> bool:
        """Write down that the ledger is told up to there; False: it is not the same any more."""

    async def went_back(self, at: datetime) -> None:
        """Remember that it is an older one."""


def detail(by: str, reason: str = "") -> str:
    """By whose word something happened, and why, as short as a note has it."""
    return f"by {by}{f': {reason}' if reason else ''}"[:MAX_DETAIL]
