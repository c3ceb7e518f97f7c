"""Kept sessions: one per user and cluster, opened with a token, closed when its right ends."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Protocol

import structlog

from gateway.sessions.credentials import Certify, Credentials, fresh
from gateway.sessions.session import (
    LoginStuck,
    NotAdmitted,
    SessionDenied,
    SessionUnavailable,
    UserSession,
)
from gateway.sessions.shut import ShutOut
from gateway.sessions.user import User
from headgate.changes import Callback, Change, Stale
from headgate.clock import Clock
from headgate.identity import Identity

log = structlog.get_logger(__name__)

MAX_AGE = timedelta(minutes=10)
"""A second line behind the change feed: after that long the translator, and through it the
registry, is asked again."""
IN_FLIGHT = 16
LOGINS = 2
"""Logins of one user at a time: one whose home directory hangs must not fill the node's places."""
RETIRE_SECONDS = 60.0


class Connector(Protocol):
    """Opens sessions on one cluster."""

    async def connect(self, account: str, credentials: Credentials) -> UserSession:
        """A session of that account; raises SessionUnavailable."""

    def require(self) -> None:
        """Raise `NodeAway` where no login node can be reached, as far as is known."""

    async def greetings(self) -> list[tuple[str, str, str]]:
        """Of each login node its name, what its sshd says it is, and what is wrong."""

    async def close(self) -> None:
        """Let go of what is kept besides sessions."""


class Denials(Protocol):
    """Who may not act at the moment: `headgate.changes.ChangeFeed`."""

    def current(self) -> bool:
        """Whether that is known now."""

    def denial(self, identity: Identity, realm: str) -> str | None:
        """Why an identity may not act in a realm; None: nothing is known against it."""

    def subscribe(self, callback: Callback) -> Callable[[], None]:
        """Be told of each denial, and when nothing is known any more; how to end that."""


@dataclass(slots=True)
class _Kept:
    """The place of one user's session; `opening` is the task that opens it, while it does.

    `users` counts who is in it or waits to be: until there is nobody it stays the user's place.
    """

    users: int = 0
    room: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(IN_FLIGHT))
    logins: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(LOGINS))
    failure: SessionUnavailable | None = None
    opening: asyncio.Task[None] | None = None
    session: UserSession | None = None
    ends_at: datetime | None = None


