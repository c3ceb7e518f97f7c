"""Kept sessions: one per user and cluster, opened with a token, closed when its right ends."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Protocol

import structlog

from gateway.sessions.credentials import Certify, Credentials, fresh
from gateway.sessions.session import SessionUnavailable, UserSession
from headgate.clock import Clock
from headgate.identity import Identity

log = structlog.get_logger(__name__)

MAX_AGE = timedelta(minutes=10)
"""Until the registry's feed tells us of a block, a session is closed after that long."""
IN_FLIGHT = 16
HANDSHAKES = 8
RETIRE_SECONDS = 60.0


class Connector(Protocol):
    """Opens sessions on one cluster."""

    async def connect(self, account: str, credentials: Credentials) -> UserSession:
        """A session of that account; raises SessionUnavailable."""


@dataclass(frozen=True, slots=True)
class User:
    """For whom a session acts: an identity, the account it maps to, and the cluster."""

    identity: Identity
    cluster: str
    account: str


@dataclass(slots=True)
class _Kept:
    """The place of one user's session; `opening` is the task that opens it, while it does.

    `users` counts who is in it or waits to be: until there is nobody it stays the user's place.
    """

    users: int = 0
    room: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(IN_FLIGHT))
    opening: asyncio.Task[None] | None = None
    session: UserSession | None = None
    ends_at: datetime | None = None


class SessionPool:
    """Lends a user's session; opens it when somebody holds a right to, keeps it for the rest."""

    def __init__(self, *, connectors: Mapping[str, Connector], clock: Clock) -> None:
        self._connectors = connectors
        self._clock = clock
        self._kept: dict[User, _Kept] = {}
        self._retiring: set[asyncio.Task[None]] = set()
        self._handshakes = {name: asyncio.Semaphore(HANDSHAKES) for name in connectors}

    def offer(self, user: User, certify: Certify) -> None:
        """Begin to open the user's session while their token is at hand, unless one is kept."""
        kept = self._kept.setdefault(user, _Kept())
        if self._usable(kept) is None and kept.opening is None:
            self._retire(kept)
            kept.opening = asyncio.create_task(self._open(user, certify, kept))

    @contextlib.asynccontextmanager
    async def with_token(self, user: User, certify: Certify) -> AsyncIterator[UserSession]:
        """The user's session, opened with `certify` (their token) where none is kept.

        Raises:
            SessionUnavailable: it cannot be opened.
        """
        async with self._place(user) as kept:
            session = await self._session(kept)
            # Twice: what is being opened may fail for the sake of somebody else's older token.
            for _ in range(2):
                if session is None:
                    self.offer(user, certify)
                    session = await self._session(kept)
            if session is None:
                raise SessionUnavailable(f"no session for {user.account} on {user.cluster}")
            yield session

    @contextlib.asynccontextmanager
    async def without_token(self, user: User, delegated: Certify) -> AsyncIterator[UserSession]:
        """The kept session if there is one, else one for what `delegated` certifies alone.

        Raises:
            SessionUnavailable: it cannot be opened.
        """
        async with self._place(user) as kept:
            session = await self._session(kept)
            if session is not None:
                yield session
                return
            session = await self._connect(user, await fresh(delegated))
            try:
                yield session
            finally:
                await session.close()

    async def sweep(self) -> None:
        """Close what has ended or whose right has."""
        for user, kept in list(self._kept.items()):
            if kept.opening is None and self._usable(kept) is None:
                self._retire(kept)
                if not kept.users:
                    del self._kept[user]

    async def close(self) -> None:
        """Close all, what is under way included."""
        opening = [kept.opening for kept in self._kept.values() if kept.opening is not None]
        for task in opening:
            task.cancel()
        await asyncio.gather(*opening, return_exceptions=True)
        for kept in self._kept.values():
            self._retire(kept)
        self._kept.clear()
        for task in self._retiring:
            task.cancel()
        await asyncio.gather(*self._retiring, return_exceptions=True)

    @contextlib.asynccontextmanager
    async def _place(self, user: User) -> AsyncIterator[_Kept]:
        """Room for one more request of the user; what is kept is looked at once there is."""
        kept = self._kept.setdefault(user, _Kept())
        kept.users += 1
        try:
            async with kept.room:
                yield kept
        finally:
            kept.users -= 1

    async def _session(self, kept: _Kept) -> UserSession | None:
        """The session, once whoever opens it has done so; None where there is none."""
        if kept.opening is not None:
            await asyncio.wait([kept.opening])
        return self._usable(kept)

    def _usable(self, kept: _Kept) -> UserSession | None:
        session, ends_at = kept.session, kept.ends_at
        if session is None or ends_at is None or not session.alive:
            return None
        return session if self._clock.now() < ends_at else None

    async def _open(self, user: User, certify: Certify, kept: _Kept) -> None:
        try:
            credentials = await fresh(certify)
            kept.session = await self._connect(user, credentials)
            kept.ends_at = min(credentials.valid_before, self._clock.now() + MAX_AGE)
        except SessionUnavailable as error:
            # Who needs it now tries again; who does not will never miss it.
            log.warning("session_not_opened", account=user.account, error=str(error))
        except Exception:
            log.exception("session_not_opened", account=user.account)
        finally:
            kept.opening = None

    async def _connect(self, user: User, credentials: Credentials) -> UserSession:
        connector = self._connectors.get(user.cluster)
        if connector is None:
            raise SessionUnavailable(f"cluster {user.cluster} is not configured")
        async with self._handshakes[user.cluster]:
            return await connector.connect(user.account, credentials)

    def _retire(self, kept: _Kept) -> None:
        """Lend a session to nobody any more; hang up when what is under way is done."""
        session, kept.session, kept.ends_at = kept.session, None, None
        if session is not None:
            task = asyncio.create_task(_finish(session))
            self._retiring.add(task)
            task.add_done_callback(self._retiring.discard)


async def _finish(session: UserSession) -> None:
    try:
        async with asyncio.timeout(RETIRE_SECONDS):
            await session.drain()
    except TimeoutError:
        log.warning("session_cut")
    finally:
        await session.close()
