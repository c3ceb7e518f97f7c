"""Who may not act at the moment: holds, each with an owner and a reason, and who may lift them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol
from uuid import UUID

from headgate.identity import Identity
from headgate.problems import Forbidden
from token_translator.revocations import Order

EVERYWHERE = ""
"""As a hold's realm: all of them."""
_OPERATORS = "this site's operators"


@dataclass(frozen=True, slots=True)
class Hold:
    """One party's word that an identity may not act in a realm, until that party takes it back.

    `owner` is `peer:<instance>`, `admin:<iss>#<sub>` or `local:<unix user>`. The reason is told to
    the person. An identity may act where no hold is in force.
    """

    id: UUID
    identity: Identity
    realm: str
    owner: str
    reason: str
    created_at: datetime
    lifted_at: datetime | None = None

    @property
    def told(self) -> str:
        """The reason with whose word it is, for the person: at most 1000 characters."""
        kind, _, name = self.owner.partition(":")
        known = {"peer": f"the service {name[:60]}", "admin": "an administrator"}
        by = f"by {known.get(kind, _OPERATORS)}"
        return f"{self.reason[:900]} ({by})" if self.reason else by

    def require_owner(self, by: str) -> None:
        """Return if that party may lift this hold; raises `Forbidden` (`not_owner`)."""
        if by != self.owner:
            raise Forbidden(
                f"Only {self.owner} lifts this hold.",
                code="not_owner",
                members={"owner": self.owner},
            )


def suspended(reason: str) -> Forbidden:
    """The problem of somebody who asks for a certificate under a hold."""
    words = f": {reason}" if reason else ""
    return Forbidden(f"You are suspended here{words}.", code="suspended")


class Holds(Protocol):
    """Where it is asked, at the moment it counts, whether an identity may act."""

    async def denial(self, identity: Identity, realm: str) -> str | None:
        """The reason of a hold in force that concerns this realm; raises `Unavailable`."""


class HoldStore(Protocol):
    """Where holds are kept. What changes is durable, and in the change feed, when it returns."""

    async def place(self, hold: Hold) -> tuple[Hold, Order | None]:
        """Put a hold in force, with an order to revoke the identity's live certificates.

        Where its owner holds the identity in that realm already: that hold, and no order.
        """

    async def lift(self, hold: UUID, *, by: str, at: datetime, force: bool = False) -> Hold:
        """Take a hold back; lifting it again changes nothing.

        Raises:
            NotFound: `hold_unknown`. Forbidden: `not_owner`, unless by `force`.
        """

    async def known(self, hold: UUID) -> bool:
        """Whether there is a hold with that id, in force or lifted."""

    async def in_force(
        self, *, owner: str | None = None, identity: Identity | None = None, limit: int
    ) -> Sequence[Hold]:
        """Those in force, the newest first; all, or an owner's, or an identity's."""
