"""The sender when things go wrong: what is full, away, refused or cancelled meanwhile."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from gateway import store as stores
from gateway import tables
from gateway.jobs import FailureKind, Job, JobFiles, JobSpec, State, Submitted
from gateway.observation import NO_ROOM
from gateway.sessions.session import (
    NotCertified,
    SessionLost,
    SessionRefused,
    SessionUnavailable,
)
from gateway.store import Request, Store, create_engine
from headgate.identity import Identity
from headgate.problems import Unavailable
from headgate.slurm.model import JobState, QueuedJob
from tests.unit.gateway.recovery_world import SETTLE, World, kind, said, seen


async def test_a_job_that_cannot_write_its_directory_ends_as_quota(world: World):
    """The script's own status for that is not taken for the payload's."""
    job = await world.queued(1)
    world.row(job, JobState.FAILED, exit_status=NO_ROOM)
    world.session(files=JobFiles(attempt=1, claim="?"))
    await world.look()
    found = await world.shown(job)
    assert (kind(found), found.exit_code) == (FailureKind.QUOTA, None)
    other = await world.queued(2)
    world.row(other, JobState.FAILED, exit_status=NO_ROOM)
    world.session(files=JobFiles(attempt=1, claim="2 n1", exit=NO_ROOM))
    await world.look()
    found = await world.shown(other)
    assert (kind(found), found.exit_code) == (FailureKind.PAYLOAD, NO_ROOM)


async def test_a_job_changed_while_slurm_was_asked_is_looked_at_again(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    """What the tracker read before a cancellation does not overwrite it."""
    job = await world.queued(1)
    world.row(job, JobState.RUNNING)
    ask = world.reader.jobs

    async def slowly(*, ended: bool = False) -> Sequence[QueuedJob]:
        before = await world.shown(job)
        change = before.changed(world.clock.now(), {"cancel_requested": True})
        await world.store.update(before, change)
        return await ask(ended=ended)

    monkeypatch.setattr(world.reader, "jobs", slowly)
    await world.look()
    found = await world.shown(job)
    assert (found.cancel_requested, found.state) == (True, State.QUEUED)
    await world.look()
    assert (await world.shown(job)).state is State.ACTIVE


async def test_a_database_that_fails_for_a_moment_does_not_end_the_sending(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    """Whatever one row's turn raises, the next row is sent, and that one later."""
    job = await world.job(1)
    world.session(submit=Submitted(1, 7))
    read, failures = world.store.job, iter([Unavailable("locked"), RuntimeError("a bug"), None])

    async def failing(row: str, owner: Identity | None = None) -> Job | None:
        if failure := next(failures, None):
            raise failure
        return await read(row, owner)

    async with world.sending():
        monkeypatch.setattr(world.store, "job", failing)
        world.sender.offer(job)
        for _ in range(3):
            await world.sender.sweep()
            await asyncio.sleep(0.02)
        await world.until(job, native_id=7)


