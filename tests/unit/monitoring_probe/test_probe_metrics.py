"""Measurements as Zabbix items."""

import re
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace

import pytest

from headgate.slurm.model import Controller
from monitoring_probe.items import MASTER, discoveries, items
from monitoring_probe.judge import judge
from monitoring_probe.measurement import Measurement, Readiness, Service
from monitoring_probe.metrics import (
    NODE_STATES,
    REASONS,
    Reading,
    node_state,
    readings,
    reason_group,
)
from monitoring_probe.settings import Thresholds
from monitoring_probe.template import template


def told(measurement: Measurement) -> dict[str, Reading]:
    """The items of a measurement."""
    return readings(measurement, judge(measurement, Thresholds()))


def test_every_reading_has_an_item_and_every_item_a_reading(make: SimpleNamespace) -> None:
    """The template and the values cannot drift apart: they use the same keys."""
    services = {"gateway": Service(Readiness.READY, "ready", 0.1)}
    found = told(make.measurement(jobs=[make.job()], services=services))
    known = {item.key for item in items()} | {rule.key for rule in discoveries()}
    for rule in discoveries():
        rows = found[rule.key]
        assert isinstance(rows, list)
        for row in rows:
            for item in rule.items:
                [(macro, name)] = row.items()
                known.add(item.key.replace(macro, name))
    assert set(found) == known
    assert MASTER not in found


def test_what_failed_is_absent_and_never_zero(make: SimpleNamespace) -> None:
    """A failed command has its rc item, and no item of what it would have said."""
    found = told(make.measurement(nodes="no contact", jobs="no contact"))
    assert found["hg.cmd.rc[nodes]"] == 1
    assert found["hg.cmd.rc[jobs]"] == 1
    assert found["hg.cmd.rc[ping]"] == 0
    absent = ("hg.nodes[", "hg.cpus", "hg.gpu", "hg.jobs", "hg.part.cpus", "hg.part.jobs")
    assert not [key for key in found if key.startswith(absent)]
    assert found["hg.part.state[gpu]"] == "UP"
    assert found["hg.heartbeat"] == int(make.noon.timestamp())


def test_nothing_measured_is_still_told(make: SimpleNamespace) -> None:
    """With all commands failed the heartbeat, the states and the rc items go out."""
    found = told(make.measurement(controllers="late", nodes="late", partitions="late", jobs="late"))
    assert found["hg.state[all]"] == 3
    assert "hg.part.discovery" not in found
    assert "hg.ctld.discovery" not in found


def test_gpus_by_type_while_a_node_is_drained(make: SimpleNamespace) -> None:
    """Total = alloc + free + down + other, also on a drained node with a running job."""
    found = told(
        make.measurement(
            nodes=[
                make.node("n1", state="MIXED+DRAIN", used="gpu:tesla:1", cpus_allocated=1),
                make.node("n2", gres="gpu:tesla:4,gpu:a100:2", used="gpu:a100:2"),
                make.node("n3", state="IDLE+POWERED_DOWN", gres="gpu:2"),
                make.node("n4", state="FUTURE"),
            ]
        )
    )
    words = ("total", "alloc", "free", "down", "other")
    assert [found[f"hg.gpu.{word}[tesla]"] for word in words] == [8, 1, 4, 3, 0]
    assert [found[f"hg.gpu.{word}[a100]"] for word in words] == [2, 2, 0, 0, 0]
    assert [found[f"hg.gpu.{word}[untyped]"] for word in words] == [2, 0, 0, 0, 2]
    assert found["hg.nodes[drain]"] == 1
    assert found["hg.nodes[powered_off]"] == 1
    assert found["hg.nodes.bad"] == "n1: MIXED"


def test_jobs_by_state_reason_and_partition(make: SimpleNamespace) -> None:
    """Array elements count one by one; `a,b` waits in both partitions, once in the total."""
    found = told(
        make.measurement(
            partitions=[make.partition("gpu"), make.partition("long")],
            jobs=[
                make.job(1, "PENDING", reason="Priority", tasks=10),
                make.job(2, "PENDING", reason="Resources", partitions=("gpu", "long")),
                make.job(3, "PENDING", reason="JobHeldUser"),
                make.job(4, partitions=("long",)),
                make.job(5, "COMPLETED"),
                make.job(6, "SUSPENDED"),
            ],
        )
    )
    assert found["hg.jobs[pending]"] == 12
    assert found["hg.jobs[running]"] == 1
    assert found["hg.jobs[suspended]"] == 1
    assert found["hg.jobs.pending[priority]"] == 10
    assert found["hg.jobs.pending[held]"] == 1
    assert found["hg.part.jobs.pending[gpu]"] == 12
    assert found["hg.part.jobs.pending[long]"] == 1
    assert found["hg.part.jobs.running[long]"] == 1


