"""Back-pressure between two connections: a source rests while anything behind it is full."""

from collections.abc import Callable


class Valve:
    """Stops a source while anybody downstream is full, and starts it when nobody is any more."""

    def __init__(self, *, stop: Callable[[], None], start: Callable[[], None]) -> None:
        self._stop = stop
        self._start = start
        self._full: set[str] = set()

    @property
    def is_shut(self) -> bool:
        """Whether the source rests."""
        return bool(self._full)

    def full(self, who: str) -> None:
        """That place takes no more at the moment."""
        if not self._full:
            self._stop()
        self._full.add(who)

    def free(self, who: str) -> None:
        """That place has room again."""
        if who not in self._full:
            return
        self._full.remove(who)
        if not self._full:
            self._start()


class Outflow:
    """All sources whose bytes leave by one socket; each rests while that is full.

    An SSH window is the client's own word: one that grants gigabytes and reads nothing would have
    us keep them. The socket's buffer is what is real.
    """

    def __init__(self) -> None:
        self._valves: set[Valve] = set()
        self._is_full = False

    def add(self, valve: Valve) -> None:
        """Stop and start this source, too."""
        self._valves.add(valve)
        if self._is_full:
            valve.full("socket")

    def remove(self, valve: Valve) -> None:
        """This source has ended."""
        self._valves.discard(valve)

    def pause(self) -> None:
        """The socket is full."""
        self._is_full = True
        for valve in tuple(self._valves):
            valve.full("socket")

    def resume(self) -> None:
        """The socket has room."""
        self._is_full = False
        for valve in tuple(self._valves):
            valve.free("socket")
