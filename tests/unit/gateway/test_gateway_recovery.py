"""The tracker when things go wrong: what is lost, late, hung or said twice."""

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest

from gateway.jobs import FailureKind, Job, JobFiles, State, Submitted
from gateway.observation import ALREADY_STARTED
from headgate.slurm.model import ClusterUnavailable, JobState
from tests.unit.gateway.recovery_world import SETTLE, World, kind


async def test_what_was_missing_before_an_outage_is_looked_for_again(world: World):
    """Time in which the cluster could not be asked does not count as time to settle."""
    job = await world.queued(1)
    world.session(files=JobFiles(attempt=1))
    await world.look()
    world.reader.away = True
    await world.look(after=SETTLE * 10)
    world.reader.away = False
    await world.look()
    assert (await world.shown(job)).native_id == 1
    world.row(job, JobState.RUNNING)
    await world.look(after=1)
    assert (await world.shown(job)).state is State.ACTIVE


async def test_an_unclaimed_job_that_nobody_knows_is_sent_again(world: World):
    """Forgotten before it started: the next attempt, once the cluster has settled."""
    job = await world.queued(1)
    world.session(files=JobFiles(attempt=1))
    await world.look()
    await world.look(after=SETTLE)
    await world.look(after=1)
    found = await world.shown(job)
    assert (found.state, found.attempt, found.native_id) == (State.NEW, 2, None)


async def test_an_old_doubt_does_not_count_for_a_new_submission(world: World):
    """A job that was settled once and is missing again gets its whole time to settle again."""
    job = await world.job(1, missing_since=world.clock.now() - timedelta(days=1))
    world.session(submit=Submitted(1, 7), files=JobFiles(attempt=1))
    async with world.sending():
        job = await world.until(job, native_id=7)
    await world.look()
    assert (await world.shown(job)).native_id == 7


async def test_one_hung_login_does_not_stop_the_watch_for_others(world: World):
    """While one user's files cannot be read, another's job ends, with its own words."""
    hung = await world.queued(1, "alice")
    other = await world.queued(2, "bob")
    for job in (hung, other):
        world.row(job, JobState.FAILED, exit_status=3)
    never = asyncio.Event()
    world.session("alice", files=never)
    world.session("bob", files=JobFiles(attempt=1, exit=3))
    async with asyncio.timeout(10):
        await world.look()
    assert (await world.shown(other)).exit_code == 3
    assert not (await world.shown(hung)).state.final
    await world.look(after=121)
    await world.look(after=1)
    assert (await world.shown(hung)).exit_code == 3


async def test_accounting_that_is_away_does_not_hide_what_the_queue_says(world: World):
    """A failed job in the queue ends while another one's fate waits for slurmdbd."""
    failed = await world.queued(1)
    gone = await world.queued(2)
    world.row(failed, JobState.FAILED, exit_status=4)
    world.session(files=JobFiles(attempt=1, exit=4))

    async def accounted(names: Sequence[str], *, since: datetime) -> Any:
        del names, since
        raise ClusterUnavailable("slurmdbd is away")

    world.reader.accounted = accounted  # type: ignore[method-assign] # the test plays the cluster
    await world.look()
    assert (await world.shown(failed)).exit_code == 4
    assert not (await world.shown(gone)).state.final
    assert "slurmdbd" in world.tracker.fault


@pytest.mark.parametrize(
    ("uid", "expected"),
    [
        (0, FailureKind.CANCELLED_BY_SITE),
        (None, FailureKind.CANCELLED_BY_SITE),
        (1000, FailureKind.CANCELLED_BY_USER),
    ],
)
async def test_who_cancelled_a_job_is_asked_of_accounting(
    world: World, uid: int | None, expected: FailureKind
):
    """The queue does not say who did it; a job nobody here asked to cancel waits for who knows."""
    job = await world.queued(1)
    world.row(job, JobState.CANCELLED)
    world.session(files=JobFiles(attempt=1, claim="1 n1"))
    await world.look()
    assert not (await world.shown(job)).state.final
    world.remember(job, JobState.CANCELLED, cancelled_by_uid=uid)
    await world.look(after=1)
    found = await world.shown(job)
    assert (found.state, kind(found)) == (State.CANCELED, expected)


async def test_a_cancelled_job_ends_also_without_accounting(world: World):
    """Where accounting never hears of it, the queue's word is enough after a while."""
    job = await world.queued(1)
    world.row(job, JobState.CANCELLED)
    world.session(files=JobFiles(attempt=1, claim="1 n1"))
    await world.look()
    await world.look(after=31)
    found = await world.shown(job)
    assert (found.state, kind(found)) == (State.CANCELED, FailureKind.CANCELLED_BY_SITE)


