"""Holds in the database, and with each change of them, in its transaction, one of the feed."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import ColumnElement, Row, and_, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from headgate.changes import Change
from headgate.identity import Identity
from headgate.problems import NotFound
from token_translator import note_store, notes, revocation_store
from token_translator.database import READ_ONLY, answering
from token_translator.holds import EVERYWHERE, Hold
from token_translator.notes import Note
from token_translator.revocations import Order, Revocation
from token_translator.tables import CHANGE_HEAD, CHANGES, HOLDS

IN_FORCE = HOLDS.c.lifted_at.is_(None)
AGE = (HOLDS.c.created_at, HOLDS.c.id)


class DatabaseHolds:
    """`HoldStore`, `Holds` and the feed's `Source` on a database."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        self._reader = engine.execution_options(**READ_ONLY)

    async def denial(self, identity: Identity, realm: str) -> str | None:
        """The reason of a hold in force that concerns this realm; raises `Unavailable`."""
        concerned = and_(IN_FORCE, _of(identity), HOLDS.c.realm.in_((EVERYWHERE, realm)))
        rows = await self._rows(select(HOLDS).where(concerned).order_by(*AGE).limit(1))
        return _hold(rows[0]).told if rows else None

    async def place(self, hold: Hold) -> tuple[Hold, Order | None]:
        """Put a hold in force, with the order to revoke; or find its owner's own, and no order.

        Raises:
            Unavailable: the database is away.
        """
        wanted = Revocation(reason=hold.reason, by=hold.owner, identity=hold.identity)
        order = Order(uuid4(), hold.created_at, wanted)
        same = and_(_of(hold.identity), HOLDS.c.realm == hold.realm, HOLDS.c.owner == hold.owner)
        async with answering(), self._engine.begin() as connection:
            version = await _lock(connection)
            known = (await connection.execute(select(HOLDS).where(IN_FORCE, same))).first()
            if known is not None:
                return _hold(known), None
            await connection.execute(insert(HOLDS).values(_row(hold)))
            await _tell(connection, version, hold, at=hold.created_at)
            noted = _noted(hold, version, hold.created_at, by=hold.owner)
            await note_store.write(connection, noted)
            await revocation_store.write(connection, order)
        return hold, order

    async def lift(self, hold: UUID, *, by: str, at: datetime, force: bool = False) -> Hold:
        """Take a hold back; lifting it again changes nothing.

        Raises:
            NotFound: `hold_unknown`. Forbidden: `not_owner`, unless by `force`.
            Unavailable: the database is away.
        """
        async with answering(), self._engine.begin() as connection:
            version = await _lock(connection)
            row = (await connection.execute(select(HOLDS).where(HOLDS.c.id == hold))).first()
            if row is None:
                raise NotFound("There is no such hold.", code="hold_unknown")
            found = _hold(row)
            if not force:
                found.require_owner(by)
            if found.lifted_at is not None:
                return found
            values = {"lifted_at": int(at.timestamp()), "lifted_by": by}
            await connection.execute(update(HOLDS).where(HOLDS.c.id == hold).values(values))
            await _tell(connection, version, found, at=at)
            noted = _noted(found, version, at, by=by, event="hold_lifted")
            await note_store.write(connection, noted)
        return found

    async def known(self, hold: UUID) -> bool:
        """Whether there is a hold with that id, in force or lifted; raises `Unavailable`."""
        return bool(await self._rows(select(HOLDS.c.id).where(HOLDS.c.id == hold)))

    async def in_force(
        self, *, owner: str | None = None, identity: Identity | None = None, limit: int
    ) -> Sequence[Hold]:
        """Those in force, the newest first; all, or an owner's, or an identity's."""
        wanted = select(HOLDS).where(IN_FORCE)
        if owner is not None:
            wanted = wanted.where(HOLDS.c.owner == owner)
        if identity is not None:
            wanted = wanted.where(_of(identity))
        newest = wanted.order_by(HOLDS.c.created_at.desc(), HOLDS.c.id).limit(limit)
        return [_hold(row) for row in await self._rows(newest)]

    async def head(self) -> int:
        """The newest change's version, 0 before the first; raises `Unavailable`."""
        rows = await self._rows(select(CHANGE_HEAD.c.version))
        return int(rows[0].version)

    async def changes(self, *, after: int, limit: int) -> Sequence[Change]:
        """The changes after a version, the oldest first; raises `Unavailable`."""
        wanted = select(CHANGES).where(CHANGES.c.version > after).order_by(CHANGES.c.version)
        return [_change(row) for row in await self._rows(wanted.limit(limit))]

    async def everybody_held(self) -> tuple[int, Sequence[Hold]]:
        """A version, and all holds as they were then or a moment later, the oldest last.

        What is newer than the version comes again as a change, which changes nothing then.
        """
        version = await self.head()
        rows = await self._rows(select(HOLDS).where(IN_FORCE).order_by(*AGE))
        return version, [_hold(row) for row in reversed(rows)]

    async def _rows(self, wanted: Any) -> Sequence[Row[Any]]:  # noqa: ANN401 - any select
        async with answering(), self._reader.connect() as connection:
            return (await connection.execute(wanted)).all()


