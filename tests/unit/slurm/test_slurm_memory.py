"""The simulated cluster's own decisions: what is asked, who fits where, what is remembered."""

from pathlib import Path

import msgspec
import pytest

from headgate.settings import SettingsError
from headgate.slurm.memory import site, views
from headgate.slurm.memory.cluster import Cluster
from headgate.slurm.memory.jobs import Drain, Job, Share
from headgate.slurm.memory.journal import Journal, Line
from headgate.slurm.memory.launching import check_script
from headgate.slurm.memory.patterns import expand_pattern
from headgate.slurm.memory.protocol import Refused
from headgate.slurm.memory.requests import request
from headgate.slurm.memory.site import Gpus, NodeKind, Queue, Site
from headgate.slurm.model import JobState

MIXED = Site(
    nodes=(
        NodeKind(
            names="n[1-2]",
            cpus=8,
            memory_mib=4000,
            gpus=(Gpus(type="tesla", count=2), Gpus(type="a100", count=2)),
        ),
        NodeKind(names="n3", cpus=4, memory_mib=1000),
    ),
    queues=(
        Queue(name="main", nodes="n[1-2]", default=True, max_time_minutes=60),
        Queue(name="all", nodes="n[1-3]", default_time_minutes=5),
        Queue(name="closed", nodes="n3", up=False),
    ),
    accounts=("", "physics"),
)


def asked(number: int, **options: str) -> Job:
    """A job that waits, with sbatch's options (underscores for dashes)."""
    named = {key.replace("_", "-"): value for key, value in options.items()}
    return Job(
        id=number,
        user="u",
        uid=1,
        request=request(named, "/home/u", MIXED),
        partition="main",
        state=JobState.PENDING,
        reason="",
        submitted_at=float(number),
    )


def with_jobs(*jobs: Job) -> Cluster:
    """A cluster that knows these jobs."""
    return Cluster(MIXED, jobs={job.id: job for job in jobs})


def test_a_request_has_the_sites_defaults():
    """Queue, time limit, output and resources of a bare sbatch."""
    found = asked(1).request
    assert (found.partitions, found.time_limit_minutes, found.node_count) == (("main",), 60, 1)
    assert (found.tasks, found.cpus(0), found.gpus, found.requeue) == (1, 1, (0,), True)
    assert (found.output, found.error) == ("/home/u/slurm-%j.out", "/home/u/slurm-%j.out")


