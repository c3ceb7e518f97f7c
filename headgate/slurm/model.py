"""What a Slurm cluster consists of, as values, and the port through which services read it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Protocol


class ClusterUnavailable(Exception):  # noqa: N818 - a condition, in the words of the operator
    """The cluster could not be asked: a daemon is down, late, or refuses us. Says which and why."""


class JobState(StrEnum):
    """Base state of a batch job (squeue(1), JOB STATE CODES). A new release may know others."""

    PENDING = "PENDING"
    CONFIGURING = "CONFIGURING"
    RUNNING = "RUNNING"
    SUSPENDED = "SUSPENDED"
    STOPPED = "STOPPED"
    COMPLETING = "COMPLETING"
    STAGE_OUT = "STAGE_OUT"
    SIGNALING = "SIGNALING"
    RESIZING = "RESIZING"
    REQUEUED = "REQUEUED"
    REQUEUE_FED = "REQUEUE_FED"
    REQUEUE_HOLD = "REQUEUE_HOLD"
    SPECIAL_EXIT = "SPECIAL_EXIT"
    RESV_DEL_HOLD = "RESV_DEL_HOLD"
    COMPLETED = "COMPLETED"
    CANCELLED = "CANCELLED"
    FAILED = "FAILED"
    TIMEOUT = "TIMEOUT"
    NODE_FAIL = "NODE_FAIL"
    PREEMPTED = "PREEMPTED"
    BOOT_FAIL = "BOOT_FAIL"
    DEADLINE = "DEADLINE"
    OUT_OF_MEMORY = "OUT_OF_MEMORY"
    REVOKED = "REVOKED"
    LAUNCH_FAILED = "LAUNCH_FAILED"
    RECONFIG_FAIL = "RECONFIG_FAIL"
    POWER_UP_NODE = "POWER_UP_NODE"
    UNKNOWN = "UNKNOWN"
    """Not a state of Slurm's: a word this release of ours does not know; it is logged."""

    @property
    def final(self) -> bool:
        """Whether a job in this state has ended."""
        return self in _FINAL

    @property
    def pending(self) -> bool:
        """Whether a job in this state waits for its start."""
        return self in _PENDING


_FINAL = frozenset(
    {
        JobState.COMPLETED,
        JobState.CANCELLED,
        JobState.FAILED,
        JobState.TIMEOUT,
        JobState.NODE_FAIL,
        JobState.PREEMPTED,
        JobState.BOOT_FAIL,
        JobState.DEADLINE,
        JobState.OUT_OF_MEMORY,
        JobState.REVOKED,
        JobState.LAUNCH_FAILED,
    }
)
_PENDING = frozenset(
    {
        JobState.PENDING,
        JobState.REQUEUED,
        JobState.REQUEUE_FED,
        JobState.REQUEUE_HOLD,
        JobState.SPECIAL_EXIT,
        JobState.RESV_DEL_HOLD,
    }
)


@dataclass(frozen=True, slots=True)
class Gres:
    """One kind of generic resource: `gpu`, its type (empty: untyped) and how many."""

    name: str
    type: str
    count: int


@dataclass(frozen=True, slots=True)
class QueuedJob:
    """One row of the queue. Neither names nor comments of users are in it, and no row is forged.

    Where a site does not enforce associations, `account` is whatever text its user gave.
    `tasks` counts array elements that a pending array row stands for. `cpus`, `nodes` and `tres`
    are what is allocated, else what is asked. `tres` is Slurm's TRES (`gres/gpu`, `cpu`, `node`,
    …); memory in it is bytes. Times are aware, UTC; `started_at` is None until it has started.
    A script that ended by a signal has `exit_signal`, and `exit_status` 0. `array_job_id` is 0 for
    a job that is not of an array, and `time_limit_minutes` None where there is no limit.
    """

    job_id: int
    user: str
    uid: int
    account: str
    partitions: tuple[str, ...]
    state: JobState
    reason: str
    cpus: int
    nodes: int
    node_list: str
    submitted_at: datetime | None
    started_at: datetime | None
    ended_at: datetime | None
    time_limit_minutes: int | None
    qos: str = ""
    array_job_id: int = 0
    tasks: int = 1
    exit_status: int = 0
    exit_signal: int = 0
    restarts: int = 0
    tres: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AccountedJob:
    """What accounting knows of one job (sacct(1)), found by its marker or its id."""

    job_id: int
    user: str
    uid: int
    account: str
    partition: str
    state: JobState
    exit_status: int
    exit_signal: int
    submitted_at: datetime | None
    started_at: datetime | None
    ended_at: datetime | None
    node_list: str
    cancelled_by_uid: int | None = None


