"""Credentials that were used: a service's is good for one request, and a token may be, too."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import delete
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncEngine

from headgate.identity import Principal
from headgate.peers import SKEW
from headgate.problems import Unauthenticated
from token_translator.database import answering
from token_translator.group_commit import GroupCommit
from token_translator.tables import USED_CREDENTIALS

FORGET_EVERY = timedelta(seconds=60)


class TokensOnce:
    """Lets each token have one certificate; what is asked with it later is refused."""

    def __init__(self, used: "UsedCredentials") -> None:
        self._used = used

    async def use_up(self, principal: Principal, now: datetime) -> None:
        """Take a token as used, whatever comes of it now.

        Raises:
            Unauthenticated: `token_used`, or `token_without_id`. Unavailable.
        """
        if not principal.token_id:
            raise Unauthenticated(
                "This site gives one certificate for a token, and yours has no `jti`.",
                code="token_without_id",
            )
        until = principal.expires_at + SKEW
        issuer = f"token of {principal.identity.iss}"
        if not await self._used.once(issuer, principal.token_id, until=until, now=now):
            raise Unauthenticated(
                "This token has had its certificate; log in again for a fresh one.",
                code="token_used",
            )


@dataclass(frozen=True, slots=True)
class _Use:
    digest: str
    expires_at: int
    now: datetime


class UsedCredentials:
    """Kept in the database until they have expired; those that come together are one commit."""

    def __init__(self, engine: AsyncEngine) -> None:
        self.engine = engine
        self._group = GroupCommit[_Use, bool](self._commit)
        self._forgot_at: datetime | None = None
        dialect = postgresql if engine.dialect.name == "postgresql" else sqlite
        new = dialect.insert(USED_CREDENTIALS).on_conflict_do_nothing()
        self._insert = new.returning(USED_CREDENTIALS.c.digest)

    async def once(self, issuer: str, jti: str, *, until: datetime, now: datetime) -> bool:
        """Whether nobody has shown this credential before; until it expires nobody may again.

        `issuer` is whose names they are, a service or an issuer of tokens. Committed when it
        returns; raises `Unavailable`.
        """
        digest = hashlib.sha256(f"{issuer}\0{jti}".encode()).hexdigest()
        async with answering():
            return await self._group.submit(_Use(digest, int(until.timestamp()) + 1, now))

    async def close(self) -> None:
        """Finish what is being written."""
        await self._group.close()

    async def _commit(self, uses: Sequence[_Use]) -> Sequence[bool | Exception]:
        wanted = {use.digest: use.expires_at for use in reversed(uses)}
        # In one order: two replicas must not wait for each other.
        rows = [{"digest": one, "expires_at": wanted[one]} for one in sorted(wanted)]
        async with answering(), self.engine.begin() as connection:
            new = set((await connection.scalars(self._insert, rows)).all())
            if self._is_time_to_forget(uses[-1].now):
                expired = USED_CREDENTIALS.c.expires_at < int(uses[-1].now.timestamp())
                await connection.execute(delete(USED_CREDENTIALS).where(expired))
        outcomes = []
        for use in uses:
            outcomes.append(use.digest in new)
            new.discard(use.digest)
        return outcomes

    def _is_time_to_forget(self, now: datetime) -> bool:
        if self._forgot_at is not None and now - self._forgot_at < FORGET_EVERY:
            return False
        self._forgot_at = now
        return True
