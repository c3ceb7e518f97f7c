"""A job of the simulated cluster: what was asked, what was given, how it goes; frozen values."""

import msgspec

from headgate.slurm.model import JobState


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What a submission asks for, understood and checked for form. Memory in MiB per node.

    `cpus`, `gpus` are per node of `node_count`; `gpu_type` empty means any type. `held` waits for
    a release. Paths are absolute; `output` and `error` still hold their `%` patterns.
    """

    name: str
    partitions: tuple[str, ...]
    account: str
    time_limit_minutes: int | None
    node_count: int
    tasks: int
    tasks_per_node: int
    cpus_per_task: int
    memory_mib: int
    whole_memory: bool
    gpus: tuple[int, ...]
    gpu_type: str
    output: str
    error: str
    directory: str
    requeue: bool
    comment: str
    held: bool

    def cpus(self, place: int) -> int:
        """CPUs on the node at that place of the allocation: tasks are spread evenly."""
        least, more = divmod(self.tasks, self.node_count)
        return max(1, least + (place < more)) * self.cpus_per_task


class Share(msgspec.Struct, frozen=True):
    """What a job holds on one node: CPUs, memory in MiB, the indexes of its GPUs."""

    node: str
    cpus: int
    memory_mib: int
    gpus: tuple[int, ...]


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One job. Times are epoch seconds, 0: not yet. `ending` is how it will have ended.

    `status` is the raw wait status of the script (wait(2)), `attempt` counts its starts.
    """

    id: int
    user: str
    uid: int
    request: Request
    partition: str
    state: JobState
    reason: str
    submitted_at: float
    started_at: float = 0.0
    ended_at: float = 0.0
    shares: tuple[Share, ...] = ()
    ending: JobState | None = None
    cancelled_by_uid: int | None = None
    status: int = 0
    restarts: int = 0

    @property
    def shown(self) -> JobState:
        """The state that others see: what is being ended is COMPLETING until it has."""
        return JobState.COMPLETING if self.ending and not self.state.final else self.state


class Drain(msgspec.Struct, frozen=True):
    """That an operator took a node out of service, and why."""

    node: str
    drained: bool
    reason: str