async def _lock(connection: AsyncConnection) -> int:
    """The version of the change to come; until we commit nobody else gets one."""
    version = await connection.scalar(select(CHANGE_HEAD.c.version).with_for_update())
    return int(version or 0) + 1


async def _tell(connection: AsyncConnection, version: int, hold: Hold, *, at: datetime) -> None:
    """Write down how the hold's identity stands in its realm now: the oldest hold has the word."""
    concerned = and_(IN_FORCE, _of(hold.identity), HOLDS.c.realm == hold.realm)
    oldest = (await connection.execute(select(HOLDS).where(concerned).order_by(*AGE))).first()
    await connection.execute(update(CHANGE_HEAD).values(version=version))
    await connection.execute(
        insert(CHANGES).values(
            version=version,
            iss=hold.identity.iss,
            sub=hold.identity.sub,
            realm=hold.realm,
            effective=oldest is None,
            reason="" if oldest is None else _hold(oldest).told,
            at=int(at.timestamp()),
        )
    )


def _noted(hold: Hold, version: int, at: datetime, *, by: str, event: str = "hold_placed") -> Note:
    return Note(
        id=uuid4(),
        at=at,
        event=event,
        mark="changes",
        number=version,
        iss=hold.identity.iss,
        sub=hold.identity.sub,
        realm=hold.realm,
        row=str(hold.id),
        actor=hold.owner if len(hold.owner) <= notes.MAX_ACTOR else "",
        detail=notes.detail(by, hold.reason),
    )


def _of(identity: Identity) -> ColumnElement[bool]:
    return and_(HOLDS.c.iss == identity.iss, HOLDS.c.sub == identity.sub)


def _row(hold: Hold) -> dict[str, Any]:
    return {
        "id": hold.id,
        "iss": hold.identity.iss,
        "sub": hold.identity.sub,
        "realm": hold.realm,
        "owner": hold.owner,
        "reason": hold.reason,
        "created_at": int(hold.created_at.timestamp()),
    }


def _hold(row: Row[Any]) -> Hold:
    return Hold(
        id=row.id,
        identity=Identity(row.iss, row.sub),
        realm=row.realm,
        owner=row.owner,
        reason=row.reason,
        created_at=datetime.fromtimestamp(row.created_at, UTC),
        lifted_at=None if row.lifted_at is None else datetime.fromtimestamp(row.lifted_at, UTC),
    )


def _change(row: Row[Any]) -> Change:
    return Change(
        version=row.version,
        identity=Identity(row.iss, row.sub),
        realm=row.realm,
        effective=row.effective,
        reason=row.reason,
    )
