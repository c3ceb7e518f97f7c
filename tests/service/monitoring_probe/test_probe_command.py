"""`headgate-probe` as cron, a timer or a Nagios starts it, with commands that stand for Slurm's."""

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from headgate.clock import SystemClock
from headgate.settings import load
from headgate.slurm.cli import CommandReader, command_variables
from monitoring_probe.__main__ import main
from monitoring_probe.cycle import Cycle, Unspooled, look
from monitoring_probe.measure import ask_services
from monitoring_probe.measurement import Readiness
from monitoring_probe.settings import ProbeSettings, ServiceSettings, TrapperSettings, read
from monitoring_probe.spool import Spool
from monitoring_probe.zabbix.trapper import ZabbixTrapper

SCONTROL = """#!/bin/sh
echo "$*" >> $0.asked
case "$*" in
*ping*) echo "Slurmctld(primary) at head is {ping}";;
*partition*) echo "PartitionName=gpu Default=YES Hidden=NO RootOnly=NO State=UP Nodes=n1 \
TotalCPUs=8 TotalNodes=1 MaxTime=01:00:00 DefaultTime=NONE MaxNodes=UNLIMITED MinNodes=0 \
MaxCPUsPerNode=UNLIMITED MaxMemPerNode=UNLIMITED AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL";;
*node*) {nodes};;
esac
"""
NODE = (
    "echo 'NodeName=n1 Arch=x86_64 CoresPerSocket=8 CPUAlloc=2 CPUEfctv=8 CPUTot=8 "
    "Gres=gpu:tesla:4 GresUsed=gpu:tesla:1(IDX:0) RealMemory=4000 AllocMem=0 Sockets=1 "
    "State=MIXED ThreadsPerCore=1 Partitions=gpu'"
)

Slurm = Callable[..., Path]


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Slurm:
    """Makes the commands; an empty queue, one node, one controller."""

    def make(*, ping: str = "UP", nodes: str = NODE) -> Path:
        scontrol, squeue = tmp_path / "scontrol", tmp_path / "squeue"
        scontrol.write_text(SCONTROL.replace("{ping}", ping).replace("{nodes}", nodes))
        squeue.write_text('#!/bin/sh\necho "$*" >> $0.asked\n')
        scontrol.chmod(0o755)
        squeue.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
        return tmp_path

    return make


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A settings file whose Zabbix nobody runs."""
    path = tmp_path / "probe.toml"
    path.write_text(
        f'[zabbix]\nhost = "hpc"\nservers = ["127.0.0.1:1"]\n[spool]\npath = "{tmp_path}/spool"\n'
    )
    return path


def settings(config: Path, port: int) -> ProbeSettings:
    """The file's, with the trapper on that port."""
    found = load(config, ProbeSettings)
    zabbix = TrapperSettings(host="hpc", servers=(f"127.0.0.1:{port}",), timeout=2.0)
    return ProbeSettings(zabbix=zabbix, spool=found.spool)


def cycle(found: ProbeSettings, path: Path, port: int) -> Cycle:
    """One run over the commands."""
    reader = CommandReader(env=command_variables({"PATH": f"{path}:/usr/bin:/bin"}))
    spool = Spool(Path(found.spool.path), max_age=86400, max_bytes=1_000_000)
    trapper = ZabbixTrapper([("127.0.0.1", port)], timeout=2.0)
    return Cycle(reader, spool, trapper, found, SystemClock())


