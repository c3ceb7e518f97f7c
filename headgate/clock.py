"""Time as a dependency: services read one injected clock, tests hold it still."""

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    """Wall time in UTC, and monotonic seconds for measuring."""

    def now(self) -> datetime:
        """The wall time, aware, UTC."""

    def monotonic(self) -> float:
        """Seconds that never go back; only differences mean something."""

    async def sleep(self, seconds: float) -> None:
        """Return after that many seconds of this clock."""


class SystemClock:
    """The machine's own clocks."""

    def now(self) -> datetime:
        """The wall time, aware, UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Seconds of the kernel's monotonic clock."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Return after that many seconds."""
        await asyncio.sleep(seconds)


class HeldClock:
    """A clock that stands still until it is told to advance."""

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self._now = start
        self._elapsed = 0.0
        self._moved = asyncio.Event()

    def now(self) -> datetime:
        """The wall time it was set to."""
        return self._now

    def monotonic(self) -> float:
        """Seconds it was advanced by."""
        return self._elapsed

    def advance(self, seconds: float) -> None:
        """Move both clocks on and wake the sleepers."""
        self._now += timedelta(seconds=seconds)
        self._elapsed += seconds
        self._moved.set()
        self._moved = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        """Return once the clock was advanced that far."""
        until = self._elapsed + seconds
        while self._elapsed < until:
            await self._moved.wait()


def rfc3339(moment: datetime) -> str:
    """A moment as interfaces show it: UTC with `Z`, to the second (RFC 3339)."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
