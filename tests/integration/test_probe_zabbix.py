"""The probe against the distribution's own Zabbix server, read back through its API."""

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest

from monitoring_probe.zabbix.api import ZabbixApi
from testbed.site import Site

pytestmark = pytest.mark.site

SETTINGS = """
[slurm]
conf = "{conf}"
timeout = 3
[zabbix]
host = "hpc"
servers = ["{host}:{port}"]
[api]
url = "{url}"
user = "{user}"
password_file = "{password}"
host_group = "HPC clusters"
senders = "127.0.0.1"
[spool]
path = "{spool}"
"""
WORDS = {"total": "total", "alloc": "used", "free": "free"}


class Probe:
    """The command on the site, and Zabbix as its users see it."""

    def __init__(self, site: Site, settings: str, api: ZabbixApi) -> None:
        self.site = site
        self.settings = settings
        self.api = api

    async def __call__(self, *verb: str) -> str:
        """What a verb prints; it must succeed."""
        program = f"{self.site.addresses.venv}/bin/headgate-probe"
        done = await self.site.exec((program, "--config", self.settings, *verb))
        return done.checked().stdout.decode()

    async def history(self, key: str, number: int) -> list[tuple[int, str]]:
        """The stored values of an item, oldest first, once there are that many."""
        async with asyncio.timeout(60):
            while True:
                items = await self.api.call(
                    "item.get", {"host": "hpc", "filter": {"key_": key}, "output": ["value_type"]}
                )
                found = await self._values(items[0]) if items else []
                if len(found) >= number:
                    return found

    async def _values(self, item: dict[str, Any]) -> list[tuple[int, str]]:
        rows = await self.api.call(
            "history.get",
            {
                "itemids": [item["itemid"]],
                "history": int(item["value_type"]),
                "sortfield": "clock",
                "output": "extend",
            },
        )
        rows.sort(key=lambda row: (int(row["clock"]), int(row["ns"])))
        return [(int(row["clock"]), row["value"]) for row in rows]

    async def waiting(self) -> int:
        """How many runs are in the spool."""
        return len(list(self.site.path("var", "spool").glob("*.jsonl")))


@pytest.fixture(scope="module")
async def probe(site: Site) -> AsyncIterator[Probe]:
    """A provisioned Zabbix that knows the things discovery finds."""
    zabbix = await site.start_zabbix()
    password = site.folder.write("conf/zabbix.password", zabbix.password + "\n", mode=0o600)
    text = SETTINGS.format(
        conf=site.addresses.slurm_conf,
        host=zabbix.trapper_host,
        port=zabbix.trapper_port,
        url=zabbix.url,
        user=zabbix.user,
        password=password,
        spool=site.path("var", "spool"),
    )
    settings = str(site.folder.write("conf/probe.toml", text))
    api = ZabbixApi(zabbix.url, timeout=30)
    await api.login(user=zabbix.user, password=zabbix.password)
    try:
        found = Probe(site, settings, api)
        await found("provision")
        async with asyncio.timeout(60):
            # A new host is known to the server after its next look at its database.
            while not await _known(found):
                pass
        yield found
    finally:
        await api.close()


async def _known(probe: Probe) -> bool:
    """Whether discovery has made the GPU items and they have a value."""
    await probe("run")
    items = await probe.api.call(
        "item.get",
        {"host": "hpc", "filter": {"key_": "hg.gpu.free[tesla]"}, "output": ["lastclock"]},
    )
    return bool(items) and int(items[0]["lastclock"]) > 0


async def gpus(site: Site) -> dict[str, int]:
    """GPUs counted from scontrol's own text, with nothing of ours."""
    count = {"total": 0, "used": 0, "free": 0}
    for line in (await site.slurm("scontrol", "-d", "-o", "show", "node")).splitlines():
        total, used = (
            int(number) for number in re.findall(r" Gres(?:Used)?=gpu:tesla:(\d+)", line)
        )
        count["total"] += total
        count["used"] += used
        count["free"] += 0 if "+DRAIN" in line else total - used
    return count