def test_stdout_shows_all_values(
    slurm: Slurm, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """JSON by item key, with at most four Slurm commands, and nothing kept or sent."""
    path = slurm()
    assert main(["--config", str(config), "run", "--stdout"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["hg.gpu.free[tesla]"] == 3
    assert shown["hg.cpus.alloc"] == 2
    asked = (path / "scontrol.asked").read_text() + (path / "squeue.asked").read_text()
    assert len(asked.splitlines()) == 4
    assert not (path / "spool").exists()


def test_check_is_a_plugin(slurm: Slurm, config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One line and the state as exit status."""
    slurm()
    assert main(["--config", str(config), "check"]) == 0
    assert capsys.readouterr().out.startswith("HEADGATE OK - all is well | 'nodes_idle'=0")
    slurm(ping="DOWN")
    assert main(["--config", str(config), "check"]) == 2
    assert "slurmctld is down (primary on head)" in capsys.readouterr().out
    slurm(nodes="echo 'cannot contact' >&2; exit 1")
    assert main(["--config", str(config), "check"]) == 3
    assert "cannot contact" in capsys.readouterr().out


def test_zabbix_away_is_no_failure_of_ours(slurm: Slurm, config: Path) -> None:
    """The run waits on disk, and the timer's unit does not fail."""
    path = slurm()
    assert main(["--config", str(config), "run"]) == 0
    assert main(["--config", str(config), "run"]) == 0
    assert len(list((path / "spool").glob("*.jsonl"))) == 2


async def test_an_outage_loses_nothing(slurm: Slurm, config: Path, trapper: Any) -> None:
    """Three runs without Zabbix, one with it: four arrive, in order, at their own times."""
    path = slurm()
    async with trapper("take") as fake:
        gone = fake.port
    for _ in range(3):
        outcome = await cycle(settings(config, gone), path, gone).run("hpc")
        assert outcome.taken == 0
    async with trapper("take") as fake:
        outcome = await cycle(settings(config, fake.port), path, fake.port).run("hpc")
    assert (outcome.taken, outcome.left) == (4, 0)
    clocks = [value["clock"] + value["ns"] / 1e9 for value in fake.values]
    assert clocks == sorted(set(clocks))
    waiting = [json.loads(value["value"])["hg.spool.runs"] for value in fake.values]
    assert waiting == [0, 1, 2, 3]


async def test_a_full_disk_still_sends(
    slurm: Slurm, config: Path, trapper: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What finds no place on disk goes out from memory; without Zabbix it is lost, and said so."""
    path = slurm()
    (path / "spool").mkdir()

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    async with trapper("take") as fake:
        await cycle(settings(config, fake.port), path, fake.port).run("hpc")
        port = fake.port
    assert len(fake.values) == 1
    with pytest.raises(Unspooled, match="neither kept nor sent"):
        await cycle(settings(config, port), path, port).run("hpc")


def test_a_second_run_leaves_the_work_to_the_first(slurm: Slurm, config: Path) -> None:
    """Exit status 0, nothing asked, nothing kept."""
    path = slurm()
    with Spool(path / "spool", max_age=1, max_bytes=1).held():
        assert main(["--config", str(config), "run"]) == 0
    assert not (path / "scontrol.asked").exists()


def test_a_spool_that_cannot_be_made(
    slurm: Slurm, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A fault of our own: status 1, the path in the line."""
    path = slurm()
    (path / "spool").write_text("a file")
    assert main(["--config", str(config), "run"]) == 1
    assert f"{path}/spool" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[zabix]\n", "zabix"),
        ('[zabbix]\nhost = "h"\nservers = ["[::1]:10051"]\n', "HOST:PORT"),
        ('[[service]]\nname = "a b"\nurl = "http://x"\n', "service"),
        ('[[service]]\nname = "a"\nurl = "ftp://x"\n', "no http"),
    ],
)
def test_wrong_settings(
    config: Path, capsys: pytest.CaptureFixture[str], text: str, words: str
) -> None:
    """78 with the file and the place; as a plugin, unknown."""
    config.write_text(text)
    assert main(["--config", str(config), "run"]) == 78
    error = capsys.readouterr().err
    assert words in error
    assert str(config) in error
    assert main(["--config", str(config), "check"]) == 3


def test_check_config_and_template_need_no_slurm(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What was understood; the template."""
    assert main(["--config", str(config), "check-config"]) == 0
    assert json.loads(capsys.readouterr().out)["thresholds"]["nodes_warning"] == 0.1
    assert main(["template"]) == 0
    assert capsys.readouterr().out.startswith("zabbix_export:\n")


async def test_readiness_of_services() -> None:
    """Ready, not ready with its faults, down, late: each its own answer."""

    async def readyz(request: web.Request) -> web.Response:
        if request.match_info["name"] == "good":
            return web.Response(text="database: ok\n")
        return web.Response(text="database: ok\nslurm: gone\n", status=503)

    app = web.Application()
    app.router.add_get("/{name}/readyz", readyz)
    async with TestServer(app) as server:
        found = await ask_services(
            [
                ServiceSettings(name="good", url=str(server.make_url("/good/"))),
                ServiceSettings(name="bad", url=str(server.make_url("/bad"))),
                ServiceSettings(name="down", url="http://127.0.0.1:1"),
            ],
            SystemClock(),
        )
    assert found["good"].readiness is Readiness.READY
    assert found["good"].seconds is not None
    assert found["bad"].readiness is Readiness.NOT_READY
    assert found["bad"].reason == "answers 503: slurm: gone"
    assert found["down"].readiness is Readiness.DOWN


async def test_looking_touches_nothing(slurm: Slurm, config: Path) -> None:
    """`check` and `--stdout` make no spool."""
    path = slurm()
    reader = CommandReader(env=command_variables({"PATH": f"{path}:/usr/bin:/bin"}))
    spool = Spool(path / "nowhere", max_age=1, max_bytes=1)
    await look(reader, spool, read(config), SystemClock())
    assert not (path / "nowhere").exists()
