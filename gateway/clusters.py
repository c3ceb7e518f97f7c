"""What each cluster offers, read now and then: enough to refuse what can never run."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import structlog

from gateway.jobs import JobSpec
from gateway.runner.script import Runtime
from gateway.settings import ClusterSettings
from headgate.clock import Clock
from headgate.problems import Fault, Invalid, Unprocessable
from headgate.slurm.model import (
    ClusterReader,
    ClusterUnavailable,
    Node,
    Partition,
    Reservation,
)

log = structlog.get_logger(__name__)

FACTS_SECONDS = 60.0
AGAIN_SECONDS = 2.0
PATIENCE_SECONDS = 2.0
MEBIBYTE = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Queue:
    """A partition as a submitter sees it: what its largest node gives, seconds, bytes."""

    name: str
    is_default: bool
    state: str
    nodes: int
    max_duration: int | None
    cores_per_node: int
    memory_per_node: int
    gpus_per_node: int
    gpu_types: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Maintenance:
    """A reservation for maintenance: jobs that would run into it wait. Times are aware, UTC."""

    name: str
    nodes: str
    starts_at: datetime | None
    ends_at: datetime | None


@dataclass(slots=True)
class Cluster:
    """One configured cluster: how it is read, how jobs run on it, what it offers."""

    settings: ClusterSettings
    reader: ClusterReader
    runtime: Runtime
    queues: tuple[Queue, ...] = ()
    maintenance: tuple[Maintenance, ...] = ()
    read_at: datetime | None = None
    reading: asyncio.Task[None] | None = None
    read_again_at: float = float("-inf")

    @property
    def name(self) -> str:
        """Its name in this gateway."""
        return self.settings.name

    @property
    def runtimes(self) -> tuple[str, ...]:
        """What payloads can run in."""
        return ("none", "udocker") if self.settings.udocker is not None else ("none",)


class Clusters:
    """The configured clusters by name."""

    def __init__(self, clusters: Sequence[Cluster], *, clock: Clock) -> None:
        self._clusters: Mapping[str, Cluster] = {cluster.name: cluster for cluster in clusters}
        self._clock = clock

    def __iter__(self) -> Iterator[Cluster]:
        return iter(self._clusters.values())

    def get(self, name: str) -> Cluster:
        """A cluster that a row names; KeyError is a bug or a cluster that was taken away."""
        return self._clusters[name]

    def files_days(self, name: str) -> float | None:
        """How long files are kept after a job's end; None: nobody removes them."""
        cluster = self._clusters.get(name)
        return None if cluster is None else cluster.settings.files_days

    def choose(self, spec: JobSpec) -> Cluster:
        """The cluster a specification means.

        Raises:
            Invalid: it names none and there are several, or one that is not here.
        """
        names = ", ".join(self._clusters)
        if spec.cluster is None and len(self._clusters) == 1:
            return next(iter(self._clusters.values()))
        if spec.cluster is None:
            raise _invalid("/cluster", f"Name one of the clusters: {names}.", "cluster_needed")
        if spec.cluster not in self._clusters:
            raise _invalid("/cluster", f"There are these clusters: {names}.", "unknown_cluster")
        return self._clusters[spec.cluster]

    async def offers(self, cluster: Cluster) -> tuple[Queue, ...]:
        """Its queues as last read, about a minute ago while it answers; empty: not read yet.

        A cluster that hangs is waited for only a moment, and only while nothing is known of it.
        """
        if cluster.reading is None and self._clock.monotonic() >= cluster.read_again_at:
            cluster.reading = asyncio.create_task(self._read(cluster))
        if cluster.reading is not None and not cluster.queues:
            await asyncio.wait([cluster.reading], timeout=PATIENCE_SECONDS)
        return cluster.queues

    async def close(self) -> None:
        """Read no more."""
        reading = [cluster.reading for cluster in self if cluster.reading is not None]
        for task in reading:
            task.cancel()
        await asyncio.gather(*reading, return_exceptions=True)

    async def _read(self, cluster: Cluster) -> None:
        pause = AGAIN_SECONDS
        try:
            partitions = await cluster.reader.partitions()
            cluster.queues = _queues(partitions, await cluster.reader.nodes())
            cluster.read_at = self._clock.now()
            pause = FACTS_SECONDS
            cluster.maintenance = _maintenance(await cluster.reader.reservations())
        except ClusterUnavailable as error:
            log.warning("cluster_not_read", cluster=cluster.name, error=str(error))
        finally:
            cluster.read_again_at = self._clock.monotonic() + pause
            cluster.reading = None

    async def check(self, cluster: Cluster, spec: JobSpec) -> None:
        """Refuse what this cluster can never run; what is not known is left to Slurm.

        Raises:
            Unprocessable: an unknown queue, or more than its nodes have.
        """
        queues = await self.offers(cluster)
        if not queues:
            return
        wanted = spec.attributes.queue_name or cluster.settings.default_queue
        queue = _find(queues, wanted)
        if queue is None:
            names = ", ".join(queue.name for queue in queues)
            raise _unprocessable(
                "/attributes/queue_name",
                f"There is no queue {wanted or '(default)'}; there are: {names}.",
                "unknown_queue",
            )
        _check_resources(queue, spec)