@contextlib.asynccontextmanager
async def load(site: Site, user: str) -> AsyncIterator[None]:
    """A GPU job on n1, which is then drained."""
    argv = ("sbatch", "--parsable", "-p", "gpu", "-w", "n1", "--gpus=1", "--mem=100")
    job = await site.slurm(*argv, "-o", "/dev/null", "--wrap", "sleep 300", user=user)
    try:
        async with asyncio.timeout(30):
            while "RUNNING" not in await site.slurm("squeue", "-h", "-o", "%T", "-j", job.strip()):
                pass
        await site.slurm("scontrol", "update", "NodeName=n1", "State=DRAIN", "Reason=a test")
        yield
    finally:
        await site.slurm("scancel", job.strip())
        await site.slurm("scontrol", "update", "NodeName=n1", "State=RESUME")


async def test_provision_again_changes_nothing(probe: Probe) -> None:
    """Everything is as wanted the second time, and a dry run says the same."""
    expected = (
        "template 'headgate cluster': as wanted\n"
        "host group 'HPC clusters': as wanted\n"
        "host 'hpc': as wanted\n"
    )
    assert await probe("provision") == expected
    assert await probe("provision", "--dry-run") == expected


async def test_a_change_by_hand_is_brought_back(probe: Probe) -> None:
    """A template that was unlinked is linked again; what others added stays."""
    [host] = await probe.api.call("host.get", {"filter": {"host": ["hpc"]}, "output": ["hostid"]})
    [other] = await probe.api.call("hostgroup.get", {"limit": 1, "output": ["groupid"]})
    await probe.api.call("host.update", {"hostid": host["hostid"], "groups": [other]})
    assert "updated (groups)" in await probe("provision", "--dry-run")
    assert "updated (groups)" in await probe("provision")
    assert "host 'hpc': as wanted" in await probe("provision")


async def test_what_arrives_equals_an_independent_count(
    probe: Probe, site: Site, user: str
) -> None:
    """While a GPU job runs on a drained node, Zabbix has the right free, used and total GPUs."""
    before = len(await probe.history("hg.gpu.total[tesla]", 1))
    async with load(site, user):
        await probe("run")
        count = await gpus(site)
    assert (count["total"], count["free"]) == (8, 4)
    for item, word in WORDS.items():
        values = await probe.history(f"hg.gpu.{item}[tesla]", before + 1)
        assert values[-1][1] == str(count[word])
    assert (await probe.history("hg.nodes[drain]", before + 1))[-1][1] == "1"
    assert (await probe.history("hg.part.jobs.running[gpu]", before + 1))[-1][1] == "1"


async def test_with_zabbix_away_nothing_is_lost(probe: Probe, site: Site, user: str) -> None:
    """Four runs of an outage arrive later, each at its own time with what was true then."""
    before = len(await probe.history("hg.gpu.alloc[tesla]", 1))
    expected = []
    await site.stop("zabbix-server")
    try:
        for _ in range(2):
            expected.append((await gpus(site))["used"])
            await probe("run")
        async with load(site, user):
            for _ in range(2):
                expected.append((await gpus(site))["used"])
                await probe("run")
        assert await probe.waiting() == 4
    finally:
        await site.start("zabbix-server")
    await probe("run")
    assert await probe.waiting() == 0
    values = (await probe.history("hg.gpu.alloc[tesla]", before + 5))[before:]
    assert [int(value) for _, value in values][:4] == expected
    heartbeats = (await probe.history("hg.heartbeat", before + 5))[-5:]
    assert all(clock == int(value) for clock, value in heartbeats)


async def test_no_item_is_at_odds_with_its_type(probe: Probe) -> None:
    """Zabbix takes wrong types without a word and marks the item: there is none."""
    await probe("run")
    bad = await probe.api.call(
        "item.get", {"host": "hpc", "filter": {"state": 1}, "output": ["key_", "error"]}
    )
    assert bad == []


async def test_a_slurm_that_is_down_is_told(probe: Probe, site: Site) -> None:
    """The state is critical, and what could not be asked has no value."""
    before = len(await probe.history("hg.state[slurm]", 1))
    await site.stop("slurmctld")
    try:
        await probe("run")
        shown = json.loads(await probe("run", "--stdout"))
    finally:
        await site.start("slurmctld")
    assert shown["hg.state[slurm]"] == 2
    assert shown["hg.cmd.rc[nodes]"] == 1
    assert "hg.cpus.total" not in shown
    clock, state = (await probe.history("hg.state[slurm]", before + 1))[-1]
    assert state == "2"
    assert clock not in dict(await probe.history("hg.cpus.total", 1))
