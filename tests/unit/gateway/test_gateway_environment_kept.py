"""How long the gateway keeps the values that users gave their jobs' environment."""

from pathlib import Path

import pytest

from gateway.jobs import FailureKind, JobFiles, JobSpec, State
from headgate.slurm.model import JobState
from tests.unit.gateway.recovery_world import SETTLE, World, kind

SECRET = "hunter2-in-the-environment"
SPEC = JobSpec(executable="id", environment={"TOKEN": SECRET, "A": "b"})


def content(folder: Path) -> bytes:
    """Every byte of the database's files."""
    return b"".join(path.read_bytes() for path in folder.glob("gateway.db*"))


@pytest.mark.parametrize("state", [JobState.RUNNING, JobState.CANCELLED])
async def test_values_leave_the_database_once_the_job_has_started_or_ended(
    world: World, tmp_path: Path, state: JobState
):
    """Names stay, values do not: neither in a table nor in what SQLite leaves in its file."""
    job = await world.queued(1, spec=SPEC, cancel_requested=state.final)
    sealed = await world.store.sealed(job)
    assert SECRET in sealed.environment
    world.row(job, state)
    await world.look()
    found = await world.shown(job)
    assert found.spec.environment == {}
    assert found.environment_names == ("A", "TOKEN")
    assert (await world.store.sealed(job)).environment == ""
    await world.store.close()
    assert SECRET.encode() not in content(tmp_path)


async def test_values_stay_while_the_job_may_have_to_be_sent_again(world: World):
    """What Slurm forgets before it started is sent again as it was."""
    job = await world.queued(1, spec=SPEC)
    world.session(files=JobFiles(attempt=1))
    await world.look()
    await world.look(after=SETTLE + 1)
    found = await world.shown(job)
    assert (found.state, found.attempt, found.spec) == (State.NEW, 2, SPEC)
    assert SECRET in (await world.store.sealed(job)).environment


async def test_a_started_job_that_slurm_forgets_unclaimed_is_not_sent_without_its_values(
    world: World,
):
    """It ends as lost and says so: another job than the one that was asked for is never sent."""
    job = await world.queued(1, spec=SPEC)
    world.row(job, JobState.RUNNING)
    await world.look()
    world.reader.queue.clear()
    world.session(files=JobFiles(attempt=1))
    await world.look()
    await world.look(after=SETTLE + 1)
    found = await world.shown(job)
    assert (found.state, kind(found)) == (State.FAILED, FailureKind.LOST)
    assert found.failure is not None
    assert found.failure.retry
    assert "environment" in found.failure.detail
