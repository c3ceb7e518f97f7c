"""Measurements made by hand."""

from collections.abc import Callable
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from headgate.slurm.model import Controller, JobState, Node, NodeState, Partition, QueuedJob
from headgate.slurm.parse import gres
from monitoring_probe.measurement import Answer, Measurement
from monitoring_probe.values import Value

NOON = datetime(2026, 5, 4, 12, 0, 0, 250_000, tzinfo=UTC)


def node(name: str = "n1", **facts: Any) -> Node:
    """A node of partition gpu with 8 CPUs and 4 GPUs, idle."""
    base, _, flags = str(facts.pop("state", "IDLE")).partition("+")
    known: dict[str, Any] = {
        "name": name,
        "state": NodeState(base, frozenset(flags.split("+")) - {""}),
        "cpus": 8,
        "cpus_effective": 8,
        "cpus_allocated": 0,
        "sockets": 1,
        "cores_per_socket": 8,
        "threads_per_core": 1,
        "memory_mib": 4000,
        "memory_allocated_mib": 0,
        "architecture": "x86_64",
        "operating_system": "Linux",
        "partitions": ("gpu",),
        "features": (),
        "gres": gres(facts.pop("gres", "gpu:tesla:4")),
        "gres_used": gres(facts.pop("used", "")),
    }
    return Node(**(known | facts))


def partition(name: str = "gpu", **facts: Any) -> Partition:
    """A partition that is UP."""
    known: dict[str, Any] = {
        "name": name,
        "state": "UP",
        "is_default": False,
        "hidden": False,
        "root_only": False,
        "nodes": "n1",
        "total_nodes": 1,
        "total_cpus": 8,
        "max_time_minutes": None,
        "default_time_minutes": None,
        "max_nodes": None,
        "min_nodes": 0,
        "max_cpus_per_node": None,
        "max_memory_per_node_mib": None,
    }
    return Partition(**(known | facts))


def job(job_id: int = 1, state: str = "RUNNING", **facts: Any) -> QueuedJob:
    """A job of one CPU in partition gpu, submitted at noon."""
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
        "node_list": "",
        "submitted_at": NOON,
        "started_at": None,
        "ended_at": None,
        "time_limit_minutes": 60,
    }
    return QueuedJob(**(known | facts))


def measurement(**parts: Any) -> Measurement:
    """A well cluster; a part given as a text is a failure, else what was answered."""
    known: dict[str, Any] = {
        "controllers": [Controller("primary", "head", up=True)],
        "nodes": [node()],
        "partitions": [partition()],
        "jobs": [],
    }
    answers = {}
    for name, value in known.items():
        given = parts.pop(name, value)
        failed = isinstance(given, str)
        answers[name] = Answer(None, 1.0, given) if failed else Answer(given, 0.01)
    return Measurement(**({"taken_at": NOON} | answers | parts))


def value(second: int = 0, key: str = "hg.snapshot") -> Value:
    """A value of some second after noon."""
    clock = int(NOON.timestamp()) + second
    return Value(host="hpc", key=key, value="{}", clock=clock, ns=5)


@pytest.fixture(scope="session")
def make() -> SimpleNamespace:
    """The makers above under one name."""
    makers: dict[str, Callable[..., Any]] = {
        "node": node,
        "partition": partition,
        "job": job,
        "measurement": measurement,
        "value": value,
    }
    return SimpleNamespace(noon=NOON, **makers)
