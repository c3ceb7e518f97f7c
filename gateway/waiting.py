"""Who waits for a job to change: woken by this process at once, by others soon."""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Awaitable, Callable

from gateway.jobs import Job

OTHERS_SECONDS = 2.0
"""How often a job is looked at that another replica may have changed."""


class Waiting:
    """Events by job, only while somebody waits."""

    def __init__(self) -> None:
        self._events: defaultdict[str, set[asyncio.Event]] = defaultdict(set)

    def changed(self, row: str) -> None:
        """A job is another one now."""
        for event in self._events.get(row, ()):
            event.set()

    async def until_changed(
        self, job: Job, seconds: float, look: Callable[[], Awaitable[Job]]
    ) -> Job:
        """The job once its state is another one, or as it is after that many seconds."""
        if job.state.final:
            return job
        event = asyncio.Event()
        self._events[job.id].add(event)
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    while (found := await look()).state is job.state:
                        with contextlib.suppress(TimeoutError):
                            await asyncio.wait_for(event.wait(), OTHERS_SECONDS)
                        event.clear()
                    return found
            return await look()
        finally:
            self._events[job.id].discard(event)
            if not self._events[job.id]:
                del self._events[job.id]