def _find(queues: Sequence[Queue], wanted: str | None) -> Queue | None:
    matches: Callable[[Queue], bool] = (
        (lambda queue: queue.is_default) if wanted is None else (lambda queue: queue.name == wanted)
    )
    return next(filter(matches, queues), None)


def _check_resources(queue: Queue, spec: JobSpec) -> None:
    resources, duration = spec.resources, spec.attributes.duration
    each, node = resources.processes_per_node, f"a node of the queue {queue.name} has"
    _bound(
        "gpus_per_node",
        (queue.gpus_per_node, resources.gpu_cores_per_process * each),
        ("/resources/gpu_cores_per_process", "too_many_gpus"),
        f"{{asked}} GPUs per node are asked for; {node} {{value}}.",
    )
    _bound(
        "cores_per_node",
        (queue.cores_per_node, resources.cpu_cores_per_process * each),
        ("/resources/cpu_cores_per_process", "too_many_cores"),
        f"{{asked}} cores per node are asked for; {node} {{value}}.",
    )
    _bound(
        "memory_per_node",
        (queue.memory_per_node, resources.memory),
        ("/resources/memory", "too_much_memory"),
        f"{{asked}} bytes of memory per node are asked for; {node} {{value}}.",
    )
    _bound(
        "nodes",
        (queue.nodes, resources.node_count),
        ("/resources/node_count", "too_many_nodes"),
        f"{{asked}} nodes are asked for; the queue {queue.name} has {{value}}.",
    )
    _bound(
        "max_duration",
        (queue.max_duration, duration),
        ("/attributes/duration", "too_long"),
        f"{{asked}} s are asked for; the queue {queue.name} allows {{value}} s.",
    )


def _bound(
    limit: str, numbers: tuple[int | None, int | None], where: tuple[str, str], sentence: str
) -> None:
    """Refuse more than there is; `numbers` are what there is and what is asked for."""
    (value, asked), (pointer, code) = numbers, where
    if value is None or asked is None or asked <= value:
        return
    words = sentence.format(asked=asked, value=value)
    raise Unprocessable(
        words,
        code=code,
        faults=[Fault(pointer, words)],
        members={"limit": {"name": limit, "value": value, "asked": asked}},
    )


def _queues(partitions: Sequence[Partition], nodes: Sequence[Node]) -> tuple[Queue, ...]:
    return tuple(
        _queue(partition, [node for node in nodes if partition.name in node.partitions])
        for partition in partitions
        if not partition.hidden and not partition.root_only
    )


def _queue(partition: Partition, nodes: Sequence[Node]) -> Queue:
    gpus = [[gres for gres in node.gres if gres.name == "gpu"] for node in nodes]
    minutes = partition.max_time_minutes
    cores = max((node.cpus for node in nodes), default=0)
    memory = max((node.memory_mib for node in nodes), default=0)
    return Queue(
        name=partition.name,
        is_default=partition.is_default,
        state=partition.state,
        nodes=min(len(nodes), partition.max_nodes or len(nodes)),
        max_duration=None if minutes is None else minutes * 60,
        cores_per_node=min(cores, partition.max_cpus_per_node or cores),
        memory_per_node=min(memory, partition.max_memory_per_node_mib or memory) * MEBIBYTE,
        gpus_per_node=max((sum(gres.count for gres in node) for node in gpus), default=0),
        gpu_types=tuple(sorted({gres.type for node in gpus for gres in node if gres.type})),
    )


def _maintenance(reservations: Sequence[Reservation]) -> tuple[Maintenance, ...]:
    return tuple(
        Maintenance(found.name, found.nodes, found.starts_at, found.ends_at)
        for found in reservations
        if "MAINT" in found.flags
    )


def _unprocessable(pointer: str, sentence: str, code: str) -> Unprocessable:
    return Unprocessable(sentence, code=code, faults=[Fault(pointer, sentence)])


def _invalid(pointer: str, sentence: str, code: str) -> Invalid:
    return Invalid(sentence, code=code, faults=[Fault(pointer, sentence)])
