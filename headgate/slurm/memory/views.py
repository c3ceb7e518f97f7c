"""The simulated cluster as a `ClusterReader` shows it: from its jobs and nodes to the model."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

from headgate.slurm.memory.cluster import Cluster, Machine
from headgate.slurm.memory.jobs import Job, Share
from headgate.slurm.memory.site import Queue, Site
from headgate.slurm.model import (
    AccountedJob,
    Configuration,
    Controller,
    Gres,
    JobState,
    Node,
    NodeState,
    Partition,
    QueuedJob,
)

VERSION = "22.05.8-simulated"


def configuration(site: Site) -> Configuration:
    """Name, release and the settings that the simulated cluster has."""
    values = {
        "ClusterName": site.cluster,
        "SLURM_VERSION": VERSION,
        "MinJobAge": f"{site.min_job_age_seconds} sec",
        "KillWait": f"{site.kill_wait_seconds:g} sec",
        "PrivateData": "none",
    }
    return Configuration(site.cluster, VERSION, site.min_job_age_seconds, values)


def controllers() -> Sequence[Controller]:
    """The one controller; it answers, or nobody could ask it."""
    return (Controller("primary", "localhost", up=True),)


def partitions(cluster: Cluster) -> Sequence[Partition]:
    """The queues."""
    return [_partition(cluster, queue) for queue in cluster.site.queues]


def nodes(cluster: Cluster) -> Sequence[Node]:
    """The nodes and what is used on them."""
    shares = [share for job in cluster.running() for share in job.shares]
    return [
        _node(cluster, machine, [share for share in shares if share.node == machine.name])
        for machine in cluster.machines.values()
    ]


def queue(cluster: Cluster, *, ended: bool, now: float) -> Sequence[QueuedJob]:
    """The queue; with `ended`, also the jobs that ended within MinJobAge."""
    oldest = now - cluster.site.min_job_age_seconds
    return [
        _queued(cluster, job)
        for job in sorted(cluster.jobs.values(), key=lambda job: job.id)
        if not job.state.final or (ended and job.ended_at >= oldest)
    ]


def queue_named(
    cluster: Cluster, names: Iterable[str], *, now: float
) -> Mapping[str, Sequence[QueuedJob]]:
    """The queue and what ended within MinJobAge, by name."""
    found: dict[str, list[QueuedJob]] = {name: [] for name in names}
    for job in queue(cluster, ended=True, now=now):
        found.get(cluster.jobs[job.job_id].request.name, []).append(job)
    return {name: jobs for name, jobs in found.items() if jobs}


def accounted(
    cluster: Cluster, names: Iterable[str], *, since: float
) -> Mapping[str, Sequence[AccountedJob]]:
    """All attempts of jobs by name; like Slurm's accounting, none that waits on hold."""
    found: dict[str, list[AccountedJob]] = {name: [] for name in names}
    known = (*cluster.gone, *cluster.jobs.values())
    for job in sorted(known, key=lambda job: (int(job.submitted_at), job.id, job.restarts)):
        on_hold = job.state.pending and job.request.held
        if int(job.submitted_at) >= int(since) and not on_hold:
            found.get(job.request.name, []).append(_accounted(job))
    return {name: jobs for name, jobs in found.items() if jobs}


def tres(cluster: Cluster, job: Job) -> Mapping[str, int]:
    """What a job holds, else what it asks for, as TRES; memory in bytes."""
    request = job.request
    places = range(request.node_count)
    cpus = sum(request.cpus(place) for place in places)
    memory = sum(share.memory_mib for share in job.shares) or request.memory_mib * len(places)
    amounts = {"cpu": cpus, "mem": memory * 1024**2, "node": len(places), "billing": cpus}
    if gpus := sum(request.gpus):
        amounts["gres/gpu"] = gpus
        types = Counter(
            cluster.machines[share.node].gpu_types[index]
            for share in job.shares
            for index in share.gpus
        )
        if request.gpu_type and not types:
            types[request.gpu_type] = gpus
        amounts |= {f"gres/gpu:{kind}": number for kind, number in types.items()}
    return amounts


