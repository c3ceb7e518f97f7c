"""What every `ClusterReader` promises, on the simulated cluster and on real Slurm."""

import asyncio
import signal
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

from headgate.slurm.model import ClusterUnavailable, JobState
from tests.contract.slurm_subjects import (
    GPUS,
    HOLD,
    NODES,
    Real,
    Subject,
    eventually,
    hour_ago,
    job,
    marker,
    reached,
    submit,
)


@pytest.fixture(autouse=True)
async def emptied(cluster: Subject) -> AsyncIterator[None]:
    """No test finds the jobs of another."""
    yield
    await cluster.command("scancel", f"--user={cluster.user}")
    await eventually(lambda: _empty(cluster))


async def _empty(subject: Subject) -> bool:
    return not await subject.reader.jobs()


async def test_a_running_job_shows_who_runs_it_where_and_on_what(cluster: Subject):
    """A running job has its user, queue, node, start and GPUs by number and by type."""
    before = datetime.now(UTC) - timedelta(seconds=2)
    number = await submit(cluster, "--gres=gpu:tesla:1", "--cpus-per-task=2", "--time=30")
    row = await reached(cluster, number, JobState.RUNNING)
    assert (row.user, row.uid, row.partitions) == (cluster.user, cluster.uid, (cluster.queue,))
    assert row.node_list in {"n1", "n2"}
    assert (row.nodes, row.cpus, row.time_limit_minutes, row.tasks) == (1, 2, 30, 1)
    assert (row.tres["gres/gpu"], row.tres["gres/gpu:tesla"], row.tres["mem"]) == (1, 1, 100 << 20)
    assert row.submitted_at is not None
    assert row.started_at is not None
    assert before <= row.submitted_at <= row.started_at <= datetime.now(UTC)
    assert row.ended_at is None


async def test_used_gpus_are_counted_on_their_nodes(cluster: Subject):
    """What jobs hold on a node is what they were given, and is given back."""
    number = await submit(cluster, "--gres=gpu:3")
    row = await reached(cluster, number, JobState.RUNNING)
    nodes = {node.name: node for node in await cluster.reader.nodes()}
    used = {name: sum(gres.count for gres in node.gres_used) for name, node in nodes.items()}
    total = {name: sum(gres.count for gres in node.gres) for name, node in nodes.items()}
    assert total == {"n1": GPUS, "n2": GPUS}
    assert used.pop(row.node_list) == 3
    assert set(used.values()) == {0}
    assert nodes[row.node_list].cpus_allocated == 1
    assert nodes[row.node_list].memory_allocated_mib == 100
    assert nodes[row.node_list].state.base == "MIXED"
    await cluster.command("scancel", str(number))
    await reached(cluster, number, JobState.CANCELLED)

    async def given_back() -> bool:
        nodes = await cluster.reader.nodes()
        return not sum(gres.count for node in nodes for gres in node.gres_used)

    await eventually(given_back)


async def test_jobs_share_no_gpu(cluster: Subject):
    """CUDA_VISIBLE_DEVICES of the jobs on a node names as many GPUs as asked for, each once."""
    show = '#!/bin/sh\necho "$SLURMD_NODENAME $CUDA_VISIBLE_DEVICES"\nexec sleep 600\n'
    numbers = [
        await submit(cluster, "--gres=gpu:2", f"--output={cluster.folder}/gpus-%j", script=show)
        for _ in range(2 * NODES)
    ]
    seen: list[tuple[str, str]] = []
    for number in numbers:
        await reached(cluster, number, JobState.RUNNING)
        argv = ("sh", "-c", f"until grep . {cluster.folder}/gpus-{number}; do sleep 0.1; done")
        node, _, cards = (await cluster.command(*argv)).stdout.decode().strip().partition(" ")
        seen += [(node, card) for card in cards.split(",")]
    assert sorted(seen) == [(f"n{node}", str(card)) for node in (1, 2) for card in range(GPUS)]


