"""Who asked for an account by way of a wrapper: written down for the administrator, no more."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from sqlalchemy import delete, insert, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncEngine

from headgate.identity import Identity
from token_translator.database import READ_ONLY, answering
from token_translator.tables import ACCOUNT_REQUESTS

MAX_SHOWN = 1000


@dataclass(frozen=True, slots=True)
class AccountRequest:
    """Somebody with a valid token and no account: when they asked first, and last."""

    identity: Identity
    realm: str
    asked_at: datetime
    asked_again_at: datetime


class AccountRequests:
    """One row for each identity and realm, however often they ask; gone `kept` after the last."""

    def __init__(self, engine: AsyncEngine, *, kept: timedelta) -> None:
        self._engine = engine
        self._kept = kept
        self._reader = engine.execution_options(**READ_ONLY)

    async def add(self, identity: Identity, realm: str, now: datetime) -> datetime:
        """Write a request down; when this person asked first.

        Raises:
            Unavailable: the database is away.
        """
        whose = {"iss": identity.iss, "sub": identity.sub, "realm": realm}
        moment = int(now.timestamp())
        mine = [ACCOUNT_REQUESTS.c[name] == value for name, value in whose.items()]
        again = (
            update(ACCOUNT_REQUESTS)
            .where(*mine)
            .values(asked_again_at=moment)
            .returning(ACCOUNT_REQUESTS.c.asked_at)
        )
        try:
            async with answering(), self._engine.begin() as connection:
                old = ACCOUNT_REQUESTS.c.asked_again_at < int((now - self._kept).timestamp())
                await connection.execute(delete(ACCOUNT_REQUESTS).where(old))
                first = await connection.scalar(again)
                if first is None:
                    row = {**whose, "asked_at": moment, "asked_again_at": moment}
                    await connection.execute(insert(ACCOUNT_REQUESTS), row)
        except IntegrityError:
            first = moment  # another replica wrote it just now
        return datetime.fromtimestamp(moment if first is None else first, UTC)

    async def all(self) -> Sequence[AccountRequest]:
        """The newest requests, a bounded number."""
        newest = ACCOUNT_REQUESTS.c.asked_again_at.desc()
        async with self._reader.connect() as connection:
            rows = await connection.execute(
                select(ACCOUNT_REQUESTS).order_by(newest).limit(MAX_SHOWN)
            )
            return [
                AccountRequest(
                    Identity(row.iss, row.sub),
                    row.realm,
                    datetime.fromtimestamp(row.asked_at, UTC),
                    datetime.fromtimestamp(row.asked_again_at, UTC),
                )
                for row in rows
            ]