def node_list(job: Job) -> str:
    """The nodes of a job, one by one, in the order of its allocation."""
    return ",".join(share.node for share in job.shares)


def moment(seconds: float) -> datetime | None:
    """Epoch seconds as the commands give them: whole, UTC; None for 0."""
    return datetime.fromtimestamp(int(seconds), UTC) if seconds else None


def _queued(cluster: Cluster, job: Job) -> QueuedJob:
    amounts = tres(cluster, job)
    request = job.request
    return QueuedJob(
        job_id=job.id,
        user=job.user,
        uid=job.uid,
        account=request.account,
        partitions=(job.partition,) if job.shares else request.partitions,
        state=job.shown,
        reason=job.reason,
        cpus=amounts["cpu"],
        nodes=request.node_count,
        node_list=node_list(job),
        submitted_at=moment(job.submitted_at),
        started_at=moment(job.started_at),
        ended_at=moment(job.ended_at),
        time_limit_minutes=request.time_limit_minutes,
        qos="normal",
        exit_status=(job.status >> 8) & 0xFF,
        exit_signal=job.status & 0x7F,
        restarts=job.restarts,
        tres=amounts,
    )


def _accounted(job: Job) -> AccountedJob:
    # Accounting blames no exit code on a script that others ended.
    status = 0 if job.state in {JobState.CANCELLED, JobState.TIMEOUT} else job.status
    return AccountedJob(
        job_id=job.id,
        user=job.user,
        uid=job.uid,
        account=job.request.account,
        partition=job.partition or job.request.partitions[0],
        state=job.state,
        exit_status=(status >> 8) & 0xFF,
        exit_signal=status & 0x7F,
        submitted_at=moment(job.submitted_at),
        started_at=moment(job.started_at),
        ended_at=moment(job.ended_at),
        node_list=node_list(job),
        cancelled_by_uid=job.cancelled_by_uid,
    )


def _partition(cluster: Cluster, queue: Queue) -> Partition:
    members = cluster.members(queue)
    return Partition(
        name=queue.name,
        state="UP" if queue.up else "DOWN",
        is_default=queue.default,
        hidden=False,
        root_only=False,
        nodes=queue.nodes,
        total_nodes=len(members),
        total_cpus=sum(machine.cpus for machine in members),
        max_time_minutes=queue.max_time_minutes,
        default_time_minutes=queue.default_time_minutes,
        max_nodes=None,
        min_nodes=0,
        max_cpus_per_node=None,
        max_memory_per_node_mib=None,
        preempt_mode="OFF",
    )


def _node(cluster: Cluster, machine: Machine, held: Sequence[Share]) -> Node:
    cpus = sum(share.cpus for share in held)
    used = Counter(machine.gpu_types[index] for share in held for index in share.gpus)
    base = "ALLOCATED" if cpus >= machine.cpus else "MIXED" if held else "IDLE"
    return Node(
        name=machine.name,
        state=NodeState(base, frozenset({"DRAIN"} if machine.drained else ())),
        cpus=machine.cpus,
        cpus_effective=machine.cpus,
        cpus_allocated=cpus,
        sockets=1,
        cores_per_socket=machine.cpus,
        threads_per_core=1,
        memory_mib=machine.memory_mib,
        memory_allocated_mib=sum(share.memory_mib for share in held),
        architecture="x86_64",
        operating_system="Linux",
        partitions=tuple(
            queue.name for queue in cluster.site.queues if machine in cluster.members(queue)
        ),
        features=machine.features,
        gres=tuple(Gres("gpu", kind, count) for kind, count in Counter(machine.gpu_types).items()),
        gres_used=tuple(Gres("gpu", kind, used[kind]) for kind in dict.fromkeys(machine.gpu_types)),
        reason=machine.reason,
    )