def test_a_request_is_what_its_options_say():
    """Relative paths, nodes from tasks, memory and GPUs per node and in all."""
    found = asked(
        1,
        chdir="job",
        output="o/%j",
        error="/e",
        ntasks="6",
        ntasks_per_node="3",
        cpus_per_task="2",
        mem="1G",
        gpus="a100:3",
        time="1:30:00",
        partition="all",
        account="physics",
    ).request
    assert (found.directory, found.output, found.error) == (
        "/home/u/job",
        "/home/u/job/o/%j",
        "/e",
    )
    assert (found.node_count, found.cpus(0), found.memory_mib) == (2, 6, 1024)
    assert (found.gpus, found.gpu_type, found.time_limit_minutes) == ((2, 1), "a100", 90)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"partition": "all,nope"}, "invalid partition specified: nope"),
        ({"account": "chemistry"}, "Invalid account or account/partition"),
        ({"ntasks": "0"}, 'Invalid numeric value "0" for --ntasks.'),
        ({"cpus_per_task": "x"}, 'Invalid numeric value "x" for --cpus-per-task.'),
        ({"gpus": "a:b:c"}, "Invalid generic resource"),
        ({"gres": "gpu:-1"}, "Invalid generic resource"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(options: dict[str, str], words: str):
    """Refusals come in Slurm's words."""
    with pytest.raises(Refused, match=words):
        asked(1, **options)


def test_scripts_that_are_none_are_refused():
    """Empty, without interpreter, with line ends of DOS."""
    for script in ("", "echo hi", "#!/bin/sh\r\n"):
        with pytest.raises(Refused):
            check_script(script)
    check_script("#!/bin/sh\n")


def test_jobs_are_placed_on_what_is_free():
    """GPUs of the right type by their indexes, memory and CPUs within what a node has."""
    cluster = with_jobs(
        asked(1, gres="gpu:a100:2"), asked(2, gres="gpu:3"), asked(3, mem="3000"), asked(4, mem="0")
    )
    starts, waits = cluster.startable()
    assert [(job.id, shares) for job, _, shares in starts] == [
        (1, (Share("n1", 1, 0, (2, 3)),)),
        (2, (Share("n2", 1, 0, (0, 1, 2)),)),
        (3, (Share("n1", 1, 3000, ()),)),
        (4, (Share("n2", 1, 4000, ()),)),
    ]
    assert waits == {}


def test_who_waits_for_resources_lets_none_of_his_queue_pass():
    """First come, first served within a queue; other queues go on; each says why it waits."""
    cluster = with_jobs(
        asked(1, gres="gpu:4"),
        asked(2, gres="gpu:4", nodes="2"),
        asked(3),
        asked(4, partition="all"),
        asked(5, hold=""),
        asked(6, time="120"),
        asked(7, partition="closed"),
    )
    starts, waits = cluster.startable()
    assert [(job.id, queue) for job, queue, _ in starts] == [(1, "main"), (4, "all")]
    assert waits == {
        2: "Resources",
        3: "Priority",
        5: "JobHeldUser",
        6: "PartitionTimeLimit",
        7: "PartitionDown",
    }


def test_drained_nodes_take_no_new_work():
    """With too few nodes in service a job waits for them; what could never run is not possible."""
    cluster = with_jobs(asked(1, nodes="2"))
    cluster.machines["n2"].drained = True
    starts, waits = cluster.startable()
    assert starts == []
    assert waits[1].startswith("Nodes required for job are DOWN, DRAINED")
    assert cluster.possible(asked(1, nodes="2").request)
    assert not cluster.possible(asked(1, nodes="3").request)
    assert not cluster.possible(asked(1, cpus_per_task="9").request)


def test_the_journal_survives_a_torn_line(tmp_path: Path):
    """What was acknowledged comes back; a line that was cut by a crash never was."""
    path = tmp_path / "journal"
    journal = Journal(path)
    lines = (Line(job=asked(1)), Line(drain=Drain("n1", drained=True, reason="x")))
    for line in lines:
        journal.append(line)
    journal.close()
    assert path.stat().st_mode & 0o777 == 0o600
    with path.open("ab") as file:
        file.write(b'{"job":{"id":7,')
    again = Journal(path)
    assert again.lines == lines
    again.append(Line(job=asked(2)))
    again.close()
    assert [line.job.id for line in Journal(path).lines if line.job] == [1, 2]


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/o/%j-%x.%%", "/o/7-train.%"),
        ("/o/%5j", "/o/00007"),
        ("/o/%q", "/o/%q"),
        ("/o/\\%j", "/o/%j"),
    ],
)
def test_file_patterns_are_filled_in(path: str, name: str):
    """The patterns of sbatch's output files."""
    assert expand_pattern(path, {"j": 7, "x": "train"}) == name


def test_a_site_is_read_from_its_file(tmp_path: Path):
    """TOML and JSON say the same; a key that nobody knows is an error with its place."""
    written = tmp_path / "site.json"
    site.write(MIXED, written)
    assert site.read(written) == MIXED
    toml = tmp_path / "site.toml"
    toml.write_text(
        'cluster = "c"\n[[nodes]]\nnames = "a"\ncpus = 1\nmemory_mib = 10\n'
        '[[queues]]\nname = "q"\nnodes = "a"\n'
    )
    assert site.read(toml).cluster == "c"
    toml.write_text("colour = 1\n")
    with pytest.raises(SettingsError, match=r"site\.toml"):
        site.read(toml)
    written.write_text("{")
    with pytest.raises(SettingsError, match=r"site\.json"):
        site.read(written)


def test_accounting_tells_of_each_attempt():
    """An attempt that a node's failure ended stays beside the one that goes on; no hold is told."""
    job = asked(1, job_name="hg-1")
    cluster = with_jobs(
        msgspec.structs.replace(job, restarts=1), asked(2, job_name="hg-2", hold="")
    )
    cluster.gone.append(msgspec.structs.replace(job, state=JobState.NODE_FAIL, ended_at=3.0))
    found = views.accounted(cluster, ["hg-1", "hg-2"], since=0.0)
    assert [row.state for row in found["hg-1"]] == [JobState.NODE_FAIL, JobState.PENDING]
    assert "hg-2" not in found


def test_ended_jobs_leave_the_queue():
    """After MinJobAge an ended job is accounting's alone."""
    job = msgspec.structs.replace(asked(1, job_name="hg-1"), state=JobState.FAILED, ended_at=100.0)
    cluster = with_jobs(job)
    assert [row.job_id for row in views.queue(cluster, ended=True, now=399.0)] == [1]
    assert views.queue(cluster, ended=False, now=100.0) == []
    assert views.queue_named(cluster, ["hg-1"], now=500.0) == {}
    assert "hg-1" in views.accounted(cluster, ["hg-1"], since=0.0)
