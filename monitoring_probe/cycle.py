"""One run: measure, judge, keep on disk, send; in that order, so that no crash loses a run."""

from dataclasses import dataclass
from datetime import datetime

import msgspec
import structlog

from headgate.clock import Clock
from headgate.slurm.model import ClusterReader
from monitoring_probe.delivery import Outcome, Trapper, TrapperUnavailable, deliver
from monitoring_probe.items import MASTER
from monitoring_probe.judge import Verdict, judge
from monitoring_probe.measure import measure
from monitoring_probe.measurement import Backlog
from monitoring_probe.metrics import Reading, readings
from monitoring_probe.settings import ProbeSettings
from monitoring_probe.spool import Spool
from monitoring_probe.values import Value

log = structlog.get_logger(__name__)


class Unspooled(Exception):  # noqa: N818 - a condition, in the words of the operator
    """A run could be neither kept on disk nor sent: it is lost."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A measurement judged and told as item values."""

    taken_at: datetime
    verdicts: tuple[Verdict, ...]
    readings: dict[str, Reading]


async def look(
    reader: ClusterReader, spool: Spool, settings: ProbeSettings, clock: Clock
) -> Measured:
    """Measure and judge without touching anything."""
    return await _measured(reader, spool.backlog(clock.now()), settings, clock)


async def _measured(
    reader: ClusterReader, backlog: Backlog, settings: ProbeSettings, clock: Clock
) -> Measured:
    measurement = await measure(reader, settings.service, clock, backlog=backlog)
    verdicts = judge(measurement, settings.thresholds)
    return Measured(measurement.taken_at, verdicts, readings(measurement, verdicts))


def packed(host: str, measured: Measured) -> Value:
    """The run as the one value that is sent; its time is that of the measurement."""
    microseconds = measured.taken_at.microsecond
    return Value(
        host=host,
        key=MASTER,
        value=msgspec.json.encode(measured.readings).decode(),
        clock=int(measured.taken_at.timestamp()),
        ns=microseconds * 1000,
    )


class Cycle:
    """One run with a spool and a trapper; `settings.deadline` bounds measuring and sending."""

    def __init__(
        self,
        reader: ClusterReader,
        spool: Spool,
        trapper: Trapper,
        settings: ProbeSettings,
        clock: Clock,
    ) -> None:
        self._reader = reader
        self._spool = spool
        self._trapper = trapper
        self._settings = settings
        self._clock = clock

    async def run(self, host: str) -> Outcome:
        """Measure for `host`, then send everything that waits, this run last.

        Raises:
            Busy: another run is at work. Unspooled: this one is lost.
        """
        until = self._clock.monotonic() + self._settings.deadline
        try:
            with self._spool.held():
                return await self._held(host, until)
        except OSError as error:
            raise Unspooled(f"{self._settings.spool.path}: {error.strerror}") from error

    async def _held(self, host: str, until: float) -> Outcome:
        now = self._clock.now()
        self._spool.tidy(now)
        backlog = self._spool.backlog(now)
        measured = await _measured(self._reader, backlog, self._settings, self._clock)
        value = packed(host, measured)
        kept = self._keep(value)
        outcome = await deliver(
            self._spool,
            self._trapper,
            self._clock,
            until=until,
            patience=self._settings.spool.patience,
        )
        if not kept:
            await self._send_unkept(value)
        return outcome

    def _keep(self, value: Value) -> bool:
        try:
            self._spool.put([value])
        except OSError as error:
            log.warning("spool_unwritable", error=error.strerror)
            return False
        return True

    async def _send_unkept(self, value: Value) -> None:
        """A run that found no place on disk goes out from memory, or not at all."""
        try:
            taken = await self._trapper.send([value])
        except TrapperUnavailable as error:
            raise Unspooled(f"neither kept nor sent: {error}") from error
        if not taken:
            raise Unspooled("neither kept nor taken by Zabbix")
