"""A login node as the gateway knows it: whether it answers, and how many knock at a time."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from enum import Enum

import structlog

from gateway.sessions.session import LoginStuck, NodeAway, NotAdmitted
from headgate.clock import Clock

log = structlog.get_logger(__name__)

FIRST_PAUSE, LAST_PAUSE = 0.25, 10.0
"""Seconds until a node that is down is looked at again: doubled from the first to the last."""
STUCK_USERS = 3
"""So many users in a row whose logins hang are the node's fault, not their home directories'."""

Greeting = Callable[[], Awaitable[str]]
"""Whether the node's sshd greets: an empty string, or what is wrong. It never raises."""


class _State(Enum):
    UP = "up"
    DOWN = "down"
    GREETS = "greets"  # it answers again: one connection may show that it is up


class _Place:
    """One of the places before a node, which may be left before the context ends."""

    def __init__(self, room: asyncio.Semaphore) -> None:
        self._room = room
        self._taken = False

    async def __aenter__(self) -> None:
        await self._room.acquire()
        self._taken = True

    async def __aexit__(self, *_: object) -> None:
        self.leave()

    def leave(self) -> None:
        """Give it to the next, once."""
        if self._taken:
            self._taken = False
            self._room.release()


class Node:
    """The breaker and the gate of one node.

    While it is known to be down, nobody waits for it: a task of its own looks whether its sshd
    greets again, then one connection may try. sshd refuses more than 10 unauthenticated
    connections at random (MaxStartups) and punishes an address for failed ones
    (PerSourcePenalties), so at most `handshakes` are under way.
    """

    def __init__(self, name: str, *, clock: Clock, handshakes: int, greeting: Greeting) -> None:
        self.name = name
        self._clock = clock
        self._greeting = greeting
        self._room = asyncio.Semaphore(handshakes)
        self._state = _State.UP
        self._words = ""
        self._pause = FIRST_PAUSE
        self._stuck: set[str] = set()
        self._watching: asyncio.Task[None] | None = None

    @property
    def down(self) -> bool:
        """Whether it is known to be down, so that asking it is in vain."""
        return self._state is _State.DOWN

    @property
    def fault(self) -> str:
        """Why it is held to be down; empty: it is not."""
        return self._words

    def require(self) -> None:
        """Raise `NodeAway` while it is known to be down."""
        if self.down:
            raise NodeAway(self.fault)

    @contextlib.asynccontextmanager
    async def attempt(self, account: str) -> AsyncIterator[Callable[[], None]]:
        """One login; what comes of it says whether the node is up.

        Yields what is to be called once sshd has admitted the user: others may knock from then on.

        Raises:
            NodeAway: at once, where it is known to be down.
        """
        self.require()
        place = _Place(self._room)
        async with place:
            self.require()
            trial = self._state is _State.GREETS
            if trial:
                self._state = _State.DOWN  # for all others
            try:
                yield place.leave
            except NodeAway as error:
                self._fail(str(error))
                raise
            except LoginStuck as error:
                self._stuck.add(account)
                if trial or len(self._stuck) >= STUCK_USERS:
                    self._fail(str(error))
                raise
            except NotAdmitted:
                self._answered()
                raise
            except BaseException:
                if trial and self._state is _State.DOWN:
                    self._state = _State.GREETS
                raise
            self._answered()

    async def close(self) -> None:
        """Look at it no more."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait([self._watching])

    def _answered(self) -> None:
        if self._state is not _State.UP:
            log.info("login_node_back", node=self.name)
        self._state, self._words, self._pause = _State.UP, "", FIRST_PAUSE
        self._stuck.clear()
        if self._watching is not None:
            self._watching.cancel()
            self._watching = None

    def _fail(self, words: str) -> None:
        if self._state is _State.UP:
            log.warning("login_node_away", node=self.name, error=words)
        self._state, self._words = _State.DOWN, words
        self._stuck.clear()
        if self._watching is None or self._watching.done():
            self._watching = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        while True:
            await self._clock.sleep(self._pause)
            self._pause = min(2 * self._pause, LAST_PAUSE)
            words = await self._greeting()
            if not words:
                self._state = _State.GREETS
                return
            self._words = f"login node {self.name}: {words}"
