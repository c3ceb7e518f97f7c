"""What the token translator was told of blocks, compared with the registry; of its store."""

from datetime import datetime

from sqlalchemy import ColumnElement, Table, and_, delete, insert, not_, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from account_importer.directory import Denial, State
from account_importer.tables import accounts, holds, people
from headgate.identity import Identity


class HoldBook:
    """What can be read and written of holds within one transaction, for one realm."""

    def __init__(self, connection: AsyncConnection, realm: str) -> None:
        self._connection = connection
        self._realm = realm

    async def to_place(self, now: datetime, *, limit: int) -> list[tuple[Identity, Denial]]:
        """Who is blocked, or ended by now, without the translator having been told; and why."""
        wanted = (
            select(accounts.c.iss, accounts.c.sub, accounts.c.reason)
            .outerjoin(people, _same(accounts, people))
            .outerjoin(holds, _same(accounts, holds))
            .where(accounts.c.realm == self._realm, _denied(now), holds.c.hold.is_(None))
            .order_by(accounts.c.changed_at)
            .limit(limit)
        )
        rows = await self._connection.execute(wanted)
        # Without a reason of the registry's own, it is the end date that has passed.
        return [(Identity(row.iss, row.sub), Denial(row.reason or Denial.EXPIRED)) for row in rows]

    async def to_lift(self, now: datetime, *, limit: int) -> list[tuple[Identity, str]]:
        """Whom the translator holds for us though they may act again; and the hold."""
        wanted = (
            select(holds.c.iss, holds.c.sub, holds.c.hold)
            .join(accounts, _same(accounts, holds))
            .outerjoin(people, _same(accounts, people))
            .where(holds.c.realm == self._realm, not_(_denied(now)))
            .order_by(holds.c.placed_at)
            .limit(limit)
        )
        rows = await self._connection.execute(wanted)
        return [(Identity(row.iss, row.sub), row.hold) for row in rows]

    async def placed(self, identity: Identity, hold: str, now: datetime) -> None:
        """The translator was told that this one is blocked."""
        await self.lifted(identity)
        row = {"iss": identity.iss, "sub": identity.sub, "realm": self._realm}
        await self._connection.execute(insert(holds).values(**row, hold=hold, placed_at=now))

    async def lifted(self, identity: Identity) -> None:
        """The translator was told that this one may act again."""
        await self._connection.execute(
            delete(holds).where(
                holds.c.iss == identity.iss,
                holds.c.sub == identity.sub,
                holds.c.realm == self._realm,
            )
        )


def _same(one: Table, other: Table) -> ColumnElement[bool]:
    return and_(*(one.c[name] == other.c[name] for name in ("iss", "sub", "realm")))


def _denied(now: datetime) -> ColumnElement[bool]:
    """What the interface calls blocked: by a reading of the source, or by an end date (`api`)."""
    ended = and_(
        accounts.c.state == State.ACTIVE.value,
        people.c.end_time.is_not(None),
        people.c.end_time <= now,
    )
    return or_(accounts.c.state == State.BLOCKED.value, ended)
