"""Failures in words that a user understands, and of the kind that they are."""

from datetime import UTC, datetime
from typing import Any

import pytest

from gateway.clusters import Cluster, Clusters, Queue
from gateway.jobs import Container, FailureKind, JobFiles, JobSpec, Resources, State
from gateway.observation import duration_in_words
from gateway.runner.plain import PlainRuntime
from gateway.runner.udocker import UdockerRuntime, UdockerSettings
from gateway.sessions.local import LocalSettings
from gateway.sessions.session import SessionUnavailable
from gateway.settings import ClusterSettings
from gateway.v1.documents import cluster_document
from headgate.clock import HeldClock
from headgate.problems import Unprocessable
from headgate.slurm.model import Gres, JobState, Node, NodeState, Partition, Reservation
from tests.unit.gateway.recovery_world import SETTLE, World, kind

IMAGE = JobSpec(executable="id", container=Container("group/tool:1"))


@pytest.mark.parametrize("status", [{"exit_status": 1}, {"exit_signal": 15}])
@pytest.mark.parametrize("exit_file", [None, 1, 143])
async def test_a_time_limit_shows_no_exit_code(
    world: World, status: dict[str, int], exit_file: int | None
):
    """What a payload is cut off with is no answer of the payload's."""
    job = await world.queued(1)
    world.remember(job, JobState.TIMEOUT, **status)
    world.session(files=JobFiles(attempt=1, claim="1 n1", exit=exit_file))
    await world.look()
    await world.look(after=SETTLE + 1)
    found = await world.shown(job)
    assert (found.state, kind(found)) == (State.FAILED, FailureKind.TIME_LIMIT)
    assert found.exit_code is None


async def test_a_job_that_slurm_calls_completed_ends_as_it_wrote_down(world: World):
    """Another start's good end under the same id does not hide that this one failed."""
    job = await world.queued(1)
    world.row(job, JobState.COMPLETED)
    world.session(files=JobFiles(attempt=1, claim="1 n1", exit=7))
    await world.look()
    found = await world.shown(job)
    assert (found.state, kind(found), found.exit_code) == (State.FAILED, FailureKind.PAYLOAD, 7)


async def test_a_completed_job_that_has_not_written_its_end_is_waited_for(world: World):
    """It may still run, or its files may not be seen yet; after a while Slurm's word counts."""
    job = await world.queued(1)
    world.row(job, JobState.COMPLETED)
    session = world.session(files=JobFiles(attempt=1, claim="1 n1"))
    await world.look()
    assert not (await world.shown(job)).state.final
    session.answers["files"] = JobFiles(attempt=1, claim="1 n1", exit=0)
    await world.look(after=1)
    assert (await world.shown(job)).state is State.COMPLETED


async def test_a_completed_job_that_never_started_may_be_sent_again(world: World):
    """Slurm's good end of a script that has not claimed its row is somebody else's."""
    job = await world.queued(1)
    world.row(job, JobState.COMPLETED)
    world.session(files=JobFiles(attempt=1))
    await world.look()
    await world.look(after=SETTLE + 1)
    found = await world.shown(job)
    assert (found.state, kind(found)) == (State.FAILED, FailureKind.NODE)


@pytest.mark.parametrize("answer", [None, SessionUnavailable("no session is open")])
async def test_without_its_files_a_completed_job_is_completed(world: World, answer: Any):
    """A directory that is gone, or a login node that is away, keeps no good end waiting."""
    job = await world.queued(1)
    world.row(job, JobState.COMPLETED)
    world.session(files=answer)
    await world.look()
    assert (await world.shown(job)).state is State.COMPLETED


@pytest.mark.parametrize(
    ("words", "retry", "verdict"),
    [
        ("Error: pulling manifest:\nregistry: 404", False, "does not exist"),
        ("Error: manifest not found or not authorized\nregistry: 401", False, "not public"),
        ("Error: manifest not found or not authorized", False, "not public"),
        ("Error: in download: %s curl: (7) Failed to connect", True, "does not answer"),
        ("Error: pulling manifest:\nregistry: 000", True, "does not answer"),
        ("Error: pulling manifest:\nregistry: 503", True, "does not answer"),
        ("Error: create container: No space left on device", True, "not be made ready"),
    ],
)
async def test_an_image_that_cannot_be_had_is_named(
    world: World, words: str, *, retry: bool, verdict: str
):
    """Whether another try can help depends on whether the registry said no or nothing."""
    job = await world.queued(1, spec=IMAGE)
    world.row(job, JobState.FAILED, exit_status=1)
    world.session(files=JobFiles(attempt=1, claim="1 n1", failure=f"image\n{words}\n"))
    await world.look()
    found = await world.shown(job)
    assert found.failure is not None
    assert (found.failure.kind, found.failure.retry) == (FailureKind.IMAGE, retry)
    assert "group/tool:1" in found.failure.detail
    assert verdict in found.failure.detail
    assert found.exit_code is None


@pytest.mark.parametrize(
    ("registry", "image", "url"),
    [
        ("", "busybox", "https://registry-1.docker.io/v2/library/busybox/manifests/latest"),
        ("", "a/b:2", "https://registry-1.docker.io/v2/a/b/manifests/2"),
        ("", "quay.io/a/b:2", "https://quay.io/v2/a/b/manifests/2"),
        ("http://reg:5000/", "a/b", "http://reg:5000/v2/a/b/manifests/latest"),
        ("", "a/b@sha256:0", "https://registry-1.docker.io/v2/a/b/manifests/sha256:0"),
    ],
)
def test_the_registry_is_asked_for_the_image_itself(registry: str, image: str, url: str):
    """After a failed pull the script asks the registry once more, and writes its status down."""
    spec = JobSpec(executable="id", container=Container(image))
    lines = UdockerRuntime(UdockerSettings(registry=registry)).prepare(spec)
    assert f" {url} " in lines