def test_longest_wait_is_of_eligible_jobs(make: SimpleNamespace) -> None:
    """A job held for a month is not a queue that is slow."""
    jobs = [
        make.job(1, "PENDING", reason="Priority", submitted_at=make.noon - timedelta(hours=1)),
        make.job(2, "PENDING", reason="JobHeldAdmin", submitted_at=make.noon - timedelta(days=30)),
    ]
    assert told(make.measurement(jobs=jobs))["hg.part.wait.oldest[gpu]"] == 3600


def test_a_partition_with_an_impossible_name_is_left_out(make: SimpleNamespace) -> None:
    """Names that would break out of an item key are not sent."""
    found = told(make.measurement(partitions=[make.partition("gpu"), make.partition("a']b")]))
    assert found["hg.part.discovery"] == [{"{#PART}": "gpu"}]


def test_controllers(make: SimpleNamespace) -> None:
    """Each has its own item."""
    both = [Controller("primary", "a", up=False), Controller("backup", "b", up=True)]
    found = told(make.measurement(controllers=both))
    assert found["hg.ctld.up[primary@a]"] == 0
    assert found["hg.ctld.up[backup@b]"] == 1


@pytest.mark.parametrize(
    ("state", "word"),
    [
        ("IDLE", "idle"),
        ("IDLE+PLANNED", "idle"),
        ("MIXED", "mixed"),
        ("ALLOCATED", "alloc"),
        ("ALLOCATED+DRAIN", "drain"),
        ("DOWN+DRAIN", "drain"),
        ("DOWN+NOT_RESPONDING", "down"),
        ("IDLE+NOT_RESPONDING", "noresp"),
        ("IDLE+MAINTENANCE+DRAIN", "maint"),
        ("IDLE+RESERVED", "resv"),
        ("IDLE+POWERING_UP", "powered_off"),
        ("IDLE+COMPLETING", "other"),
        ("NEWWORD", "other"),
    ],
)
def test_words_for_nodes(make: SimpleNamespace, state: str, word: str) -> None:
    """Each node is counted once, under a word of the fixed list."""
    assert node_state(make.node(state=state)) == word
    assert word in NODE_STATES


@pytest.mark.parametrize(
    ("reason", "group"),
    [
        ("Priority", "priority"),
        ("Resources", "resources"),
        ("QOSMaxCpuPerUserLimit", "limits"),
        ("AssocGrpCPUMinutesLimit", "limits"),
        ("JobArrayTaskLimit", "array"),
        ("JobHeldUser", "held"),
        ("PartitionTimeLimit", "partition"),
        ("ReqNodeNotAvail, UnavailableNodes:n1", "nodes"),
        ("None", "none"),
        ("", "none"),
        ("SomethingNew", "other"),
    ],
)
def test_groups_of_reasons(reason: str, group: str) -> None:
    """The list of groups is fixed, whatever reasons a release brings."""
    assert reason_group(reason) == group
    assert group in REASONS


def test_reasons_fit_their_items(make: SimpleNamespace) -> None:
    """A reason is cut to what a character item holds."""
    found = told(make.measurement(nodes="x" * 1000))
    assert len(str(found["hg.reason[nodes]"])) == 255


def test_template_is_the_same_each_time() -> None:
    """UUIDs are shaped like version 4 and derive from the keys."""
    text = template()
    assert text == template()
    uuids = re.findall(r'uuid: "(.*)"', text)
    assert len(uuids) == len(set(uuids)) > 100
    assert all(re.fullmatch(r"[0-9a-f]{12}4[0-9a-f]{3}a[0-9a-f]{15}", one) for one in uuids)


def test_values_of_one_run_have_one_time(make: SimpleNamespace) -> None:
    """The heartbeat is the time of the measurement, not of the sending."""
    later = replace(make.measurement(), run_seconds=30.0)
    assert told(later)["hg.heartbeat"] == int(make.noon.timestamp())
