"""What a real cluster publishes while it is in use and partly drained."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest

from testbed.site import Site

pytestmark = pytest.mark.site

SETTINGS = """
[domain]
id = "example.org"
[location]
name = "Example"
country = "PL"
[[contact]]
detail = "mailto:ops@example.org"
[service]
name = "hpc.example.org"
[[endpoint]]
url = "https://gw.example.org"
[slurm]
conf = "{conf}"
cluster = "{cluster}"
timeout = 3
"""


@pytest.fixture
async def settings(site: Site) -> str:
    """The provider's settings on the site."""
    text = SETTINGS.format(conf=site.addresses.slurm_conf, cluster=site.addresses.cluster)
    return str(site.folder.write("conf/info.toml", text))


@pytest.fixture
async def loaded(site: Site, user: str) -> AsyncIterator[None]:
    """One GPU runs on n1, which is then drained; two run on n2."""
    jobs = [
        (
            await site.slurm(
                *("sbatch", "--parsable", "-p", "gpu", "-w", node, f"--gpus={gpus}"),
                *("--mem=100", "-o", "/dev/null", "--wrap", "sleep 300"),
                user=user,
            )
        ).strip()
        for node, gpus in (("n1", 1), ("n2", 2))
    ]
    try:
        async with asyncio.timeout(30):
            while await _running(site, jobs) < len(jobs):
                pass
        await site.slurm("scontrol", "update", "NodeName=n1", "State=DRAIN", "Reason=a test")
        yield
    finally:
        await site.slurm("scancel", *jobs)
        await site.slurm("scontrol", "update", "NodeName=n1", "State=RESUME")


async def _running(site: Site, jobs: list[str]) -> int:
    return (await site.slurm("squeue", "-h", "-o", "%T", "-j", ",".join(jobs))).count("RUNNING")


async def counted(site: Site) -> dict[str, int]:
    """GPUs counted from scontrol's own text, node by node, with nothing of ours."""
    text = await site.slurm("scontrol", "-d", "-o", "show", "node")
    count = {"total": 0, "used": 0, "free": 0}
    for line in text.splitlines():
        total = int(re.search(r" Gres=gpu:tesla:(\d+)", line)[1])  # type: ignore[index] # or fail
        used = int(re.search(r" GresUsed=gpu:tesla:(\d+)", line)[1])  # type: ignore[index] # or fail
        state = re.search(r" State=(\S+)", line)[1]  # type: ignore[index] # or fail
        count["total"] += total
        count["used"] += used
        count["free"] += 0 if "DRAIN" in state or "DOWN" in state else total - used
    return count


async def run(site: Site, settings: str, *more: str) -> Any:
    """Run the provider on the site."""
    command = (f"{site.addresses.venv}/bin/headgate-info", "--config", settings, "run", *more)
    return await site.exec(command)


@pytest.mark.usefixtures("loaded")
async def test_published_gpus_equal_an_independent_count(site: Site, settings: str) -> None:
    """With a GPU job on a drained node and another beside: free, used and total are right."""
    document = json.loads((await run(site, settings)).checked().stdout)
    count = await counted(site)
    assert count == {"total": 8, "used": 3, "free": 2}
    expected = {f"gpu.tesla.{word}": str(number) for word, number in count.items()}
    [manager] = document["ComputingManagerAcceleratorInfo"]
    assert manager["Extension"] == expected
    assert manager["TotalPhysicalAccelerators"] == count["total"]
    assert manager["UsedAcceleratorSlots"] == count["used"]
    shares = {
        share["Associations"]["ComputingShareID"].split(":")[-1].split(".")[0]: share
        for share in document["ComputingShareAcceleratorInfo"]
    }
    assert shares["gpu"]["Extension"] == expected
    assert shares["gpu"]["FreeAcceleratorSlots"] == count["free"]
    assert shares["gpu"]["UsedAcceleratorSlots"] == count["used"]
    assert shares["batch"]["FreeAcceleratorSlots"] == count["free"]
    assert shares["batch"]["UsedAcceleratorSlots"] == 0
    [kind] = document["AcceleratorEnvironment"]
    assert kind["LogicalAccelerators"] == 4
    [environment] = document["ExecutionEnvironment"]
    assert (environment["TotalInstances"], environment["UnavailableInstances"]) == (2, 1)
    [manager] = document["ComputingManager"]
    assert manager["TotalLogicalCPUs"] == 16


async def test_a_slurm_that_is_away_leaves_the_last_file(site: Site, settings: str) -> None:
    """The file stays, the status is 1, and standard error has one line that says why."""
    output = str(site.path("var", "glue.json"))
    (await run(site, settings, "--output", output)).checked()
    before = site.path("var", "glue.json").read_bytes()
    assert json.loads(before)["ComputingShare"]
    await site.stop("slurmctld")
    try:
        answer = await run(site, settings, "--output", output)
    finally:
        await site.start("slurmctld")
    assert answer.status == 1
    assert answer.stderr.decode().count("\n") == 1
    assert answer.stderr.startswith(b"headgate-info: nothing published: ")
    assert site.path("var", "glue.json").read_bytes() == before
