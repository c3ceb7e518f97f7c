"""Having a simulated cluster: its process started, its commands put in a folder, all ended."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import msgspec

from headgate.slurm.memory.commands import install
from headgate.slurm.memory.protocol import Stop
from headgate.slurm.memory.reader import MemoryReader
from headgate.slurm.memory.site import SMALL, Site, write

_READY_SECONDS = 20.0
_STOP_SECONDS = 20.0


class SimulatedCluster:
    """A simulated cluster in a folder of its own, as a child process.

    Whoever holds this object holds the cluster: when our process ends, however it does, the
    cluster and its jobs end too (`keep=True` leaves them).
    """

    def __init__(self, folder: Path, site: Site = SMALL, *, keep: bool = False) -> None:
        self._folder = folder
        self._site = site
        self._keep = keep
        self._process: asyncio.subprocess.Process | None = None
        self._lifeline = self._lifeline_end = -1
        self.socket = folder / "socket"
        self.commands = folder / "bin"
        """The folder with `sbatch` and the others, to be first in PATH."""

    @property
    def pid(self) -> int:
        """The process id of the running cluster."""
        if self._process is None:
            raise RuntimeError("the simulated cluster is not running")
        return self._process.pid

    def reader(self) -> MemoryReader:
        """A reader of this cluster."""
        return MemoryReader(self.socket)

    async def start(self) -> None:
        """Start it, again after `kill` or `stop`, and return when it answers.

        Raises:
            OSError: it cannot be started, or ended at once; its words are on standard error.
        """
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        install(self.commands, self.socket)
        config = self._folder / "site.json"
        write(self._site, config)
        files = ("--socket", self.socket, "--journal", self._folder / "journal", "--config", config)
        argv = [sys.executable, "-m", "headgate.slurm.memory", "serve", *map(str, files)]
        if not self._keep and self._lifeline < 0:
            self._lifeline_end, self._lifeline = os.pipe()
        lifeline = () if self._keep else (self._lifeline_end,)
        self._process = await asyncio.create_subprocess_exec(
            *argv,
            *(f"--lifeline={end}" for end in lifeline),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            pass_fds=lifeline,
            start_new_session=True,
        )
        if self._process.stdout is None:
            raise OSError("the simulated cluster came without a pipe")
        async with asyncio.timeout(_READY_SECONDS):
            ready = await self._process.stdout.readline() == b"ready\n"
        if not ready:
            await self._gone(signal.SIGKILL)
            raise OSError("the simulated cluster did not start")

    async def kill(self) -> None:
        """SIGKILL to the cluster's process; its jobs go on."""
        await self._gone(signal.SIGKILL)

    async def stop(self) -> None:
        """SIGTERM to the cluster's process; its jobs go on."""
        await self._gone(signal.SIGTERM)

    async def down(self) -> None:
        """End all jobs and the cluster; nothing of it runs on."""
        if self._process is not None and self._process.returncode is None:
            _, writer = await asyncio.open_unix_connection(self.socket)
            writer.write(msgspec.json.encode(Stop()) + b"\n")
            try:
                async with asyncio.timeout(_STOP_SECONDS):
                    await self._process.wait()
            finally:
                writer.close()
                await self._gone(signal.SIGKILL)
        if self._lifeline >= 0:
            os.close(self._lifeline)
            os.close(self._lifeline_end)
            self._lifeline = -1

    async def _gone(self, number: signal.Signals) -> None:
        process = self._process
        if process is None:
            return
        if process.returncode is None:
            process.send_signal(number)
        await process.wait()
        if process.stdout is not None:
            await process.stdout.read()  # lets go of the pipe
