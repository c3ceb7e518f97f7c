"""The simulated cluster's state and its decisions: who fits where, who starts next. No input."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from headgate.slurm.memory.jobs import Job, Request, Share
from headgate.slurm.memory.site import Queue, Site
from headgate.slurm.model import JobState
from headgate.slurm.parse import expand


@dataclass(slots=True)
class Machine:
    """One node: what it has, and whether an operator took it out of service."""

    name: str
    cpus: int
    memory_mib: int
    gpu_types: tuple[str, ...]
    """The type of each GPU, by its index."""
    features: tuple[str, ...]
    drained: bool = False
    reason: str = ""


@dataclass(slots=True)
class Cluster:
    """All nodes and jobs. Methods decide and change nothing but what they say."""

    site: Site
    machines: dict[str, Machine] = field(default_factory=dict)
    jobs: dict[int, Job] = field(default_factory=dict)
    gone: list[Job] = field(default_factory=list)
    last_id: int = 0

    def __post_init__(self) -> None:
        """Set up the nodes."""
        for kind in self.site.nodes:
            types = tuple(gpus.type for gpus in kind.gpus for _ in range(gpus.count))
            for name in expand(kind.names):
                self.machines[name] = Machine(
                    name, kind.cpus, kind.memory_mib, types, kind.features
                )

    def queue(self, name: str) -> Queue:
        """A queue by its name, which is known to exist."""
        return next(queue for queue in self.site.queues if queue.name == name)

    def members(self, queue: Queue) -> list[Machine]:
        """The nodes of a queue."""
        return [self.machines[name] for name in expand(queue.nodes)]

    def running(self) -> Iterator[Job]:
        """The jobs that hold something."""
        return (job for job in self.jobs.values() if job.shares and not job.state.final)

    def possible(self, request: Request) -> bool:
        """Whether an empty cluster could run this, drained nodes included, as Slurm counts."""
        return any(
            self._fit(request, self.members(self.queue(name)), ()) is not None
            for name in request.partitions
        )

    def startable(self) -> tuple[list[tuple[Job, str, tuple[Share, ...]]], dict[int, str]]:
        """What can start now, first come first served in each queue; and why the others wait.

        A job that must wait for resources lets none behind it in its queue pass.
        """
        starts: list[tuple[Job, str, tuple[Share, ...]]] = []
        waits: dict[int, str] = {}
        taken = [share for job in self.running() for share in job.shares]
        blocked: set[str] = set()
        for job in sorted(self.jobs.values(), key=lambda job: job.id):
            if job.state is not JobState.PENDING or job.ending:
                continue
            waits[job.id] = reason = self._wait(job.request)
            if reason:
                continue
            for name in job.request.partitions:
                free = [node for node in self.members(self.queue(name)) if not node.drained]
                shares = None if name in blocked else self._fit(job.request, free, taken)
                if shares is not None:
                    starts.append((job, name, shares))
                    taken.extend(shares)
                    del waits[job.id]
                    break
                waits[job.id] = waits[job.id] or self._shortage(name, job.request, blocked)
            else:
                blocked.update(job.request.partitions)
        return starts, waits

    def _shortage(self, name: str, request: Request, blocked: set[str]) -> str:
        if name in blocked:
            return "Priority"
        free = [node for node in self.members(self.queue(name)) if not node.drained]
        if self._fit(request, free, ()) is None:
            return (
                "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher "
                "priority partitions"
            )
        return "Resources"

    def _wait(self, request: Request) -> str:
        """Why a job waits whatever is free; empty if it does not."""
        if request.held:
            return "JobHeldUser"
        queues = [self.queue(name) for name in request.partitions]
        if not any(queue.up for queue in queues):
            return "PartitionDown"
        limit = request.time_limit_minutes
        if all(
            queue.max_time_minutes is not None and (limit is None or limit > queue.max_time_minutes)
            for queue in queues
        ):
            return "PartitionTimeLimit"
        return ""

    def _fit(
        self, request: Request, machines: Sequence[Machine], taken: Sequence[Share]
    ) -> tuple[Share, ...] | None:
        """Shares of the first nodes that have room, one for each asked; None without enough."""
        shares: list[Share] = []
        for machine in machines:
            if len(shares) == request.node_count:
                break
            held = [share for share in taken if share.node == machine.name]
            if share := _share(request, len(shares), machine, held):
                shares.append(share)
        return tuple(shares) if len(shares) == request.node_count else None


def _share(request: Request, place: int, machine: Machine, held: Sequence[Share]) -> Share | None:
    """What a job would hold on a node, given what others hold; None if that is too much."""
    cpus = request.cpus(place)
    memory = machine.memory_mib if request.whole_memory else request.memory_mib
    used = {index for share in held for index in share.gpus}
    free = [
        index
        for index, kind in enumerate(machine.gpu_types)
        if index not in used and request.gpu_type in {"", kind}
    ]
    wanted = request.gpus[place]
    if (
        cpus > machine.cpus - sum(share.cpus for share in held)
        or memory > machine.memory_mib - sum(share.memory_mib for share in held)
        or wanted > len(free)
    ):
        return None
    return Share(machine.name, cpus, memory, tuple(free[:wanted]))
