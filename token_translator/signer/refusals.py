"""How many refusals and notes of one person are recorded: floods must not fill the ledger."""

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass

PER_PERSON = 10
ALTOGETHER = 600
WINDOW_SECONDS = 60.0
MAX_TRACKED = 10_000


@dataclass(slots=True)
class _Counted:
    since: float
    recorded: int = 0
    suppressed: int = 0


class Refusals:
    """At most ten a minute for each person, and 600 altogether; the others are counted."""

    def __init__(self) -> None:
        self._persons: OrderedDict[Hashable, _Counted] = OrderedDict()
        self._all = _Counted(0.0)

    def count(self, whose: Hashable, now: float) -> int | None:
        """None: not to be recorded. Else how many of this person were not, before this one."""
        known = self._persons.setdefault(whose, _Counted(now))
        self._persons.move_to_end(whose)
        while len(self._persons) > MAX_TRACKED:
            self._persons.popitem(last=False)
        for counted in (known, self._all):
            if now - counted.since >= WINDOW_SECONDS:
                counted.since, counted.recorded = now, 0
        if known.recorded >= PER_PERSON or self._all.recorded >= ALTOGETHER:
            known.suppressed += 1
            return None
        known.recorded += 1
        self._all.recorded += 1
        more, known.suppressed = known.suppressed, 0
        return more
