"""Seals in the database; seals that come together are committed together."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import (
    Row,
    and_,
    insert,
    select,
    tuple_,
    update,
)
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncEngine

from headgate.identity import Identity
from headgate.problems import Unavailable
from token_translator import note_store, revocation_store
from token_translator.database import READ_ONLY, answering
from token_translator.group_commit import GroupCommit
from token_translator.notes import Note
from token_translator.revocations import Order, Revocation
from token_translator.seals import ENDED, Place, Seal, settle
from token_translator.tables import SEALS


class DatabaseSeals:
    """`SealStore` on a database."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        self._reader = engine.execution_options(**READ_ONLY)
        self._group = GroupCommit[Seal, bool](self._commit)

    async def add(self, seal: Seal) -> bool:
        """True if it is new, False if the same was there; raises `seal_conflict` otherwise."""
        async with answering():
            return await self._group.submit(seal)

    async def find(self, instance: str, row: UUID) -> Seal | None:
        """The seal of a service's row, if there is one."""
        wanted = select(SEALS).where(SEALS.c.instance == instance, SEALS.c.row == row)
        async with answering(), self._reader.connect() as connection:
            found = (await connection.execute(wanted)).first()
        return None if found is None else _seal(found)

    async def of(
        self, identity: Identity, *, since: datetime, limit: int, after: Place | None = None
    ) -> Sequence[Seal]:
        """A person's seals made later than `since`, the newest first: those behind a place."""
        wanted = (
            select(SEALS)
            .where(SEALS.c.iss == identity.iss, SEALS.c.sub == identity.sub)
            .where(SEALS.c.sealed_at > int(since.timestamp()))
            .order_by(SEALS.c.sealed_at.desc(), SEALS.c.instance.desc(), SEALS.c.row.desc())
            .limit(limit)
        )
        if after is not None:
            place = tuple_(SEALS.c.sealed_at, SEALS.c.instance, SEALS.c.row)
            behind = (after.sealed_at, after.instance, after.row)
            types = [SEALS.c.sealed_at.type, SEALS.c.instance.type, SEALS.c.row.type]
            wanted = wanted.where(place < tuple_(*behind, types=types))
        async with answering(), self._reader.connect() as connection:
            return [_seal(row) for row in await connection.execute(wanted)]

    async def end(self, identity: Identity, row: UUID, at: datetime) -> Order | None:
        """Take a person's seals of that row back, for good; None: there are none.

        With that is written down, once, the order to revoke what lives for the row: this one.
        """
        by = f"owner:{identity.iss}#{identity.sub}"
        order = Order(uuid4(), at, Revocation(ENDED, by, identity=identity, row=str(row)))
        mine = and_(SEALS.c.row == row, SEALS.c.iss == identity.iss, SEALS.c.sub == identity.sub)
        end = update(SEALS).where(mine, SEALS.c.ended_at.is_(None))
        end = end.values(ended_at=int(at.timestamp()))
        async with answering(), self._engine.begin() as connection:
            ended = await connection.execute(end.returning(SEALS.c.instance, SEALS.c.realm))
            new = ended.all()
            for seal in new:
                note = Note(
                    id=uuid4(),
                    at=at,
                    event="delegation_ended",
                    mark="denials",
                    number=await note_store.count(connection),
                    iss=identity.iss,
                    sub=identity.sub,
                    realm=seal.realm,
                    instance=seal.instance,
                    row=str(row),
                )
                await note_store.write(connection, note)
            if new:
                await revocation_store.write(connection, order)
                return order
            if (await connection.execute(select(SEALS.c.row).where(mine))).first() is None:
                return None
            # Ended before: the order is done, or waits; without it this one changes nothing.
            return await revocation_store.of_row(connection, identity, str(row)) or order

    async def ready(self) -> str:
        """A readiness check: whether the database answers."""
        try:
            async with answering(), self._reader.connect() as connection:
                await connection.execute(select(SEALS.c.row).limit(1))
        except Unavailable as problem:
            return f"the database does not answer: {problem.__cause__}"
        return ""

    async def close(self) -> None:
        """Finish what is being written and close the database."""
        await self._group.close()
        await self._engine.dispose()

    async def _commit(self, seals: Sequence[Seal]) -> Sequence[bool | Exception]:
        keys = [(seal.instance, seal.row) for seal in seals]
        wanted = select(SEALS).where(tuple_(SEALS.c.instance, SEALS.c.row).in_(keys))
        try:
            async with answering(), self._engine.begin() as connection:
                known = [_seal(row) for row in await connection.execute(wanted)]
                outcomes = settle(seals, known)
                new = (
                    seal for seal, outcome in zip(seals, outcomes, strict=True) if outcome is True
                )
                rows = list(_rows(new))
                if rows:
                    await connection.execute(insert(SEALS), rows)
        except IntegrityError as error:
            # Another replica sealed one of these rows just now; next time we see it.
            raise Unavailable("The seal could not be stored.", retry_after=1) from error
        return outcomes


def _rows(seals: Iterable[Seal]) -> Iterable[dict[str, Any]]:
    for seal in seals:
        yield {
            "instance": seal.instance,
            "row": seal.row,
            "digest": seal.digest,
            "iss": seal.identity.iss,
            "sub": seal.identity.sub,
            "realm": seal.realm,
            "client_id": seal.client_id,
            "token": seal.token,
            "sealed_at": int(seal.sealed_at.timestamp()),
        }


def _seal(row: Row[Any]) -> Seal:
    return Seal(
        instance=row.instance,
        row=row.row,
        digest=row.digest,
        identity=Identity(row.iss, row.sub),
        realm=row.realm,
        client_id=row.client_id,
        token=row.token,
        sealed_at=datetime.fromtimestamp(row.sealed_at, UTC),
        ended_at=None if row.ended_at is None else datetime.fromtimestamp(row.ended_at, UTC),
    )
