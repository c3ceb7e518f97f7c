"""Fault campaigns on an embedded site: whatever dies, no job is lost and none is doubled."""

import asyncio
import contextlib
import json
import logging
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from testbed.caller import Caller
from testbed.campaign import Campaign, Fault, Pace
from testbed.embedded import SLURM, EmbeddedSite, embedded

log = logging.getLogger(__name__)

SEED = 20260101


@pytest.fixture(scope="module")
async def own_site() -> AsyncIterator[EmbeddedSite]:
    """A site to be disturbed, of these tests' own."""
    async with embedded(quick=True) as running:
        await running.import_accounts()
        yield running


def killed(site: EmbeddedSite, name: str, between: Callable[[], None] = lambda: None) -> Fault:
    """A service killed with kill -9 and started again."""

    async def fault() -> None:
        await site.signal(name, signal.SIGKILL)
        between()
        await site.start(name)

    return fault


def ended(site: EmbeddedSite, name: str) -> Fault:
    """A service asked to end, and started again."""

    async def fault() -> None:
        await site.stop(name)
        await site.start(name)

    return fault


def stalled(site: EmbeddedSite, name: str, seconds: float) -> Fault:
    """A service that does nothing for a while."""

    async def fault() -> None:
        await site.signal(name, signal.SIGSTOP)
        await asyncio.sleep(seconds)
        await site.signal(name, signal.SIGCONT)

    return fault


def sessions(site: EmbeddedSite) -> Iterator[int]:
    """The process ids of the site's session programs."""
    program = str(site.path("libexec", "headgate-session")).encode()
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if program in entry.read_bytes().split(b"\0"):
                yield int(entry.parent.name)
        except OSError:
            continue  # it has ended meanwhile


def sessions_signalled(site: EmbeddedSite, *numbers: int, seconds: float = 0.0) -> Fault:
    """Every session program signalled, with a pause in between."""

    async def fault() -> None:
        found = list(sessions(site))
        for number in numbers:
            for process in found:
                hit(process, number)
            await asyncio.sleep(seconds)

    return fault


def hit(process: int, number: int) -> None:
    """Signal a process unless it is gone."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, number)


def forget(site: EmbeddedSite) -> None:
    """Take its last job from a killed cluster's memory, as slurmctld forgets what it just took."""
    journal = site.path("cluster", "journal")
    lines = [json.loads(line) for line in journal.read_bytes().splitlines()]
    last = max((line["job"]["id"] for line in lines if "job" in line), default=0)
    kept = [line for line in lines if line.get("job", {}).get("id") != last]
    journal.write_text("".join(json.dumps(line) + "\n" for line in kept))


def start_again(site: EmbeddedSite) -> None:
    """Make a killed cluster believe that what runs has never started, as slurmctld may."""
    journal = site.path("cluster", "journal")
    lines = [json.loads(line) for line in journal.read_bytes().splitlines()]
    states = {line["job"]["id"]: line["job"]["state"] for line in lines if "job" in line}
    running = {job for job, state in states.items() if state == "RUNNING"}
    kept = [
        line
        for line in lines
        if line.get("job", {}).get("id") not in running or line["job"]["state"] == "PENDING"
    ]
    journal.write_text("".join(json.dumps(line) + "\n" for line in kept))
    for job in running:
        for trace in ("lock", "processes", "exit", "launch.json"):
            site.path("cluster", "spool", f"job{job:05}", trace).unlink(missing_ok=True)


def cluster_jobs(site: EmbeddedSite) -> dict[str, list[dict[str, Any]]]:
    """The cluster's jobs at the end of its journal, by name."""
    last: dict[int, dict[str, Any]] = {}
    for line in site.path("cluster", "journal").read_bytes().splitlines():
        job = json.loads(line).get("job")
        if job:
            last[job["id"]] = job
    named: dict[str, list[dict[str, Any]]] = {}
    for job in last.values():
        named.setdefault(job["request"]["name"], []).append(job)
    return named


def orphans(site: EmbeddedSite, rows: set[str]) -> list[str]:
    """Jobs of the cluster that still live or belong to no row, once all rows have ended."""
    final = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL"}
    return [
        f"{name} is {job['state']}"
        for name, jobs in cluster_jobs(site).items()
        for job in jobs
        if job["state"] not in final or name.removeprefix("hg-") not in rows
    ]


def mild(site: EmbeddedSite) -> list[dict[str, Fault]]:
    """Faults after which every job ends as its payload did: of the gateway's side, of the rest."""
    return [
        {
            "kill gateway": killed(site, "gateway"),
            "stop gateway": ended(site, "gateway"),
            "stall gateway": stalled(site, "gateway", 2.0),
            "kill sessions": sessions_signalled(site, signal.SIGKILL),
            "stall sessions": sessions_signalled(site, signal.SIGSTOP, signal.SIGCONT, seconds=2.0),
        },
        {
            **{f"kill {name}": killed(site, name) for name in (SLURM, "tokens", "accounts")},
            "stop cluster": ended(site, SLURM),
            "stall cluster": stalled(site, SLURM, 2.0),
            "stall tokens": stalled(site, "tokens", 2.0),
            "stall accounts": stalled(site, "accounts", 2.0),
            "kill signer": killed(site, "signer"),
        },
    ]


def rough(site: EmbeddedSite) -> list[dict[str, Fault]]:
    """Faults after which the cluster itself has lost or doubled something."""
    near, far = mild(site)
    forgetful = {
        "forget": killed(site, SLURM, lambda: forget(site)),
        "forget again": killed(site, SLURM, lambda: forget(site)),
        "start again": killed(site, SLURM, lambda: start_again(site)),
        "kill tokens": far["kill tokens"],
    }
    return [near, forgetful]


async def campaign(
    site: EmbeddedSite,
    lanes: list[dict[str, Fault]],
    pace: Pace,
    seed: int,
    *,
    may_lose: bool,
) -> None:
    """Run one and see that every promise held."""
    counts = site.path(f"counts-{seed}-{may_lose}")
    counts.mkdir()
    counts.chmod(0o777)
    before = {name.removeprefix("hg-") for name in cluster_jobs(site)}
    async with aiohttp.ClientSession() as session:
        callers = {
            name: Caller(session, site.addresses.gateway, await site.token(name))
            for name in ("alice", "bob", "carol")
        }
        running = Campaign(callers, counts, lanes, seed, may_lose=may_lose)
        report = await running.run(pace)
    log.info("seed %s: %s; %s", seed, report, report.faults)
    assert not report.broken, report
    assert not orphans(site, running.rows() | before)


async def test_whatever_dies_each_job_runs_once_and_ends_right(own_site: EmbeddedSite):
    """Services killed, stopped and stalled at random: every job ends as its payload did."""
    pace = Pace(jobs=45, seconds=9, settle_seconds=60)
    await campaign(own_site, mild(own_site), pace, SEED, may_lose=False)


async def test_a_cluster_that_forgets_and_repeats_doubles_nothing(own_site: EmbeddedSite):
    """A cluster that loses jobs and starts them twice: at most one start, else the kind `lost`."""
    pace = Pace(jobs=45, seconds=9, settle_seconds=60)
    await campaign(own_site, rough(own_site), pace, SEED, may_lose=True)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(5))
async def test_a_long_campaign(own_site: EmbeddedSite, seed: int):
    """The same for longer, with more jobs and other seeds."""
    pace = Pace(jobs=150, seconds=60, settle_seconds=120, workers=3)
    await campaign(own_site, rough(own_site), pace, seed, may_lose=True)