@pytest.mark.parametrize(
    "state", [JobState.CANCELLED, JobState.NODE_FAIL, JobState.TIMEOUT, JobState.BOOT_FAIL]
)
async def test_a_controller_without_memory_does_not_hide_how_a_payload_ended(
    world: World, state: JobState
):
    """What slurmd refuses to start twice, or is not found on its node, may have ended well."""
    job = await world.queued(1)
    world.remember(job, state, cancelled_by_uid=0)
    world.session(files=JobFiles(attempt=1, claim="1 n1", exit=0))
    await world.look()
    assert (await world.shown(job)).state is State.COMPLETED


@pytest.mark.parametrize(
    ("state", "facts"),
    [
        (JobState.CANCELLED, {}),
        (JobState.FAILED, {"exit_status": 127}),
        (JobState.FAILED, {"exit_status": 1, "started_at": None}),
    ],
)
async def test_a_job_that_its_node_could_not_start_may_be_sent_again(
    world: World, state: JobState, facts: dict[str, Any]
):
    """Ended by Slurm between start and claim, or before: the node's failure, not the user's."""
    job = await world.queued(1)
    world.remember(job, state, cancelled_by_uid=0, **facts)
    world.session(files=JobFiles(attempt=1))
    await world.look()
    assert not (await world.shown(job)).state.final
    await world.look(after=SETTLE + 1)
    found = await world.shown(job)
    assert (found.state, kind(found)) == (State.FAILED, FailureKind.NODE)
    assert found.failure is not None
    assert found.failure.retry


async def test_the_status_of_another_start_under_the_same_id_is_not_the_jobs(world: World):
    """What Slurm tells of an id it gave away twice waits for what the job itself writes down."""
    job = await world.queued(1)
    world.row(job, JobState.FAILED, exit_status=127)
    session = world.session(files=JobFiles(attempt=1, claim="1 n1"))
    await world.look()
    assert not (await world.shown(job)).state.final
    session.answers["files"] = JobFiles(attempt=1, claim="1 n1", exit=7)
    await world.look(after=1)
    found = await world.shown(job)
    assert (found.exit_code, kind(found), found.nodes) == (7, FailureKind.PAYLOAD, "n1")


async def test_a_job_that_writes_nothing_down_ends_as_slurm_says(world: World):
    """A user may remove all files of a job: after a while Slurm's word is all there is."""
    job = await world.queued(1)
    world.row(job, JobState.FAILED, exit_status=3)
    world.session(files=JobFiles(attempt=1, claim="1 n1"))
    await world.look()
    await world.look(after=SETTLE + 1)
    assert (await world.shown(job)).exit_code == 3


async def test_where_two_attempts_reached_slurm_the_one_that_claimed_counts(world: World):
    """The second start finds the claim of the first, and the row follows that one."""
    job = await world.queued(8)
    world.row(job, JobState.FAILED, exit_status=ALREADY_STARTED)
    world.session(files=JobFiles(attempt=2, claim="7 n1"))
    await world.look()
    assert (await world.shown(job)).native_id == 7
    world.row(replace_number(job, 7), JobState.RUNNING)
    await world.look(after=1)
    assert (await world.shown(job)).state is State.ACTIVE


def replace_number(job: Job, number: int) -> Job:
    """The same job under another id of Slurm's."""
    return msgspec.structs.replace(job, native_id=number)


async def test_a_cancelled_job_that_slurm_starts_all_the_same_ends_canceled(world: World):
    """A start that found the row claimed by its cancellation ran nothing."""
    job = await world.queued(1, cancel_requested=True)
    world.row(job, JobState.FAILED, exit_status=ALREADY_STARTED)
    world.session(files=JobFiles(attempt=1, claim="cancelled"))
    await world.look()
    found = await world.shown(job)
    assert (found.state, kind(found)) == (State.CANCELED, FailureKind.CANCELLED_BY_USER)


async def test_a_status_that_is_the_payloads_own_stays_it(world: World):
    """A payload may end with the status by which a second start is known."""
    job = await world.queued(1)
    world.row(job, JobState.FAILED, exit_status=ALREADY_STARTED)
    world.session(files=JobFiles(attempt=1, claim="1 n1", exit=ALREADY_STARTED))
    await world.look()
    found = await world.shown(job)
    assert (found.exit_code, kind(found)) == (ALREADY_STARTED, FailureKind.PAYLOAD)
    assert (found.nodes, found.started_at) == ("n1", job.created_at)


async def test_nothing_is_kept_of_questions_about_jobs_that_ended(world: World):
    """A login that never answers leaves no task behind once its job has ended without words."""
    job = await world.queued(1)
    world.row(job, JobState.FAILED, exit_status=3)
    world.session(files=asyncio.Event())
    await world.look()
    await world.look(after=121)
    assert (await world.shown(job)).state is State.FAILED
    await world.look()
    assert not world.inquiries._asked
