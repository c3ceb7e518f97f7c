"""How often something may be done for one identity in a minute."""

from collections import OrderedDict, deque
from collections.abc import Hashable

WINDOW_SECONDS = 60.0
MAX_TRACKED = 100_000


class Throttle:
    """At most `per_minute` for each name in any minute."""

    def __init__(self, per_minute: int) -> None:
        self._per_minute = per_minute
        self._taken: OrderedDict[Hashable, deque[float]] = OrderedDict()

    def take(self, name: Hashable, now: float) -> float:
        """0 if it may be done, else the seconds until it may; `now` in monotonic seconds."""
        taken = self._taken.setdefault(name, deque())
        self._taken.move_to_end(name)
        while taken and taken[0] <= now - WINDOW_SECONDS:
            taken.popleft()
        if len(taken) >= self._per_minute:
            return taken[0] + WINDOW_SECONDS - now
        taken.append(now)
        self._forget(now)
        return 0.0

    def _forget(self, now: float) -> None:
        # Least recently used first: whoever has been quiet for a minute starts afresh anyway.
        while self._taken:
            oldest, taken = next(iter(self._taken.items()))
            if taken and taken[-1] > now - WINDOW_SECONDS and len(self._taken) <= MAX_TRACKED:
                return
            del self._taken[oldest]