class TwoNodes:
    """A cluster of two nodes: 8 cores, 2 GPUs, 4 GiB; the queue gives 3 GiB."""

    async def partitions(self) -> list[Partition]:
        """One."""
        return [
            Partition(
                name="main",
                state="UP",
                is_default=True,
                hidden=False,
                root_only=False,
                nodes="n[1-2]",
                total_nodes=2,
                total_cpus=16,
                max_time_minutes=60,
                default_time_minutes=None,
                max_nodes=None,
                min_nodes=1,
                max_cpus_per_node=6,
                max_memory_per_node_mib=3072,
            )
        ]

    async def nodes(self) -> list[Node]:
        """Two."""
        return [
            Node(
                name=name,
                state=NodeState("IDLE"),
                cpus=8,
                cpus_effective=8,
                cpus_allocated=0,
                sockets=1,
                cores_per_socket=8,
                threads_per_core=1,
                memory_mib=4096,
                memory_allocated_mib=0,
                architecture="",
                operating_system="",
                partitions=("main",),
                features=(),
                gres=(Gres("gpu", "", 2),),
                gres_used=(),
            )
            for name in ("n1", "n2")
        ]

    async def reservations(self) -> list[Reservation]:
        """One for maintenance, one of a group's."""
        begin, end = datetime(2026, 12, 1, 8, tzinfo=UTC), datetime(2026, 12, 1, 18, tzinfo=UTC)
        return [
            Reservation("winter", "INACTIVE", "n[1-2]", begin, end, "", ("MAINT", "ALL_NODES")),
            Reservation("course", "INACTIVE", "n1", begin, end, "", ()),
        ]


@pytest.mark.parametrize(
    ("resources", "code", "limit"),
    [
        (
            {"memory": 3 * 1024**3 + 1},
            "too_much_memory",
            {"name": "memory_per_node", "value": 3 * 1024**3, "asked": 3 * 1024**3 + 1},
        ),
        (
            {"cpu_cores_per_process": 7},
            "too_many_cores",
            {"name": "cores_per_node", "value": 6, "asked": 7},
        ),
        (
            {"gpu_cores_per_process": 3},
            "too_many_gpus",
            {"name": "gpus_per_node", "value": 2, "asked": 3},
        ),
        ({"node_count": 3}, "too_many_nodes", {"name": "nodes", "value": 2, "asked": 3}),
    ],
)
async def test_what_no_node_has_is_refused_with_limit_value_and_request(
    resources: dict[str, int], code: str, limit: dict[str, Any]
):
    """422 names the limit, its value and what was asked for."""
    settings = ClusterSettings(name="c", realm="r", local=LocalSettings(path="/nowhere"))
    reader: Any = TwoNodes()
    cluster = Cluster(settings=settings, reader=reader, runtime=PlainRuntime())
    clusters = Clusters([cluster], clock=HeldClock())
    with pytest.raises(Unprocessable) as caught:
        await clusters.check(cluster, JobSpec(executable="id", resources=Resources(**resources)))
    assert caught.value.code == code
    assert caught.value.members == {"limit": limit}
    await clusters.close()


async def test_planned_maintenance_is_shown():
    """Whose job would run into it knows why it waits; other reservations are nobody's business."""
    settings = ClusterSettings(name="c", realm="r", local=LocalSettings(path="/nowhere"))
    reader: Any = TwoNodes()
    cluster = Cluster(settings=settings, reader=reader, runtime=PlainRuntime())
    clusters = Clusters([cluster], clock=HeldClock())
    shown = cluster_document(cluster, await clusters.offers(cluster))
    assert shown["maintenance"] == [
        {
            "name": "winter",
            "nodes": "n[1-2]",
            "starts_at": "2026-12-01T08:00:00Z",
            "ends_at": "2026-12-01T18:00:00Z",
        }
    ]
    assert shown["queues"][0]["memory_per_node"] == 3 * 1024**3
    assert shown["read_at"]
    await clusters.close()


async def test_a_job_that_asks_for_too_much_time_reads_how_much(world: World):
    """While it waits in Slurm: the queue's limit and the request, in words."""
    queue = Queue(
        name="main",
        is_default=True,
        state="UP",
        nodes=2,
        max_duration=7200,
        cores_per_node=1,
        memory_per_node=1,
        gpus_per_node=0,
        gpu_types=(),
    )
    job = await world.queued(1)
    world.row(job, JobState.PENDING, reason="PartitionTimeLimit", time_limit_minutes=180)
    await world.look()
    assert (await world.shown(job)).status_message == "asks for more time than its queue allows"
    world.cluster.queues = (queue,)
    await world.look()
    words = "its queue main allows 2 h and the job asks for 3 h"
    assert (await world.shown(job)).status_message == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(30, "30 s"), (60, "1 min"), (90, "1 min 30 s"), (7200, "2 h"), (90000, "1 d 1 h")],
)
def test_durations_are_read_by_people(seconds: int, words: str):
    """The two largest units that matter."""
    assert duration_in_words(seconds) == words
