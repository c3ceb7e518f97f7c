"""What a partition offers and carries: its limits, its jobs, its CPUs and GPUs (pure)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from headgate.slurm.capacity import Machine, Slots, by_type, total
from headgate.slurm.model import JobState, Partition, QueuedJob
from info_provider.glue import UNLIMITED

GPU_TRES = "gres/gpu"
SERVING = {"UP": "production", "DRAIN": "draining", "DOWN": "queueing", "INACTIVE": "closed"}
"""Partition state to GLUE: DOWN takes jobs and starts none, DRAIN starts what it has."""

_NOT_ELIGIBLE = ("JobHeld", "Dependency", "BeginTime", "JobArrayTaskLimit")


@dataclass(frozen=True, slots=True)
class Load:
    """What a queue's jobs come to; array elements count one by one.

    `eligible` are the waiting ones that only want resources; `gpus` is by type, "" the total.
    """

    running: int = 0
    waiting: int = 0
    suspended: int = 0
    eligible: int = 0
    cpus_used: int = 0
    cpus_requested: int = 0
    gpus: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Limits:
    """What one job may have here: seconds, CPUs, GPUs, memory in MiB (None: there is no node)."""

    max_seconds: int
    default_seconds: int
    max_cpus: int
    max_gpus: int
    max_memory_mib: int | None
    guaranteed_memory_mib: int | None


def loads(jobs: Iterable[QueuedJob]) -> Mapping[str, Load]:
    """The load of each partition; a job that waits for one of several waits in each."""
    counts: dict[str, _Count] = {}
    for job in jobs:
        if job.state.final:
            continue
        # A running job is in the one partition that took it.
        where = job.partitions if job.state.pending else job.partitions[:1]
        for partition in where:
            counts.setdefault(partition, _Count()).add(job)
    return {name: count.load() for name, count in counts.items()}


class _Count:
    """Adding up while the queue is walked once."""

    def __init__(self) -> None:
        self._number: dict[str, int] = {}
        self._gpus: dict[str, int] = {}

    def add(self, job: QueuedJob) -> None:
        if job.state.pending:
            self._more("waiting", job.tasks)
            self._more("cpus_requested", job.cpus * job.tasks)
            if not job.reason.startswith(_NOT_ELIGIBLE):
                self._more("eligible", job.tasks)
        elif job.state is JobState.SUSPENDED:
            self._more("suspended", 1)
        else:
            self._more("running", 1)
            self._more("cpus_used", job.cpus)
            for kind, number in held_gpus(job).items():
                self._gpus[kind] = self._gpus.get(kind, 0) + number

    def _more(self, what: str, number: int) -> None:
        self._number[what] = self._number.get(what, 0) + number

    def load(self) -> Load:
        return Load(**self._number, gpus=self._gpus)


def held_gpus(job: QueuedJob) -> Mapping[str, int]:
    """A job's GPUs by type, under "" their total: typed TRES are included in the untyped one."""
    typed = {
        name.removeprefix(GPU_TRES + ":"): number
        for name, number in job.tres.items()
        if name.startswith(GPU_TRES + ":")
    }
    return {**typed, "": job.tres.get(GPU_TRES, sum(typed.values()))}


def limits(partition: Partition, nodes: Sequence[Machine]) -> Limits:
    """What the partition allows one job, as far as its nodes can give it."""
    most = partition.max_nodes
    per_node = partition.max_cpus_per_node
    max_seconds = _seconds(partition.max_time_minutes)
    default = partition.default_time_minutes
    each_cpus = sorted(
        (min(one.cpus.installed, per_node or one.cpus.installed) for one in nodes), reverse=True
    )
    each_gpus = sorted(
        (sum(slots.installed for slots in one.gpus.values()) for one in nodes), reverse=True
    )
    memory = [one.node.memory_mib for one in nodes]
    largest = partition.max_memory_per_node_mib or max(memory, default=None)
    return Limits(
        max_seconds,
        max_seconds if default is None else _seconds(default),
        sum(each_cpus[:most]),
        sum(each_gpus[:most]),
        largest,
        min(largest, *memory) if memory and largest else None,
    )


def _seconds(minutes: int | None) -> int:
    return UNLIMITED if minutes is None else min(minutes * 60, UNLIMITED)


def cpu_slots(partition: Partition, nodes: Sequence[Machine], load: Load) -> Slots:
    """The partition's CPUs; used are those of its own jobs, free what a new job could have.

    Nodes and queue are read one after the other; where they differ, the nodes are right.
    """
    slots = total(one.cpus for one in nodes)
    free = 0
    if starts(partition):
        limit = partition.max_cpus_per_node
        free = sum(min(one.cpus.free, limit or one.cpus.free) for one in nodes)
    return Slots(slots.installed, slots.usable, min(load.cpus_used, slots.used), free)


def gpu_slots(
    partition: Partition, nodes: Sequence[Machine], load: Load, *, tracked: bool
) -> Mapping[str, Slots]:
    """The partition's GPUs by type; `tracked` says whether Slurm counts `gres/gpu` per job.

    Where it does not, what is in use on the partition's nodes is taken, whoever's it is.
    """
    kinds = by_type(one.gpus for one in nodes)
    found = {}
    for kind, slots in kinds.items():
        used = slots.used
        if tracked:
            own = load.gpus.get("", 0) if len(kinds) == 1 else load.gpus.get(kind, used)
            used = min(own, slots.used)
        free = slots.free if starts(partition) else 0
        found[kind] = Slots(slots.installed, slots.usable, used, free)
    return found


def starts(partition: Partition) -> bool:
    """Whether a job submitted now could start: only in a partition that is UP."""
    return partition.state == "UP"