async def test_exit_codes_and_signals_are_told_apart(cluster: Subject):
    """A script's exit code and the signal that ended it are what the queue and accounting say."""
    names = [marker() for _ in range(3)]
    scripts = ("true", "exit 3", "kill -9 $$")
    wanted = [(JobState.COMPLETED, 0, 0), (JobState.FAILED, 3, 0), (JobState.FAILED, 0, 9)]
    for name, line, expected in zip(names, scripts, wanted, strict=True):
        number = await submit(cluster, script=f"#!/bin/sh\n{line}\n", name=name)
        row = await reached(cluster, number, expected[0])
        assert (row.state, row.exit_status, row.exit_signal) == expected
        assert row.started_at is not None
        assert row.ended_at is not None
        assert row.started_at <= row.ended_at

    async def accounted() -> bool:
        found = await cluster.reader.accounted(names, since=hour_ago())
        rows = [found[name][0] for name in names if name in found]
        return [(row.state, row.exit_status, row.exit_signal) for row in rows] == wanted

    await eventually(accounted)


async def test_a_cancelled_job_is_cancelled_by_somebody(cluster: Subject):
    """A job cancelled while it ran or while it was held is CANCELLED, in accounting by whom."""
    running, held = marker(), marker()
    first = await submit(cluster, name=running)
    second = await submit(cluster, "--hold", name=held)
    await reached(cluster, first, JobState.RUNNING)
    waiting = await reached(cluster, second, JobState.PENDING)
    assert (waiting.reason, waiting.node_list, waiting.started_at) == ("JobHeldUser", "", None)
    await cluster.command("scancel", f"--name={running}", str(first))
    await cluster.command("scancel", str(second))
    ended = await reached(cluster, first, JobState.CANCELLED)
    never = await reached(cluster, second, JobState.CANCELLED)
    assert ended.started_at is not None
    assert never.started_at is None
    assert never.ended_at is not None

    async def accounted() -> bool:
        found = await cluster.reader.accounted([running, held], since=hour_ago())
        rows = [row for name in (running, held) for row in found.get(name, ())]
        told = [(row.job_id, row.state, row.cancelled_by_uid) for row in rows]
        return told == [
            (first, JobState.CANCELLED, cluster.uid),
            (second, JobState.CANCELLED, cluster.uid),
        ] and [row.started_at is None for row in rows] == [False, True]

    await eventually(accounted)


async def test_what_is_too_much_now_waits_for_its_turn(cluster: Subject):
    """A job for which there are not enough GPUs waits, says so, and starts when there are."""
    both = await submit(cluster, "--nodes=2", f"--gres=gpu:{GPUS}")
    row = await reached(cluster, both, JobState.RUNNING)
    assert (row.nodes, row.tres["gres/gpu"]) == (2, 2 * GPUS)
    late = await submit(cluster, "--gres=gpu:1")

    async def says_why() -> bool:
        return (await job(cluster, late)).reason == "Resources"

    await eventually(says_why)
    await cluster.command("scancel", str(both))
    await reached(cluster, late, JobState.RUNNING)


@pytest.mark.parametrize(
    "cluster",
    ["simulated", pytest.param("real", marks=[pytest.mark.site, pytest.mark.long])],
    indirect=True,
)
async def test_the_time_limit_ends_a_job(cluster: Subject):
    """A job over its limit is TIMEOUT, also if it ignores SIGTERM."""
    stubborn = '#!/bin/sh\ntrap "" TERM\nwhile :; do sleep 1; done\n'
    number = await submit(cluster, "--time=1", script=stubborn)
    row = await reached(cluster, number, JobState.TIMEOUT)
    assert row.time_limit_minutes == 1
    assert row.ended_at is not None


async def test_a_drained_node_is_not_available(cluster: Subject):
    """Draining shows with its reason; nothing new starts there, what runs goes on."""
    number = await submit(cluster, "--nodes=2")
    await reached(cluster, number, JobState.RUNNING)
    reason = "bad disk: x=1 [y]"
    drain = ("update", "nodename=n2", "state=drain", f"reason={reason}")
    (await cluster.command("scontrol", *drain, operator=True)).checked()
    try:
        nodes = {node.name: node for node in await cluster.reader.nodes()}
        assert nodes["n1"].state.available
        assert nodes["n1"].state.startable
        assert nodes["n2"].reason == reason
        assert "DRAIN" in nodes["n2"].state.flags
        assert not nodes["n2"].state.available
        assert nodes["n2"].cpus_allocated == 1
        assert (await job(cluster, number)).state is JobState.RUNNING
        second = await submit(cluster, "--gres=gpu:1")
        third = await submit(cluster, "--nodes=2")
        assert (await reached(cluster, second, JobState.RUNNING)).node_list == "n1"
        assert (await job(cluster, third)).state is JobState.PENDING
    finally:
        argv = ("scontrol", "update", "nodename=n2", "state=resume")
        (await cluster.command(*argv, operator=True)).checked()

    async def back() -> bool:
        # For a moment Slurm says NOT_RESPONDING of a node that it has just resumed.
        return all(node.state.available for node in await cluster.reader.nodes())

    await eventually(back)


