"""Running jobs as local processes that outlive the simulated cluster: start, adopt, signal."""

import asyncio
import contextlib
import fcntl
import os
import shutil
import signal
import sys
from pathlib import Path

import msgspec

from headgate.slurm.memory import step

_STEP = Path(step.__file__)


class Launch(msgspec.Struct, frozen=True):
    """What a job's process needs to know, as `step.py` reads it. Paths are final."""

    directory: str
    output: str
    error: str
    arguments: list[str]
    environment: dict[str, str]


class Submitted(msgspec.Struct, frozen=True):
    """What a submission brought along; kept beside the script until the job has ended."""

    arguments: list[str]
    environment: dict[str, str]
    directory: str
    host: str


class Outcome(msgspec.Struct, frozen=True):
    """How a script ended: the raw wait status (wait(2)) and when (epoch seconds)."""

    status: int
    ended_at: float


class _Processes(msgspec.Struct, frozen=True):
    step: int
    script: int


class Execution:
    """The folder with one folder per job. `lifeline` is a pipe whose end ends all jobs, or -1."""

    def __init__(self, spool: Path, *, lifeline: int = -1) -> None:
        self._spool = spool
        self._lifeline = lifeline
        spool.mkdir(mode=0o700, parents=True, exist_ok=True)

    def keep(self, job: int, script: str, submitted: Submitted) -> None:
        """Store a job's script and environment; they are on the disk when this returns."""
        folder = self._folder(job)
        shutil.rmtree(folder, ignore_errors=True)  # of a submission that was never acknowledged
        folder.mkdir(mode=0o700)
        _durable(folder / "slurm_script", script.encode(errors="surrogateescape"), 0o700)
        _durable(folder / "submitted", msgspec.json.encode(submitted), 0o600)

    def submitted(self, job: int) -> Submitted:
        """What a job's submission brought along."""
        return msgspec.json.decode((self._folder(job) / "submitted").read_bytes(), type=Submitted)

    def forget(self, job: int) -> None:
        """Remove what was stored for a job."""
        shutil.rmtree(self._folder(job), ignore_errors=True)

    def clear(self, job: int) -> None:
        """Remove the traces of an attempt, so that the job can be started again."""
        for name in ("processes", "exit", "launch-failed", "launch.json"):
            (self._folder(job) / name).unlink(missing_ok=True)

    async def start(self, job: int, launch: Launch) -> None:
        """Start a job's process; when this returns it is known on disk, and lives on its own.

        Raises:
            OSError: it cannot be started.
        """
        folder = self._folder(job)
        _durable(folder / "launch.json", msgspec.json.encode(launch), 0o600)
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            # Locked before the process exists: at no moment can it run without the lock.
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            files = [lock] if self._lifeline < 0 else [lock, self._lifeline]
            argv = [sys.executable, "-I", "-S", str(_STEP), str(folder)]
            process = await asyncio.create_subprocess_exec(
                *argv, str(lock), str(self._lifeline), pass_fds=files
            )
        finally:
            os.close(lock)
        if status := await process.wait():
            raise OSError(f"the process of job {job} ended with status {status}")

    def alive(self, job: int) -> bool:
        """Whether a job's process lives: nobody else holds its lock."""
        try:
            lock = os.open(self._folder(job) / "lock", os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(lock)
        return False

    def started(self, job: int) -> bool:
        """Whether a job's process got as far as running the script."""
        return (self._folder(job) / "processes").exists()

    async def ended(self, job: int) -> Outcome | None:
        """Wait for the end of a job's process; None if it died without saying how it went."""
        # Started by a cluster that died in this very moment, it is about to say its numbers.
        while self.alive(job) and not self.started(job):  # noqa: ASYNC110 - another process says it
            await asyncio.sleep(0.01)
        if self.alive(job):
            await _process_end(self._processes(job).step)
        try:
            outcome = (self._folder(job) / "exit").read_bytes()
        except FileNotFoundError:
            return None
        return msgspec.json.decode(outcome, type=Outcome)

    def signal(self, job: int, number: int) -> None:
        """Send a signal to all processes of a job."""
        if not (self.alive(job) and self.started(job)):
            return
        for process in step.descendants(self._processes(job).step):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, number)

    def terminate(self, job: int) -> None:
        """Ask a job's processes to end, stopped ones too."""
        self.signal(job, signal.SIGCONT)
        self.signal(job, signal.SIGTERM)

    def _folder(self, job: int) -> Path:
        return self._spool / f"job{job:05}"

    def _processes(self, job: int) -> _Processes:
        return msgspec.json.decode((self._folder(job) / "processes").read_bytes(), type=_Processes)


async def _process_end(pid: int) -> None:
    """Return when a process that need not be our child has ended (pidfd_open(2))."""
    try:
        ended = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    loop = asyncio.get_running_loop()
    readable: asyncio.Future[None] = loop.create_future()
    loop.add_reader(ended, _wake, readable)
    try:
        await readable
    finally:
        loop.remove_reader(ended)
        os.close(ended)


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def _durable(path: Path, content: bytes, mode: int) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
