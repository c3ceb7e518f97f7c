"""Who waits for a job to change: woken by this process at once, by others soon."""

import asyncio
import contextlib
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable

from gateway.jobs import Job
from headgate.identity import Identity

OTHERS_SECONDS = 2.0
"""How often a job is looked at that another replica may have changed."""
FOR_ONE = 32
"""Waits of one person at a time; each is a connection, and a look every few seconds."""


class Waiting:
    """Events by job, only while somebody waits."""

    def __init__(self) -> None:
        self._events: defaultdict[str, set[asyncio.Event]] = defaultdict(set)
        self._waits: Counter[Identity] = Counter()

    def changed(self, row: str) -> None:
        """A job is another one now."""
        for event in self._events.get(row, ()):
            event.set()

    async def until_changed(
        self, job: Job, seconds: float, look: Callable[[], Awaitable[Job]]
    ) -> Job:
        """The job once its state is another one, or as it is after that many seconds.

        At once where nothing can change any more, or its owner waits for too many already.
        """
        if job.state.final or self._waits[job.owner] >= FOR_ONE:
            return job
        event = asyncio.Event()
        self._waits[job.owner] += 1
        self._events[job.id].add(event)
        ends = asyncio.get_running_loop().time() + seconds
        try:
            while True:
                found = await look()
                left = ends - asyncio.get_running_loop().time()
                if found.state is not job.state or left <= 0:
                    return found
                # Only the wait is cut off: a question to the database is heard to its end.
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(event.wait(), min(left, OTHERS_SECONDS))
                event.clear()
        finally:
            self._events[job.id].discard(event)
            if not self._events[job.id]:
                del self._events[job.id]
            self._waits[job.owner] -= 1
            if not self._waits[job.owner]:
                del self._waits[job.owner]