async def test_a_job_is_found_by_exactly_its_name(cluster: Subject):
    """A marker finds its own jobs, oldest first, and none with a name that is only like it."""
    name = marker()
    mine = [await submit(cluster, "--hold", name=name) for _ in range(2)]
    for other in (name.upper(), f"{name} ", f"{name},x", f" {name}", f"{name}\n"):
        await submit(cluster, "--hold", name=other)
    found = await cluster.reader.jobs_named([name, marker()])
    assert {key: [row.job_id for row in rows] for key, rows in found.items()} == {name: mine}
    await cluster.command("scancel", *map(str, mine))

    async def accounted() -> bool:
        rows = await cluster.reader.accounted([name, marker()], since=hour_ago())
        return {key: [row.job_id for row in rows[key]] for key in rows} == {name: mine}

    await eventually(accounted)


async def test_no_text_of_a_user_makes_a_row(cluster: Subject):
    """Names, comments and accounts that look like rows change no other row and add none."""
    name = marker()
    forged = ("a\n99|FAILED|b", "x|COMPLETED|0", f"{name}\n99|99|N/A|root|0|batch|COMPLETED")
    numbers = [await submit(cluster, "--hold", f"--comment={text}", name=text) for text in forged]
    account = "evil|7\n77|77|N/A|root|0|batch|COMPLETED|1|1"
    numbers.append(await submit(cluster, "--hold", f"--account={account}", name=name))
    rows = await cluster.reader.jobs(ended=True)
    assert not {row.job_id for row in rows} & {77, 99}
    held = {row.job_id: row for row in rows if row.job_id in numbers}
    assert sorted(held) == numbers
    assert {row.uid for row in held.values()} == {cluster.uid}
    assert {row.state for row in held.values()} == {JobState.PENDING}
    assert held[numbers[-1]].account.startswith("evil|7\n77|")
    named = await cluster.reader.jobs_named([name])
    assert {key: [row.job_id for row in found] for key, found in named.items()} == {
        name: numbers[-1:]
    }


async def test_many_names_are_asked_for_at_once(cluster: Subject):
    """Thousands of names are a handful of questions; a name that is no plain word is refused."""
    names = [marker() for _ in range(2500)]
    number = await submit(cluster, "--hold", name=names[-1])
    found = await cluster.reader.jobs_named(names)
    assert [row.job_id for row in found[names[-1]]] == [number]
    assert len(found) == 1
    assert await cluster.reader.accounted(names[:1200], since=hour_ago()) == {}
    assert await cluster.reader.jobs_named([]) == {}
    for bad in ("a,b", "a\nb", "", "a b", "-x;y"):
        with pytest.raises(ValueError, match="not a name"):
            await cluster.reader.jobs_named([bad])
        with pytest.raises(ValueError, match="not a name"):
            await cluster.reader.accounted([bad], since=hour_ago())


async def test_accounting_leaves_out_what_is_older(cluster: Subject):
    """Only jobs that were submitted since the given moment are told."""
    name = marker()
    number = await submit(cluster, script="#!/bin/sh\n", name=name)
    row = await reached(cluster, number, JobState.COMPLETED)
    assert row.submitted_at is not None

    async def accounted() -> bool:
        return bool(await cluster.reader.accounted([name], since=hour_ago()))

    await eventually(accounted)
    exactly = await cluster.reader.accounted([name], since=row.submitted_at)
    assert [found.submitted_at for found in exactly[name]] == [row.submitted_at]
    later = row.submitted_at + timedelta(seconds=1)
    assert await cluster.reader.accounted([name], since=later) == {}


