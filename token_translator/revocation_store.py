"""Orders to revoke in the database: an outbox that survives a signer that is away."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import msgspec
from sqlalchemy import Row, and_, delete, insert, select
from sqlalchemy.exc import InterfaceError, OperationalError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from headgate.identity import Identity
from headgate.problems import Unavailable
from token_translator.database import READ_ONLY
from token_translator.revocations import Order, Revocation
from token_translator.tables import REVOCATION_ORDERS

AT_ONCE = 100


async def write(connection: AsyncConnection, order: Order) -> None:
    """Write an order down within somebody's transaction."""
    wanted, identity = order.revocation, order.revocation.identity
    await connection.execute(
        insert(REVOCATION_ORDERS).values(
            id=order.id,
            iss=identity and identity.iss,
            sub=identity and identity.sub,
            serials=msgspec.json.encode(wanted.serials).decode(),
            keys=msgspec.json.encode(wanted.keys).decode(),
            authority=wanted.authority,
            row=wanted.row,
            reason=wanted.reason,
            ordered_by=wanted.by,
            ordered_at=int(order.at.timestamp()),
        )
    )


async def of_row(connection: AsyncConnection, identity: Identity, row: str) -> Order | None:
    """The order for a row that the signer has still to hear of, if there is one."""
    orders = REVOCATION_ORDERS.c
    mine = and_(orders.row == row, orders.iss == identity.iss, orders.sub == identity.sub)
    found = (await connection.execute(select(REVOCATION_ORDERS).where(mine).limit(1))).first()
    return None if found is None else _order(found)


class DatabaseOrders:
    """`OrderStore` on a database."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        self._reader = engine.execution_options(**READ_ONLY)

    async def add(self, order: Order) -> None:
        """Write an order down; raises `Unavailable`."""
        try:
            async with self._engine.begin() as connection:
                await write(connection, order)
        except (OperationalError, InterfaceError) as error:
            raise _away() from error

    async def pending(self) -> Sequence[Order]:
        """The oldest orders that the signer has still to hear of; raises `Unavailable`."""
        wanted = select(REVOCATION_ORDERS).order_by(REVOCATION_ORDERS.c.ordered_at).limit(AT_ONCE)
        try:
            async with self._reader.connect() as connection:
                return [_order(row) for row in await connection.execute(wanted)]
        except (OperationalError, InterfaceError) as error:
            raise _away() from error

    async def done(self, order: UUID) -> None:
        """Forget an order; raises `Unavailable`."""
        try:
            async with self._engine.begin() as connection:
                await connection.execute(
                    delete(REVOCATION_ORDERS).where(REVOCATION_ORDERS.c.id == order)
                )
        except (OperationalError, InterfaceError) as error:
            raise _away() from error


def _order(row: Row[Any]) -> Order:
    wanted = Revocation(
        reason=row.reason,
        by=row.ordered_by,
        serials=msgspec.json.decode(row.serials, type=tuple[int, ...]),
        identity=None if row.iss is None else Identity(row.iss, row.sub),
        keys=msgspec.json.decode(row.keys, type=tuple[str, ...]),
        authority=row.authority,
        row=row.row,
    )
    return Order(row.id, datetime.fromtimestamp(row.ordered_at, UTC), wanted)


def _away() -> Unavailable:
    return Unavailable("The database does not answer.", retry_after=1)
