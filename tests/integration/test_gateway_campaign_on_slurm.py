"""Fault campaigns on real Slurm: whatever dies, no job is doubled and none goes missing."""

import asyncio
import contextlib
import itertools
import logging
import signal
from collections.abc import AsyncIterator

import aiohttp
import pytest

from headgate.command import CommandError
from testbed.caller import Caller
from testbed.campaign import Campaign, Fault, Pace
from testbed.site import Site

log = logging.getLogger(__name__)

pytestmark = [pytest.mark.site, pytest.mark.long, pytest.mark.timeout(600)]

PEOPLE = ("alice", "bob", "carol")


def killed(site: Site, name: str) -> Fault:
    """A part killed with kill -9 and started again."""

    async def fault() -> None:
        await site.signal(name, signal.SIGKILL)
        await site.start(name)

    return fault


def stalled(site: Site, name: str, seconds: float) -> Fault:
    """A part that does nothing for a while."""

    async def fault() -> None:
        await site.signal(name, signal.SIGSTOP)
        await asyncio.sleep(seconds)
        await site.signal(name, signal.SIGCONT)

    return fault


def away(site: Site, name: str, seconds: float) -> Fault:
    """A part that is not there for a while."""

    async def fault() -> None:
        await site.signal(name, signal.SIGKILL)
        await asyncio.sleep(seconds)
        await site.start(name)

    return fault


def forgetting(site: Site, seconds: float) -> Fault:
    """Slurmctld killed right after sbatch was answered: before it has saved what it took."""

    async def fault() -> None:
        lines = site.path("log", "gateway.log")
        size = lines.stat().st_size
        try:
            async with asyncio.timeout(10):
                while not sent_since(lines.read_bytes()[size:]):  # noqa: ASYNC110 - a file's growth
                    await asyncio.sleep(0.01)
                await asyncio.sleep(seconds)
        except TimeoutError:
            return  # nobody submits now
        await site.signal("slurmctld", signal.SIGKILL)
        await site.start("slurmctld")

    return fault


def sent_since(log: bytes) -> bool:
    """Whether the gateway has noted that a job was sent."""
    return b'"sent"' in log or b"sent " in log


def lanes(site: Site) -> list[dict[str, Fault]]:
    """What happens to Slurm, and what to the rest at the same time."""
    return [
        {
            "forget at once": forgetting(site, 0.0),
            "forget soon": forgetting(site, 0.7),
            "kill slurmctld": killed(site, "slurmctld"),
            "stall slurmctld": stalled(site, "slurmctld", 12.0),
            "kill slurmdbd": away(site, "slurmdbd", 5.0),
            "stall slurmdbd": stalled(site, "slurmdbd", 5.0),
        },
        {
            "kill gateway": killed(site, "gateway"),
            "stall gateway": stalled(site, "gateway", 5.0),
            "kill sshd": away(site, "sshd", 3.0),
            "stall sshd": stalled(site, "sshd", 5.0),
            "kill tokens": killed(site, "tokens"),
            "stall tokens": stalled(site, "tokens", 5.0),
            "kill accounts": killed(site, "accounts"),
        },
    ]


async def look_after_nodes(site: Site) -> None:
    """Be the administrator: what a killed slurmctld leaves behind, it does not clear itself.

    Nodes that got an id twice are drained, and jobs that ended while it was away still run in its
    memory until their nodes register again.
    """
    for turn in itertools.count():
        with contextlib.suppress(CommandError):  # neither is drained
            await site.slurm("scontrol", "update", "nodename=n1,n2", "state=resume")
        with contextlib.suppress(CommandError):  # slurmctld is away
            if turn % 5 == 0:
                await site.slurm("scontrol", "reconfigure")
        await asyncio.sleep(3)


@contextlib.asynccontextmanager
async def looked_after(site: Site) -> AsyncIterator[None]:
    """An administrator while the context is open."""
    task = asyncio.create_task(look_after_nodes(site))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def payloads(site: Site) -> list[str]:
    """The processes of jobs that run now."""
    done = await site.exec(("ps", "-u", ",".join(PEOPLE), "-o", "args="))
    return [line for line in done.stdout.decode().splitlines() if "/.headgate/" in line]


async def waiting(site: Site) -> set[str]:
    """The names of our jobs that Slurm would still start."""
    names = await site.slurm("squeue", "-a", "-h", "-t", "PENDING", "-o", "%j")
    return {name for name in names.split() if name.startswith("hg-")}


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_on_real_slurm_each_job_runs_at_most_once(site: Site, seed: int):
    """Slurm, sshd and our services killed and stalled at random: once, or `lost`."""
    await site.import_accounts()
    counts = site.path(f"counts-{seed}")
    counts.mkdir()
    counts.chmod(0o1777)
    async with aiohttp.ClientSession() as session:
        callers = {
            name: Caller(session, str(site.addresses.gateway), await site.token(name))
            for name in PEOPLE
        }
        campaign = Campaign(callers, counts, lanes(site), seed, may_lose=True)
        pace = Pace(jobs=75, seconds=90, settle_seconds=240, pause=2.5, calm=4.0, payload_seconds=2)
        async with looked_after(site):
            report = await campaign.run(pace)
    log.info("seed %s: %s; %s", seed, report, report.faults)
    assert not report.broken, report
    async with asyncio.timeout(60):  # a cancelled job takes its time to go
        while await waiting(site) or await payloads(site):  # noqa: ASYNC110 - only it can tell
            await asyncio.sleep(1)