async def test_the_queues_and_the_settings_are_what_the_site_has(cluster: Subject):
    """The default queue, its nodes and limits, the cluster's name and release are told."""
    partitions = {partition.name: partition for partition in await cluster.reader.partitions()}
    batch = partitions[cluster.queue]
    assert batch.is_default
    assert [name for name, found in partitions.items() if found.is_default] == [cluster.queue]
    assert (batch.state, batch.total_nodes, batch.total_cpus) == ("UP", 2, 16)
    assert (batch.hidden, batch.root_only) == (False, False)
    configuration = await cluster.reader.configuration()
    assert configuration.cluster
    assert configuration.version[0].isdigit()
    assert configuration.min_job_age_seconds == 300
    assert configuration.values["ClusterName"] == configuration.cluster
    assert list(await cluster.reader.reservations()) == []
    assert [(one.role, one.up) for one in await cluster.reader.controllers()] == [("primary", True)]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--partition=nope"], "Invalid partition name specified"),
        (["--gres=gpu:9"], "Requested node configuration is not available"),
        (["--gres=gpu:h100:1"], "Requested node configuration is not available"),
        (["--gres=foo:1"], "Invalid generic resource (gres) specification"),
        (["--time=soon"], "Invalid --time specification"),
        (["--mem=lots"], "Invalid --mem specification"),
        (["--reservation=none"], "Requested reservation is invalid"),
        (["--nodes=x"], '"x" is not a valid node count'),
        (["--no-such-option"], "unrecognized option '--no-such-option'"),
    ],
)
async def test_refusals_have_slurms_words(cluster: Subject, options: list[str], words: str):
    """Sbatch refuses what cannot be, in the same words on both clusters."""
    done = await cluster.command("sbatch", "--parsable", *options, stdin=HOLD)
    assert done.status != 0
    assert words in done.stderr.decode()
    assert done.stdout == b""


async def test_a_cluster_without_controller_is_unavailable(cluster: Subject):
    """Every question fails with readable words; back again, the jobs are known and still run."""
    name = marker()
    held = await submit(cluster, "--hold", name=name)
    number = await submit(cluster, name=name)
    before = await reached(cluster, number, JobState.RUNNING)
    await cluster.remembered()
    await cluster.controller_down()
    try:
        assert [one.up for one in await cluster.reader.controllers()] == [False]
        reader = cluster.reader
        questions = (reader.jobs(), reader.nodes(), reader.partitions(), reader.jobs_named([name]))
        for answer in await asyncio.gather(*questions, return_exceptions=True):
            assert isinstance(answer, ClusterUnavailable)
            assert len(str(answer)) > 20
            assert "\n" not in str(answer)
    finally:
        await cluster.controller_up()
    after = await reached(cluster, number, JobState.RUNNING)
    assert (after.started_at, after.node_list) == (before.started_at, before.node_list)
    assert (await job(cluster, held)).state is JobState.PENDING


@pytest.mark.parametrize("cluster", [pytest.param("real", marks=pytest.mark.site)], indirect=True)
async def test_an_array_is_one_row_until_its_tasks_start(cluster: Subject):
    """A pending array counts its tasks; one that runs has an id of its own."""
    number = await submit(cluster, "--array=1-4,10-30:10%1")
    counts = {"running": 0, "waiting": 0}

    async def one_runs() -> bool:
        rows = [row for row in await cluster.reader.jobs() if row.array_job_id == number]
        counts["running"] = sum(row.tasks for row in rows if row.state is JobState.RUNNING)
        counts["waiting"] = sum(row.tasks for row in rows if row.state is JobState.PENDING)
        return counts["running"] == 1

    await eventually(one_runs)
    assert counts["waiting"] == 6


@pytest.mark.parametrize("cluster", [pytest.param("real", marks=pytest.mark.site)], indirect=True)
async def test_a_cluster_without_accounting_is_unavailable(cluster: Subject):
    """Without slurmdbd accounting's questions fail, and those about the queue do not."""
    assert isinstance(cluster, Real)
    await cluster.site.signal("slurmdbd", signal.SIGKILL)
    try:
        with pytest.raises(ClusterUnavailable, match=r"sacct: .*Connection refused"):
            await cluster.reader.accounted([marker()], since=hour_ago())
        assert await cluster.reader.nodes()
    finally:
        await cluster.site.start("slurmdbd")
