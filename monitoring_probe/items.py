"""The items of our Zabbix template: what each key means, for the values and for the template."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from monitoring_probe.metrics import JOB_STATES, NODE_STATES, REASONS

MASTER = "hg.snapshot"
"""The one item that is sent: everything of a run; the others depend on it."""

COMMANDS = ("ping", "nodes", "partitions", "jobs")
SUBJECTS = ("all", "slurm", "nodes", "gpus", "spool")


class ValueType(StrEnum):
    """Zabbix's value types, as its export format spells them."""

    UNSIGNED = "UNSIGNED"
    FLOAT = "FLOAT"
    CHAR = "CHAR"
    TEXT = "TEXT"


@dataclass(frozen=True, slots=True)
class Item:
    """One item or, with a macro such as `{#PART}` in its key, one item prototype."""

    key: str
    name: str
    type: ValueType = ValueType.UNSIGNED
    units: str = ""
    value_map: str = ""


@dataclass(frozen=True, slots=True)
class Discovery:
    """A discovery rule and the prototypes of the items that each thing found gets."""

    key: str
    name: str
    items: tuple[Item, ...]


def items() -> tuple[Item, ...]:
    """The items every cluster has."""
    return (
        Item("hg.heartbeat", "Time of the last measurement", units="unixtime"),
        *_states(),
        *(Item(f"hg.nodes[{word}]", f"Nodes: {word}") for word in NODE_STATES),
        Item("hg.nodes.bad", "Nodes that do not serve", ValueType.TEXT),
        *(Item(f"hg.cpus.{word}", f"CPUs: {word}") for word in ("total", "alloc", "idle", "other")),
        *(Item(f"hg.jobs[{word}]", f"Jobs: {word}") for word in JOB_STATES),
        *(Item(f"hg.jobs.pending[{word}]", f"Jobs pending: {word}") for word in REASONS),
        *_probe(),
    )


def _states() -> Iterator[Item]:
    for subject in SUBJECTS:
        yield Item(f"hg.state[{subject}]", f"State: {subject}", value_map="state")
        yield Item(f"hg.reason[{subject}]", f"Reason: {subject}", ValueType.CHAR)


def _probe() -> Iterator[Item]:
    yield Item("hg.probe.run.time", "Probe: time of a run", ValueType.FLOAT, "s")
    for name in COMMANDS:
        yield Item(f"hg.cmd.rc[{name}]", f"Probe: {name} failed", value_map="failed")
        yield Item(f"hg.cmd.time[{name}]", f"Probe: time of {name}", ValueType.FLOAT, "s")
    yield Item("hg.spool.runs", "Probe: runs that wait to be sent")
    yield Item("hg.spool.size", "Probe: size of the spool", units="B")
    yield Item("hg.spool.age", "Probe: age of the oldest unsent run", ValueType.FLOAT, "s")
    yield Item("hg.spool.dropped", "Probe: runs dropped since ever")


def discoveries() -> tuple[Discovery, ...]:
    """What is found at run time: controllers, partitions, GPU types, services."""
    return (
        Discovery(
            "hg.ctld.discovery",
            "Slurm controllers",
            (Item("hg.ctld.up[{#CTLD}]", "slurmctld {#CTLD}", value_map="up"),),
        ),
        Discovery("hg.part.discovery", "Partitions", tuple(_partition())),
        Discovery(
            "hg.gpu.discovery",
            "GPU types",
            tuple(
                Item(f"hg.gpu.{word}[{{#GPU}}]", f"GPUs {{#GPU}}: {word}")
                for word in ("total", "alloc", "free", "down", "other")
            ),
        ),
        Discovery(
            "hg.svc.discovery",
            "Services",
            (
                Item("hg.svc.state[{#SVC}]", "Service {#SVC}: state", value_map="state"),
                Item("hg.svc.reason[{#SVC}]", "Service {#SVC}: reason", ValueType.CHAR),
                Item("hg.svc.latency[{#SVC}]", "Service {#SVC}: latency", ValueType.FLOAT, "s"),
            ),
        ),
    )


def _partition() -> Iterator[Item]:
    yield Item("hg.part.state[{#PART}]", "Partition {#PART}: state", ValueType.CHAR)
    for word in ("total", "alloc", "idle", "other"):
        yield Item(f"hg.part.cpus.{word}[{{#PART}}]", f"Partition {{#PART}}: CPUs {word}")
    for word in ("total", "alloc"):
        yield Item(
            f"hg.part.mem.{word}[{{#PART}}]", f"Partition {{#PART}}: memory {word}", units="B"
        )
    for word in ("avail", "bad"):
        yield Item(f"hg.part.nodes.{word}[{{#PART}}]", f"Partition {{#PART}}: nodes {word}")
    for word in ("running", "pending"):
        yield Item(f"hg.part.jobs.{word}[{{#PART}}]", f"Partition {{#PART}}: jobs {word}")
    yield Item(
        "hg.part.wait.oldest[{#PART}]",
        "Partition {#PART}: longest wait of an eligible job",
        ValueType.FLOAT,
        "s",
    )
