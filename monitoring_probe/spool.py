"""Measurements on disk until Zabbix has taken them: one file per run, oldest first.

A file is JSON lines, one `Value` each, named by the time of its run. It is written beside its
place, synced and renamed: a crash leaves a whole run or none. It is removed only after everything
in it was acknowledged; a crash in between sends it again, which Zabbix stores once. Files that
cannot be read, and runs that Zabbix refuses, are put aside, where the newest few are kept.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path

import msgspec
import structlog

from monitoring_probe.measurement import Backlog
from monitoring_probe.values import Value

log = structlog.get_logger(__name__)

KEPT_ASIDE = 50
"""Files kept of those put aside, for somebody to look at."""

_RUN = ".jsonl"
_NEW = ".new"
_NANO = 1_000_000_000


class Busy(Exception):  # noqa: N818 - a condition, not a fault
    """Another run holds the spool."""


class Unreadable(Exception):  # noqa: N818 - a condition, not a fault
    """A file of the spool is not what we write."""


class Spool:
    """The directory. `max_age` is in seconds, `max_bytes` over all runs."""

    def __init__(self, path: Path, *, max_age: float, max_bytes: int) -> None:
        self._path = path
        self._max_age = max_age
        self._max_bytes = max_bytes

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Hold the spool alone (flock(2)); a killed process holds nothing.

        Raises:
            Busy: another run is not done yet. OSError: the directory cannot be used.
        """
        self._path.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(self._path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise Busy(f"{self._path}: another run is not done yet") from error
            yield
        finally:
            os.close(descriptor)

    def runs(self) -> list[Path]:
        """The files of the runs that wait, oldest first."""
        if not self._path.is_dir():
            return []
        return sorted(one for one in self._path.iterdir() if one.suffix == _RUN)

    def backlog(self, now: datetime) -> Backlog:
        """What waits, and how many runs were ever dropped."""
        runs = self.runs()
        age = max(0.0, now.timestamp() - moment(runs[0])) if runs else 0.0
        return Backlog(len(runs), sum(_size(one) for one in runs), age, self._dropped())

    def tidy(self, now: datetime) -> None:
        """Remove what a crash left half written; drop runs over the age and over the size."""
        for half in self._path.glob(f"*{_NEW}"):
            half.unlink(missing_ok=True)
        runs = self.runs()
        kept = [one for one in runs if now.timestamp() - moment(one) <= self._max_age]
        size = sum(_size(one) for one in kept)
        while kept and size > self._max_bytes:
            size -= _size(kept.pop(0))
        self._drop(runs[: len(runs) - len(kept)])

    def put(self, values: Sequence[Value]) -> Path:
        """Keep a run, whole and durable, mode 0600; a disk that is full drops the oldest run once.

        Raises:
            OSError: there is no place for it even so.
        """
        try:
            return self._write(values)
        except OSError as error:
            oldest = self.runs()[:1]
            if not oldest:
                raise
            log.warning("spool_full", error=error.strerror, dropped=oldest[0].name)
            self._drop(oldest)
            return self._write(values)

    def _write(self, values: Sequence[Value]) -> Path:
        clock = values[0].clock * _NANO + values[0].ns
        path = self._path / f"{clock:020d}{_RUN}"
        beside = path.with_suffix(_NEW)
        document = b"".join(msgspec.json.encode(value) + b"\n" for value in values)
        _durable(beside, document)
        beside.replace(path)
        sync_directory(self._path)
        return path

    def read(self, run: Path) -> list[Value]:
        """The values of a run.

        Raises:
            Unreadable: gone, not JSON lines, not values.
        """
        try:
            lines = run.read_bytes().splitlines()
            values = [msgspec.json.decode(line, type=Value) for line in lines]
        except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Unreadable(f"{run.name}: {error}") from error
        if not values:
            raise Unreadable(f"{run.name}: empty")
        return values

    def done(self, run: Path) -> None:
        """Everything in it was acknowledged."""
        run.unlink(missing_ok=True)

    def put_aside(self, run: Path, why: str) -> None:
        """Move a run to `bad` (unreadable) or `rejected` (Zabbix does not take it)."""
        place = self._path / why
        place.mkdir(mode=0o700, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            run.replace(place / run.name)
        for old in sorted(place.iterdir())[:-KEPT_ASIDE]:
            old.unlink(missing_ok=True)

    def _drop(self, runs: Sequence[Path]) -> None:
        if not runs:
            return
        log.warning("runs_dropped", runs=len(runs), oldest=runs[0].name)
        for run in runs:
            run.unlink(missing_ok=True)
        number = str(self._dropped() + len(runs)).encode()
        try:
            beside = self._path / f"dropped{_NEW}"
            _durable(beside, number)
            beside.replace(self._path / "dropped")
        except OSError as error:
            log.warning("count_not_kept", error=error.strerror)

    def _dropped(self) -> int:
        try:
            return int((self._path / "dropped").read_bytes())
        except (OSError, ValueError):
            return 0


def moment(run: Path) -> float:
    """When a run was measured, from its file's name; 0.0 (very old) for a name that is not ours."""
    return int(run.stem) / _NANO if run.stem.isdecimal() else 0.0


def _size(run: Path) -> int:
    try:
        return run.stat().st_size
    except FileNotFoundError:
        return 0


def _durable(path: Path, document: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(document)
            stream.flush()
            os.fsync(stream.fileno())
    except OSError:
        path.unlink(missing_ok=True)
        raise


def sync_directory(path: Path) -> None:
    """Make a rename in it outlast a power failure (fsync(2) of the directory)."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
