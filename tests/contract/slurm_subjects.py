"""Clusters that a `ClusterReader` is held against, and what is done on them."""

import asyncio
import os
import pwd
import signal
import uuid
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Protocol

from headgate.command import Completed, run
from headgate.slurm.cli import CommandReader, command_variables
from headgate.slurm.memory.process import SimulatedCluster
from headgate.slurm.memory.site import SMALL, Gpus, NodeKind, Queue, Site
from headgate.slurm.model import ClusterReader, JobState, QueuedJob
from testbed.site import Site as RealSite

DEADLINE = 150.0
NODES = 2
GPUS = 4
HOLD = "#!/bin/sh\nexec sleep 600\n"


class Subject(Protocol):
    """A cluster with two nodes of 8 CPUs and 4 `tesla` GPUs, and a user on it."""

    reader: ClusterReader
    queue: str
    user: str
    uid: int
    folder: str

    async def command(self, *argv: str, stdin: str = "", operator: bool = False) -> Completed:
        """Run one of Slurm's commands as the user, or as an operator."""

    async def remembered(self) -> None:
        """Return when the controller would know all jobs again after a crash."""

    async def controller_down(self) -> None:
        """Kill the controller."""

    async def controller_up(self) -> None:
        """Start the controller again; returns when it answers."""


class Simulated:
    """The simulated cluster, where a minute is a second."""

    site = Site(
        nodes=(
            NodeKind(
                names="n[1-2]", cpus=8, memory_mib=4000, gpus=(Gpus(type="tesla", count=GPUS),)
            ),
        ),
        queues=(
            Queue(name="batch", nodes="n[1-2]", default=True, default_time_minutes=600),
            *SMALL.queues[1:],
        ),
        kill_wait_seconds=1.0,
        minute_seconds=1.0,
    )

    def __init__(self, folder: Path) -> None:
        self._cluster = SimulatedCluster(folder, self.site)
        self.reader: ClusterReader = self._cluster.reader()
        self.queue = "batch"
        self.folder = str(folder)
        self.uid = os.getuid()
        self.user = pwd.getpwuid(self.uid).pw_name

    async def command(self, *argv: str, stdin: str = "", operator: bool = False) -> Completed:
        """Run a command of the simulated cluster."""
        del operator  # all are one account here
        env = {"PATH": f"{self._cluster.commands}:{os.environ['PATH']}", "HOME": "/"}
        return await run(argv, timeout=DEADLINE, env=env, stdin=stdin.encode())

    async def remembered(self) -> None:
        """It acknowledges nothing that is not on the disk."""

    async def controller_down(self) -> None:
        """SIGKILL to the cluster's process."""
        await self._cluster.kill()

    async def controller_up(self) -> None:
        """Start its process again on its journal."""
        await self._cluster.start()

    async def down(self) -> None:
        """End it and its jobs."""
        await self._cluster.down()


class Real:
    """The testbed's Slurm."""

    def __init__(self, running: RealSite, before: Sequence[str]) -> None:
        self.site = running
        env = command_variables({"PATH": os.environ["PATH"]}, running.addresses.slurm_conf)
        given = [f"{key}={value}" for key, value in env.items()]
        self.reader: ClusterReader = CommandReader(env=env, before=(*before, "env", *given))
        self.queue = "batch"
        self.user = "contract"
        self.folder = "/home/contract"
        self.uid = running.account(self.user).uid

    async def command(self, *argv: str, stdin: str = "", operator: bool = False) -> Completed:
        """Run one of Slurm's commands inside the site."""
        who = "root" if operator else self.user
        return await self.site.exec(argv, user=who, timeout=DEADLINE, stdin=stdin.encode())

    async def remembered(self) -> None:
        """Slurmctld writes its jobs down every few seconds, and forgets what it did not write."""
        now = datetime.now(UTC).timestamp()
        await eventually(lambda: self._written_since(now))

    async def _written_since(self, moment: float) -> bool:
        return self.site.path("slurm", "state", "job_state").stat().st_mtime > moment

    async def controller_down(self) -> None:
        """SIGKILL to slurmctld."""
        await self.site.signal("slurmctld", signal.SIGKILL)

    async def controller_up(self) -> None:
        """Start slurmctld again."""
        await self.site.start("slurmctld")


async def eventually(condition: Callable[[], Awaitable[bool]]) -> None:
    """Return as soon as a condition holds; a cluster is only ever asked."""
    async with asyncio.timeout(DEADLINE):
        while not await condition():  # noqa: ASYNC110 - nothing tells us, so we look
            await asyncio.sleep(0.1)


def marker() -> str:
    """A name that no other job has."""
    return f"hg-{uuid.uuid4()}"


async def submit(subject: Subject, *options: str, script: str = HOLD, name: str = "") -> int:
    """Submit a job and return its id."""
    argv = (
        "sbatch",
        "--parsable",
        "--output=/dev/null",
        "--chdir=/",
        f"--partition={subject.queue}",
        f"--job-name={name or marker()}",
        "--mem=100",
        *options,
    )
    done = await subject.command(*argv, stdin=script)
    return int(done.checked().stdout)


async def job(subject: Subject, number: int) -> QueuedJob:
    """The row of a job in the queue, ended ones included."""
    rows = [row for row in await subject.reader.jobs(ended=True) if row.job_id == number]
    assert len(rows) == 1
    return rows[0]


async def reached(subject: Subject, number: int, *states: JobState) -> QueuedJob:
    """The row of a job once it is in one of these states."""

    async def there() -> bool:
        return (await job(subject, number)).state in states

    await eventually(there)
    return await job(subject, number)


def hour_ago() -> datetime:
    """Before anything that these tests do."""
    return datetime.now(UTC) - timedelta(hours=1)