@dataclass(frozen=True, slots=True)
class Partition:
    """One queue (scontrol(1), show partition). Times in minutes, None: unlimited.

    `state` is Slurm's word: UP, DOWN, DRAIN, INACTIVE.
    """

    name: str
    state: str
    is_default: bool
    hidden: bool
    root_only: bool
    nodes: str
    total_nodes: int
    total_cpus: int
    max_time_minutes: int | None
    default_time_minutes: int | None
    max_nodes: int | None
    min_nodes: int
    max_cpus_per_node: int | None
    max_memory_per_node_mib: int | None
    allow_groups: tuple[str, ...] = ()
    allow_accounts: tuple[str, ...] = ()
    allow_qos: tuple[str, ...] = ()
    preempt_mode: str = ""


@dataclass(frozen=True, slots=True)
class NodeState:
    """A node's base state (`IDLE`, `MIXED`, …) and flags (`DRAIN`, `NOT_RESPONDING`, …)."""

    base: str
    flags: frozenset[str] = frozenset()

    @property
    def installed(self) -> bool:
        """Whether the node's hardware counts at all."""
        return self.base != "FUTURE"

    @property
    def available(self) -> bool:
        """Whether the node serves jobs: neither down, drained nor away."""
        return self.installed and self.base not in _AWAY and not self.flags & _AWAY

    @property
    def startable(self) -> bool:
        """Whether new work can start on it now, as far as its state goes."""
        return self.available and not self.flags & _NOT_NOW and self.base in _SERVING


_AWAY = frozenset(
    {
        "DOWN",
        "DRAIN",
        "FAIL",
        "FUTURE",
        "INVAL",
        "MAINT",
        "MAINTENANCE",
        "NOT_RESPONDING",
        "PERFCTRS",
        "POWERING_DOWN",
        "REBOOT_ISSUED",
        "UNKNOWN",
    }
)
_NOT_NOW = frozenset(
    {"COMPLETING", "POWERED_DOWN", "POWERING_UP", "POWER_DOWN", "REBOOT_REQUESTED", "RESERVED"}
)
_SERVING = frozenset({"IDLE", "MIXED", "ALLOCATED", "PLANNED"})


@dataclass(frozen=True, slots=True)
class Node:
    """One compute node (scontrol(1), show node -d). Memory in MiB, as Slurm has it.

    `gres` is what is installed, `gres_used` what running jobs hold.
    """

    name: str
    state: NodeState
    cpus: int
    cpus_effective: int
    cpus_allocated: int
    sockets: int
    cores_per_socket: int
    threads_per_core: int
    memory_mib: int
    memory_allocated_mib: int
    architecture: str
    operating_system: str
    partitions: tuple[str, ...]
    features: tuple[str, ...]
    gres: tuple[Gres, ...]
    gres_used: tuple[Gres, ...]
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Reservation:
    """One reservation (scontrol(1), show reservation)."""

    name: str
    state: str
    nodes: str
    starts_at: datetime | None
    ends_at: datetime | None
    partition: str
    flags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Controller:
    """One slurmctld and whether it answers (scontrol(1), ping)."""

    role: str
    host: str
    up: bool


@dataclass(frozen=True, slots=True)
class Configuration:
    """What `scontrol show config` says that we use. `values` has all of it, as Slurm spells it."""

    cluster: str
    version: str
    min_job_age_seconds: int
    values: Mapping[str, str] = field(default_factory=dict)


class ClusterReader(Protocol):
    """One cluster, read only. Every method may raise `ClusterUnavailable` and nothing else.

    The bulk methods ask for no field that a user can set (names and comments can hold separators
    and newlines). Who needs a job by its name asks with a filter: `jobs_named`, `accounted`.
    """

    async def configuration(self) -> Configuration:
        """The cluster's name, release and settings."""

    async def partitions(self) -> Sequence[Partition]:
        """All queues, hidden ones too."""

    async def nodes(self) -> Sequence[Node]:
        """All nodes, with what is used on them."""

    async def reservations(self) -> Sequence[Reservation]:
        """All reservations."""

    async def controllers(self) -> Sequence[Controller]:
        """The controllers and whether each answers."""

    async def jobs(self, *, ended: bool = False) -> Sequence[QueuedJob]:
        """The queue of everybody in one query; with `ended`, also what has left it recently."""

    async def jobs_named(self, names: Sequence[str]) -> Mapping[str, Sequence[QueuedJob]]:
        """Jobs in the queue or recently ended by exact name; a name nobody has is absent."""

    async def accounted(
        self, names: Sequence[str], *, since: datetime
    ) -> Mapping[str, Sequence[AccountedJob]]:
        """What accounting knows of jobs with these exact names, submitted since; oldest first."""
