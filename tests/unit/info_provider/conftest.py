"""Clusters made by hand: nodes, partitions and jobs with the few facts a test is about."""

from collections.abc import Callable
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from headgate.slurm.model import Configuration, JobState, Node, NodeState, Partition, QueuedJob
from headgate.slurm.parse import gres, tres
from info_provider.settings import InfoSettings
from info_provider.snapshot import Snapshot

NOON = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)


def node(name: str = "n1", **facts: Any) -> Node:
    """A node with 8 CPUs, 4 GPUs of type tesla, idle; GRES as Slurm writes them."""
    base, _, flags = str(facts.pop("state", "IDLE")).partition("+")
    known: dict[str, Any] = {
        "name": name,
        "state": NodeState(base, frozenset(flags.split("+")) - {""}),
        "cpus": 8,
        "cpus_effective": facts.get("cpus", 8),
        "cpus_allocated": 0,
        "sockets": 2,
        "cores_per_socket": 4,
        "threads_per_core": 1,
        "memory_mib": 4000,
        "memory_allocated_mib": 0,
        "architecture": "x86_64",
        "operating_system": "Linux 6.1.0 #1 SMP",
        "partitions": ("gpu",),
        "features": (),
        "gres": gres(facts.pop("gres", "gpu:tesla:4")),
        "gres_used": gres(facts.pop("used", "")),
    }
    return Node(**(known | facts))


def partition(name: str = "gpu", **facts: Any) -> Partition:
    """A partition that is UP and limits nothing but time, to an hour."""
    known: dict[str, Any] = {
        "name": name,
        "state": "UP",
        "is_default": False,
        "hidden": False,
        "root_only": False,
        "nodes": "n[1-2]",
        "total_nodes": 2,
        "total_cpus": 16,
        "max_time_minutes": 60,
        "default_time_minutes": None,
        "max_nodes": None,
        "min_nodes": 0,
        "max_cpus_per_node": None,
        "max_memory_per_node_mib": None,
        "preempt_mode": "OFF",
    }
    return Partition(**(known | facts))


def job(job_id: int = 1, state: str = "RUNNING", **facts: Any) -> QueuedJob:
    """A job of one CPU in partition gpu."""
    known: dict[str, Any] = {
        "job_id": job_id,
        "user": "alice",
        "uid": 2001,
        "account": "lab",
        "partitions": ("gpu",),
        "state": JobState(state),
        "reason": "None",
        "cpus": 1,
        "nodes": 1,
        "node_list": "n1",
        "submitted_at": NOON,
        "started_at": NOON,
        "ended_at": None,
        "time_limit_minutes": 60,
        "tres": tres(facts.pop("tres", "")),
    }
    return QueuedJob(**(known | facts))


def snapshot(**parts: Any) -> Snapshot:
    """A cluster of what is given; one partition `gpu` and GPU tracking unless said otherwise."""
    values = {"AccountingStorageTRES": "cpu,mem,node,gres/gpu,gres/gpu:tesla"}
    known: dict[str, Any] = {
        "taken_at": NOON,
        "configuration": Configuration("hpc", "24.11.5", 300, parts.pop("values", values)),
        "partitions": [partition()],
        "nodes": [node()],
        "jobs": [],
    }
    return Snapshot(**(known | parts))


def settings(**tables: Any) -> InfoSettings:
    """A site's settings, the least that is needed and what is given."""
    least = {"domain": {"id": "example.org"}, "service": {"name": "hpc.example.org"}}
    return msgspec.convert(least | tables, InfoSettings)


@pytest.fixture(scope="session")
def make() -> SimpleNamespace:
    """The makers above under one name: `make.node(…)`, `make.snapshot(…)`."""
    makers: dict[str, Callable[..., Any]] = {
        "node": node,
        "partition": partition,
        "job": job,
        "snapshot": snapshot,
        "settings": settings,
    }
    return SimpleNamespace(**makers)
