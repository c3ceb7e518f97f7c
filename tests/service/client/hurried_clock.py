"""A clock for tests in which nobody waits."""

from headgate.clock import HeldClock


class HurriedClock(HeldClock):
    """A held clock whose sleepers advance it themselves, and which notes how long they asked."""

    def __init__(self) -> None:
        super().__init__()
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        """Advance at once."""
        self.slept.append(seconds)
        self.advance(seconds)
