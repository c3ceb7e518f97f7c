"""`python -m headgate.slurm.memory serve`: the simulated cluster's process, put together."""

import asyncio
import contextlib
import fcntl
import os
import signal
import sys
from pathlib import Path

import click

from headgate import logs
from headgate.clock import SystemClock
from headgate.settings import EX_CONFIG, SettingsError
from headgate.slurm.memory import site
from headgate.slurm.memory.controller import Controller
from headgate.slurm.memory.execution import Execution
from headgate.slurm.memory.journal import Journal
from headgate.slurm.memory.server import Server


@click.group()
def main() -> None:
    """Simulate a Slurm cluster that runs batch scripts as local processes."""


@main.command()
@click.option("--socket", type=click.Path(path_type=Path), required=True)
@click.option("--journal", type=click.Path(path_type=Path), required=True)
@click.option("--config", type=click.Path(path_type=Path, exists=True), help="Nodes and queues.")
@click.option("--lifeline", type=int, default=-1, help="A pipe whose end ends jobs and cluster.")
def serve(socket: Path, journal: Path, config: Path | None, lifeline: int) -> None:
    """Serve the cluster on a unix socket until SIGTERM; its jobs go on and are found again."""
    logs.configure()
    try:
        described = site.read(config) if config else site.SMALL
    except SettingsError as error:
        click.echo(error, err=True)
        sys.exit(EX_CONFIG)
    asyncio.run(_serve(described, socket, journal, lifeline))


async def _serve(described: site.Site, socket: Path, journal: Path, lifeline: int) -> None:
    lock = os.open(journal.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.exit(f"{journal}: another cluster is at work on it")
    execution = Execution(journal.parent / "spool", lifeline=lifeline)
    controller = Controller(described, Journal(journal), execution, SystemClock())
    server = Server(controller)
    controller.resume()
    await server.listen(socket)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, server.stopping.set)
    cut = asyncio.Event()
    if lifeline >= 0:
        loop.add_reader(lifeline, _cut, lifeline, cut, server.stopping)
    print("ready", flush=True)  # noqa: T201 - what whoever started it waits for
    await server.stopping.wait()
    if cut.is_set():
        await controller.kill_all()
    await server.close()
    await controller.close()
    with contextlib.suppress(FileNotFoundError):
        os.unlink(socket)  # noqa: PTH108 - a local file, at the end


def _cut(lifeline: int, cut: asyncio.Event, stopping: asyncio.Event) -> None:
    """The other end of the lifeline is gone, and with it whoever the cluster was for."""
    asyncio.get_running_loop().remove_reader(lifeline)
    cut.set()
    stopping.set()


if __name__ == "__main__":
    main()
