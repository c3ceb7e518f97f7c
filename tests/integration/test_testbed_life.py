"""A site's life: beside others, and without a trace afterwards however it ends."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from headgate.command import run
from testbed import instances
from testbed.control import Control
from testbed.launch import Options
from testbed.launch import site as running_site
from testbed.site import Site
from testbed.waiting import until

pytestmark = pytest.mark.site

BARE = Options(services=frozenset())

OWNER = """
import asyncio, os, signal
os.umask(0o077)  # as on many a hardened machine
# Whoever runs the tests in the background has taken the interrupt away from us.
signal.signal(signal.SIGINT, signal.default_int_handler)
from headgate import logs
from testbed.launch import Options, site
async def own():
    logs.configure("warning")
    async with site(options=Options(services=frozenset())) as running:
        print(running.addresses.state, flush=True)
        await asyncio.Event().wait()
asyncio.run(own())
"""


def mounts() -> str:
    """What is mounted on the host, as the host sees it."""
    return Path("/proc/self/mountinfo").read_text(encoding="utf-8")


def processes(folder: Path) -> list[str]:
    """Command lines of processes that name the site's folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if f"{folder}".encode() in line:
            found.append(line.decode())
    return found


@contextlib.asynccontextmanager
async def owned() -> AsyncIterator[tuple[asyncio.subprocess.Process, Path]]:
    """A process that owns a site of its own, and the site's folder."""
    argv = (sys.executable, "-c", OWNER)
    owner = await asyncio.create_subprocess_exec(*argv, stdout=asyncio.subprocess.PIPE)
    try:
        assert owner.stdout is not None
        folder = Path((await owner.stdout.readline()).decode().strip())
        assert processes(folder)
        yield owner, folder
    finally:
        if owner.returncode is None:
            owner.kill()
        await owner.communicate()


async def test_two_sites_side_by_side(site: Site):
    """A second site has its own cluster, users and job numbers, and its end leaves the first be."""
    before = mounts()
    async with running_site(options=BARE) as other:
        assert other.addresses.ssh["port"] != site.addresses.ssh["port"]
        (await other.exec(("useradd", "-m", "-u", "20001", "-p", "*", "elsewhere"))).checked()
        assert (await other.slurm("srun", "id", "-un", user="elsewhere")).strip() == "elsewhere"
        assert "elsewhere" not in await site.slurm("sacct", "-a", "-n", "-o", "User%20")
        folder = other.path()
    assert not folder.exists()
    assert processes(folder) == []
    assert mounts() == before
    assert "UP" in await site.slurm("scontrol", "ping")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
async def test_nothing_is_left_when_the_owner_ends(number: signal.Signals):
    """Killed or interrupted, an owner takes its site along: processes, mounts and folder."""
    before = mounts()
    async with owned() as (owner, folder):
        owner.send_signal(number)
        await owner.wait()
        await until(lambda: not (folder.exists() or processes(folder)), seconds=20)
    assert mounts() == before


async def test_what_a_killed_supervisor_leaves_is_swept():
    """A supervisor killed with -9 takes all processes along; the next site removes its folder."""
    async with owned() as (owner, folder):
        pid = await Control(folder / "control.sock").pid()
        (await run(("kill", "-KILL", str(pid)), timeout=5)).checked()
        owner.kill()
        await owner.wait()
        await until(lambda: not processes(folder), seconds=20)
    instances.sweep()
    assert not folder.exists()


async def test_the_command_brings_up_shows_and_takes_down():
    """`up` twice is one site, `down` twice is none; `exec` runs inside it."""
    name = f"by-command-{os.getpid()}"

    async def testbed(*arguments: str) -> tuple[int, str]:
        argv = (sys.executable, "-m", "testbed", "--name", name, *arguments)
        done = await run(argv, timeout=60)
        return done.status, done.stdout.decode()

    try:
        first, second = await testbed("up", "--bare"), await testbed("up", "--bare")
        assert first[0] == 0
        assert first == second
        assert (await testbed("status"))[0] == 0
        assert (await testbed("exec", "--", "hostname")) == (0, "testbed\n")
    finally:
        assert (await testbed("down"))[0] == 0
    assert (await testbed("down"))[0] == 0
    assert (await testbed("status"))[0] == 3