async def test_an_answer_that_cannot_be_stored_is_asked_for_again(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    """With sbatch's answer in hand and the database full, the same attempt is said again."""
    job = await world.job(1)
    session = world.session(submit=Submitted(1, 7))
    update, failures = world.store.update, iter([Unavailable("full")])

    async def failing(before: Job, after: Job) -> bool:
        if failure := next(failures, None):
            raise failure
        return await update(before, after)

    monkeypatch.setattr(world.store, "update", failing)
    async with world.sending():
        world.sender.offer(job)
        await world.until(job, native_id=7)
    assert {words[2] for words in session.asked} == {"1"}


async def test_a_user_who_cannot_be_reached_is_tried_once_for_all_jobs(world: World):
    """All their jobs say why, one connection was tried; when it works again all are sent."""
    jobs = [await world.job(number) for number in range(1, 21)]
    world.pool.closed = SessionUnavailable("login node n: Connection refused")
    world.session(submit=Submitted(1, 7))
    async with world.sending():
        await world.sender.sweep()
        for job in jobs:
            found = await said(world, job)
            assert "Connection refused" in found.status_message
        assert world.pool.tried <= 16
        world.pool.closed = None
        world.clock.advance(60)
        for job in jobs:
            await world.until(job, native_id=7)


async def test_a_limit_of_the_site_holds_a_job_back_and_says_so(world: World):
    """As many jobs as Slurm lets a user submit: the job stays new, and is sent later."""
    job = await world.job(1)
    words = "sbatch: error: AssocMaxSubmitJobLimit"
    session = world.session(submit=SessionRefused("limit", words))
    async with world.sending():
        await world.sender.sweep()
        await said(world, job)
        found = await world.shown(job)
        assert (found.state, "limit" in found.status_message) == (State.NEW, True)
        session.answers["submit"] = Submitted(1, 7)
        world.clock.advance(60)
        await world.until(job, native_id=7, attempt=1)


async def test_a_claim_nobody_can_read_ends_as_lost_and_not_as_an_endless_retry(world: World):
    """Claimed by an unknown start, known to nobody: after the time to settle it is lost."""
    job = await world.job(1)
    world.session(submit=SessionRefused("claimed", "?", JobFiles(attempt=1, claim="?")))
    async with world.sending():
        await world.sender.sweep()
        await seen(lambda: world.shown(job), lambda found: found.missing_since is not None)
        world.clock.advance(SETTLE + 20)
        found = await world.until(job, state=State.FAILED)
    assert (kind(found), found.attempt) == (FailureKind.LOST, 1)


async def test_a_job_cancelled_before_it_was_sent_is_withdrawn_first(world: World):
    """It ends only when its directory forbids what may still be on the way to sbatch."""
    job = await world.job(1, cancel_requested=True)
    session = world.session(withdraw=SessionLost("the connection broke"))
    async with world.sending():
        await world.sender.sweep()
        await said(world, job)
        assert not (await world.shown(job)).state.final
        session.answers["withdraw"] = True
        world.clock.advance(60)
        assert kind(await world.until(job, state=State.CANCELED)) is FailureKind.CANCELLED_BY_USER
    assert {words[0] for words in session.asked} == {"withdraw"}


async def test_a_job_cancelled_after_it_was_sent_is_found_and_cancelled(world: World):
    """What cannot be withdrawn any more is asked for its id, and cancelled under that."""
    job = await world.job(1, cancel_requested=True)
    session = world.session(withdraw=False, submit=Submitted(1, 7))
    async with world.sending():
        await world.sender.sweep()
        await world.until(job, native_id=7)
        await seen(lambda: world.shown(job), lambda _: ("cancel", job.id, "7") in session.asked)


async def test_a_full_disk_is_no_bug(world: World):
    """A database without room says 503, keeps what it has, and goes on when there is room."""
    engine = world.store._engine

    async def limit(pages: int) -> None:
        async with engine.connect() as connection:
            await connection.exec_driver_sql(f"PRAGMA max_page_count={pages}")

    await limit(1)

    async def fill() -> None:
        for number in range(1, 50):
            await world.job(number, spec=JobSpec(executable="x" * 4000))

    with pytest.raises(Unavailable) as caught:
        await fill()
    assert caught.value.retry_after
    await limit(1_000_000)
    await world.job(99)


async def test_a_locked_database_is_no_bug(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Somebody else's lock that lasts too long is told as 503, on writing and on the way."""
    monkeypatch.setattr(stores, "BUSY_SECONDS", 0)
    url = f"sqlite+aiosqlite:///{tmp_path}/gateway.db"
    engine = create_engine(url)
    store = Store(url)
    async with engine.begin() as connection:
        await connection.run_sync(tables.metadata.create_all)
    job = await World(store).job(1)
    async with engine.connect() as other:
        await other.exec_driver_sql("BEGIN IMMEDIATE")
        with pytest.raises(Unavailable):
            await store.update(job, job.changed(job.created_at, {"status_message": "x"}))
        assert await store.earlier(job.owner, Request("k", "")) is None
        await other.rollback()
    assert await store.update(job, job.changed(job.created_at, {"status_message": "x"}))
    await store.close()
    await engine.dispose()
    (tmp_path / "none").mkdir()
    nowhere = Store(f"sqlite+aiosqlite:///{tmp_path}/none/g.db")
    (tmp_path / "none").rmdir()
    assert "database" in await nowhere.ready()
    await nowhere.close()


NO_MORE = NotCertified("no certificate: The person has ended this delegation.", final=True)


@pytest.mark.parametrize(
    ("asked", "state", "failure", "words"),
    [
        ({}, State.FAILED, FailureKind.POLICY, "ended this delegation"),
        ({"cancel_requested": True}, State.CANCELED, FailureKind.CANCELLED_BY_USER, "by its owner"),
    ],
)
async def test_a_job_that_may_not_be_sent_any_more_ends(
    world: World, asked: dict[str, bool], state: State, failure: FailureKind, words: str
):
    """Without a seal nobody can send it: it does not wait for ever, and says why."""
    job = await world.job(1, **asked)
    world.pool.closed = NO_MORE
    async with world.sending():
        world.sender.offer(job)
        waiting = await world.until(job, missing_since=world.clock.now())
        assert waiting.state is State.NEW
        world.clock.advance(SETTLE + 1)
        found = await world.until(job, state=state)
    assert kind(found) is failure
    assert found.failure is not None
    assert words in found.failure.detail


async def test_a_job_that_reached_slurm_before_its_delegation_ended_is_found(world: World):
    """It is looked for before it is given up: nothing that runs is called failed."""
    job = await world.job(1)
    sent = await world.queued(7, directory=job.directory)
    world.row(sent, JobState.RUNNING)
    world.reader.names[7] = job.marker
    world.pool.closed = NO_MORE
    async with world.sending():
        world.sender.offer(job)
        found = await world.until(job, native_id=7)
    assert found.state is State.QUEUED


async def test_a_refusal_that_may_pass_keeps_the_job(world: World):
    """A suspended user's job waits: only what is final ends it."""
    job = await world.job(1)
    world.pool.closed = NotCertified("no certificate: suspended")
    async with world.sending():
        world.sender.offer(job)
        found = await world.until(job, status_message=_not_taken("suspended"))
    assert (found.state, found.missing_since) == (State.NEW, None)


def _not_taken(why: str) -> str:
    return f"the login node does not take it: no certificate: {why}"
