"""Who is served next: round robin over users, and nobody takes what is left for the others."""

import asyncio
from collections import Counter, deque

from gateway.sessions.user import User
from headgate.clock import Clock


class Lines:
    """One line of rows for each user of a cluster, served by a number of servers.

    A user is served by at most as many as are still free for others: half of the servers where
    there is one user. So neither a user with many jobs nor one whose home directory hangs keeps
    the others waiting. Rows are the truth; what stands here is only an order.
    """

    def __init__(self, servers: int, clock: Clock) -> None:
        self._servers = servers
        self._clock = clock
        self._by_user: dict[User, deque[str]] = {}
        self._turns: deque[User] = deque()
        self._known: set[str] = set()
        self._busy: Counter[User] = Counter()
        self._resting: dict[User, float] = {}
        self._changed = asyncio.Event()

    def offer(self, user: User, row: str) -> None:
        """Put a row into its user's line, unless it stands there or is being served."""
        if row in self._known:
            return
        self._known.add(row)
        if user not in self._by_user:
            self._by_user[user] = deque()
            self._turns.append(user)
        self._by_user[user].append(row)
        self._changed.set()

    async def next(self) -> tuple[User, str]:
        """The next row to serve; whoever gets it says `done` afterwards."""
        while (user := self._choose()) is None:
            self._changed.clear()
            await self._changed.wait()
        line = self._by_user[user]
        row = line.popleft()
        if line:
            self._turns.append(user)
        else:
            del self._by_user[user]
        self._busy[user] += 1
        return user, row

    def done(self, user: User, row: str) -> None:
        """A row is no longer being served."""
        self._busy[user] -= 1
        if not self._busy[user]:
            del self._busy[user]
        self._known.discard(row)
        self._changed.set()

    def rest(self, user: User, seconds: float) -> None:
        """Serve nothing of this user for so long: they cannot be reached."""
        self._resting[user] = self._clock.monotonic() + seconds

    def tick(self) -> None:
        """Time has passed: look whose rest is over."""
        now = self._clock.monotonic()
        self._resting = {user: until for user, until in self._resting.items() if until > now}
        self._changed.set()

    def _choose(self) -> User | None:
        """Whose turn it is, taken from the turns."""
        free = self._servers - self._busy.total()
        now = self._clock.monotonic()
        for _ in range(len(self._turns)):
            user = self._turns.popleft()
            if self._busy[user] < free and self._resting.get(user, now) <= now:
                return user
            self._turns.append(user)
        return None