class SessionPool:
    """Lends a user's session; opens it when somebody holds a right to, keeps it for the rest.

    `realms` are the clusters' by their names. Who is denied loses all connections at once, and
    everybody does when it is not known who is.
    """

    def __init__(
        self,
        *,
        connectors: Mapping[str, Connector],
        realms: Mapping[str, str],
        denials: Denials,
        clock: Clock,
    ) -> None:
        self._connectors = connectors
        self._realms = realms
        self._denials = denials
        self._clock = clock
        self._unsubscribe = denials.subscribe(self._hear)
        self._kept: dict[User, _Kept] = {}
        self._open_sessions: dict[int, tuple[User, UserSession]] = {}
        self._retiring: set[asyncio.Task[None]] = set()
        self._shut = ShutOut(clock)

    def opened(self) -> int:
        """How many sessions are open."""
        return len(self._open_sessions)

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
            SessionDenied: the user may not act. SessionUnavailable: it cannot be opened.
        """
        self._require_allowed(user)
        async with self._place(user) as kept:
            session = await self._session(kept)
            # Twice: what is being opened may fail for the sake of somebody else's older token.
            for _ in range(2):
                if session is None:
                    self.offer(user, certify)
                    session = await self._session(kept)
            if session is None:
                self._require_allowed(user)
                words = f"no session for {user.account} on {user.cluster}"
                raise kept.failure or SessionUnavailable(words)
            yield session

    @contextlib.asynccontextmanager
    async def without_token(self, user: User, delegated: Certify) -> AsyncIterator[UserSession]:
        """The kept session if there is one, else one for what `delegated` certifies alone.

        Raises:
            SessionDenied: the user may not act. SessionUnavailable: it cannot be opened.
        """
        self._require_allowed(user)
        async with self._place(user) as kept:
            session = await self._session(kept)
            if session is not None:
                yield session
                return
            session, _ = await self._login(user, delegated, kept)
            try:
                yield session
            finally:
                await self._hang_up(session)

    async def sweep(self) -> None:
        """Close what has ended or whose right has."""
        self._cut({user for user, _ in self._open_sessions.values() if self._refusal(user)})
        for user, kept in list(self._kept.items()):
            if kept.opening is None and self._usable(kept) is None:
                self._retire(kept)
                if not kept.users:
                    del self._kept[user]

    async def close(self) -> None:
        """Close all, what is under way included."""
        self._unsubscribe()
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
        for connector in self._connectors.values():
            await connector.close()

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
            kept.failure = None
            kept.session, credentials = await self._login(user, certify, kept)
            kept.ends_at = min(credentials.valid_before, self._clock.now() + MAX_AGE)
        except SessionUnavailable as error:
            # Who needs it now tries again; who does not will never miss it.
            kept.failure = error
            log.warning("session_not_opened", account=user.account, error=str(error))
        except Exception:
            log.exception("session_not_opened", account=user.account)
        finally:
            kept.opening = None

    async def _login(
        self, user: User, certify: Certify, kept: _Kept
    ) -> tuple[UserSession, Credentials]:
        """A session under a fresh certified key of somebody who may act."""
        connector = self._connectors.get(user.cluster)
        if connector is None:
            raise SessionUnavailable(f"cluster {user.cluster} is not configured")
        async with kept.logins:
            self._require_allowed(user)
            # Neither a certificate nor a login for what is known to come to nothing.
            connector.require()
            self._shut.require(user)
            credentials = await fresh(certify)
            self._require_allowed(user)
            self._shut.require_other(user, credentials)
            try:
                session = await connector.connect(user.account, credentials)
            except (NotAdmitted, LoginStuck) as error:
                self._shut.note(user, credentials, error)
                raise
        self._shut.forget(user)
        # From here on a denial finds it; one that came meanwhile did not.
        self._open_sessions[id(session)] = (user, session)
        try:
            self._require_allowed(user)
        except SessionUnavailable:
            await self._hang_up(session)
            raise
        return session, credentials

    async def _hang_up(self, session: UserSession) -> None:
        """Close a session, unless somebody does already."""
        if self._open_sessions.pop(id(session), None) is not None:
            await session.close()

    def _refusal(self, user: User) -> SessionUnavailable | None:
        """Why nothing may be done for a user now; None: it may."""
        if not self._denials.current():
            return SessionUnavailable("it is not known at the moment who may act here")
        reason = self._denials.denial(user.identity, self._realms.get(user.cluster, ""))
        return None if reason is None else SessionDenied(f"the user is suspended: {reason}")

    def _require_allowed(self, user: User) -> None:
        refusal = self._refusal(user)
        if refusal is not None:
            raise refusal

    def _hear(self, heard: Change | Stale) -> None:
        """A denial: its connections are closed at once, what is being opened is given up."""
        self._shut.hear(heard)
        users = {*self._kept, *(user for user, _ in self._open_sessions.values())}
        self._cut(user for user in users if isinstance(heard, Stale) or self._refusal(user))

    def _cut(self, users: Iterable[User]) -> None:
        for user in users:
            kept = self._kept.get(user)
            if kept is not None:
                kept.session = kept.ends_at = None
                if kept.opening is not None:
                    kept.opening.cancel()
            sessions = [one for whose, one in self._open_sessions.values() if whose == user]
            if sessions:
                log.warning("user_cut", account=user.account, sessions=len(sessions))
            for session in sessions:
                self._finish(self._hang_up(session))

    def _retire(self, kept: _Kept) -> None:
        """Lend a session to nobody any more; hang up when what is under way is done."""
        session, kept.session, kept.ends_at = kept.session, None, None
        if session is not None:
            self._finish(self._drain(session))

    def _finish(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._retiring.add(task)
        task.add_done_callback(self._retiring.discard)

    async def _drain(self, session: UserSession) -> None:
        try:
            async with asyncio.timeout(RETIRE_SECONDS):
                await session.drain()
        except TimeoutError:
            log.warning("session_cut")
        finally:
            await self._hang_up(session)
