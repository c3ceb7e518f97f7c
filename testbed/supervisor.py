"""The site's supervisor: starts components in order, serves the control socket, ends everything."""

import asyncio
import contextlib
import os
import shutil
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import structlog

from headgate import logs
from testbed.components import Component
from testbed.control import (
    Add,
    Down,
    Reply,
    Request,
    Show,
    Signal,
    Start,
    Stop,
    Wait,
    answering,
)
from testbed.namespace import make_private
from testbed.processes import ComponentError, Process

log = structlog.get_logger(__name__)


class Supervisor:
    """All components of one site."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._processes: dict[str, Process] = {}
        self.over = asyncio.Event()

    async def handle(self, request: Request) -> Reply:
        """Do what was asked; a failure is the caller's to read, never ours to die of."""
        try:
            await self._do(request)
        except ComponentError as error:
            return Reply(error=str(error))
        return Reply(components=tuple(process.show() for process in self._processes.values()))

    async def _do(self, request: Request) -> None:
        match request:
            case Add(components):
                self._add(components)
            case Start(name):
                process = self._named(name)
                process.start([])
                await process.ready()
            case Stop(name, grace):
                await self._named(name).stop(grace)
            case Signal(name, number):
                await self._named(name).signal(number)
            case Wait(names):
                chosen = [self._named(name) for name in names] or [*self._processes.values()]
                await asyncio.gather(*(process.ready() for process in chosen))
            case Down():
                self.over.set()
            case Show():
                pass

    def _add(self, components: Sequence[Component]) -> None:
        for component in components:
            if component.name in self._processes:
                raise ComponentError(f"{component.name} is there already")
            self._processes[component.name] = Process(component, self._folder)
        for component in components:
            before = [self._named(name) for name in component.after]
            self._processes[component.name].start(before)

    async def stop_all(self, grace: float) -> None:
        """End all components, for a site that is not a namespace of its own."""
        await asyncio.gather(*(process.stop(grace) for process in self._processes.values()))

    def _named(self, name: str) -> Process:
        if name not in self._processes:
            raise ComponentError(f"this site has no component {name!r}")
        return self._processes[name]


async def lifeline(over: asyncio.Event) -> None:
    """Set `over` when the other end of standard input is closed: the site's owner is gone."""
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    await reader.read()
    log.info("owner_gone")
    over.set()


async def supervise(folder: Path, *, owned: bool) -> None:
    """Be the site in `folder` until it is told to end; afterwards nothing of it is left."""
    await make_private(folder)
    supervisor = Supervisor(folder)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, supervisor.over.set)
    watcher = asyncio.create_task(lifeline(supervisor.over)) if owned else None
    server = await answering(folder / "control.sock", supervisor.handle)
    await supervisor.over.wait()
    log.info("ending")
    server.close()
    end_everything()
    if watcher:
        watcher.cancel()
    await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)


def end_everything() -> None:
    """Kill every process of the namespace but PID 1 and this one (kill(2): -1 spares both)."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(-1, signal.SIGKILL)


def main() -> None:
    """`python -m testbed.supervisor FOLDER owned|detached`, inside its namespaces."""
    logs.configure(json=True)
    folder, life = Path(sys.argv[1]), sys.argv[2]
    asyncio.run(supervise(folder, owned=life == "owned"))


if __name__ == "__main__":
    main()
