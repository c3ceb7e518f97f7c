"""Getting what waits to Zabbix: oldest first, run by run, each removed when it was taken."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol

import structlog

from headgate.clock import Clock
from monitoring_probe.spool import Spool, Unreadable, moment
from monitoring_probe.values import Value

log = structlog.get_logger(__name__)

REFUSALS_IN_A_ROW = 10
"""After so many refused runs only the newest is tried: it tells whether they or we are at fault."""

_NO_TIME = "no time left in this run"


class TrapperUnavailable(Exception):  # noqa: N818 - a condition, in the words of the operator
    """Zabbix could not be reached, did not answer in time, or answered with something else."""


class Trapper(Protocol):
    """Where values go."""

    async def send(self, values: Sequence[Value]) -> bool:
        """Send them; whether every single one was processed.

        Raises:
            TrapperUnavailable: nobody knows whether any was.
        """


@dataclass(frozen=True, slots=True)
class Outcome:
    """How many runs were taken, refused, left for later, put aside; and why it stopped, if so."""

    taken: int = 0
    refused: int = 0
    left: int = 0
    aside: int = 0
    stopped: str = ""


async def deliver(
    spool: Spool, trapper: Trapper, clock: Clock, *, until: float, patience: float
) -> Outcome:
    """Send what waits, until monotonic time `until`; a crash at any point loses nothing.

    A refused run stays and does not hold up the others. Was it refused while others are taken,
    and is it older than `patience` seconds, then it is what is wrong, and it is put aside.
    """
    return await _Delivery(spool, trapper, clock, until).run(patience)


class _Delivery:
    """One pass over the spool."""

    def __init__(self, spool: Spool, trapper: Trapper, clock: Clock, until: float) -> None:
        self._spool = spool
        self._trapper = trapper
        self._clock = clock
        self._until = until
        self._taken = 0
        self._aside = 0
        self._refused: list[Path] = []
        self._stopped = ""

    async def run(self, patience: float) -> Outcome:
        runs = self._spool.runs()
        place = 0
        while place < len(runs) and not self._stopped:
            if self._clock.monotonic() >= self._until:
                self._stopped = _NO_TIME
                break
            await self._one(runs[place])
            tired = len(self._refused) == REFUSALS_IN_A_ROW and not self._taken
            place = max(place + 1, len(runs) - 1) if tired else place + 1
        if self._taken:
            self._put_aside(self._clock.now(), patience)
        left = len(self._spool.runs())
        return Outcome(self._taken, len(self._refused), left, self._aside, self._stopped)

    async def _one(self, run: Path) -> None:
        try:
            values = self._spool.read(run)
        except Unreadable as error:
            log.warning("spool_file_unreadable", error=str(error))
            self._spool.put_aside(run, "bad")
            self._aside += 1
            return
        try:
            async with asyncio.timeout(self._until - self._clock.monotonic()):
                taken = await self._trapper.send(values)
        except TrapperUnavailable as error:
            self._stopped = str(error)
            return
        except TimeoutError:
            self._stopped = _NO_TIME
            return
        if taken:
            self._spool.done(run)
            self._taken += 1
        else:
            self._refused.append(run)

    def _put_aside(self, now: datetime, patience: float) -> None:
        for run in self._refused:
            if now.timestamp() - moment(run) > patience:
                log.warning("run_rejected", run=run.name)
                self._spool.put_aside(run, "rejected")
                self._aside += 1
