"""Holding a job back, and letting it go: never while it may have reached Slurm."""

from typing import Any

import pytest

from gateway.jobs import JobFiles, State, Submitted
from gateway.sessions.session import SessionUnavailable
from tests.unit.gateway.edge_world import Edge
from tests.unit.gateway.recovery_world import World

OK = {"executable": "/bin/true"}
HELD = {**OK, "attributes": {"hold": True}}


async def test_a_held_job_is_not_sent_until_it_is_released(world: World):
    """The sender looks whether it was sent, and leaves it alone."""
    job = await world.job(1, hold_requested=True)
    session = world.session(files=None, submit=Submitted(1, 7))
    async with world.sending():
        held = await world.until(job, state=State.HELD)
        assert held.status_message
        await world.sender.sweep()
        assert [words[0] for words in session.asked] == ["files"]
        released = held.changed(
            world.clock.now(), {"hold_requested": False, "state": State.NEW, "status_message": ""}
        )
        assert await world.store.update(held, released)
        queued = await world.until(job, state=State.QUEUED)
    assert (queued.native_id, queued.attempt) == (7, 1)


async def test_a_hold_that_comes_too_late_loses_no_job(world: World):
    """An attempt that has begun may be in Slurm: it is settled, and the job is in the queue."""
    job = await world.job(1, hold_requested=True)
    session = world.session(files=JobFiles(attempt=1), submit=Submitted(1, 7))
    async with world.sending():
        queued = await world.until(job, state=State.QUEUED)
    assert (queued.native_id, queued.hold_requested) == (7, False)
    assert ("submit", job.id, "1") in session.asked


async def test_without_the_login_node_it_is_not_said_to_be_held(world: World):
    """Nobody can know whether it was sent: it stays new, and says why."""
    job = await world.job(1, hold_requested=True)
    session = world.session(files=SessionUnavailable("away"))
    async with world.sending():
        waiting = await world.until(job, retry_at=world.clock.now().replace(second=1))
        assert (waiting.state, "held" in waiting.status_message) == (State.NEW, True)
        assert {words[0] for words in session.asked} == {"files"}


async def test_a_held_job_can_be_cancelled(world: World):
    """It was never sent, and never will be."""
    job = await world.job(1, hold_requested=True, state=State.HELD, cancel_requested=True)
    session = world.session(withdraw=True)
    async with world.sending():
        ended = await world.until(job, state=State.CANCELED)
    assert ended.failure is not None
    assert [words[0] for words in session.asked] == ["withdraw"]


async def test_a_job_may_be_handed_in_held(edge: Edge):
    """Time to bring its files: nothing is sent before its owner says so."""
    async with edge.serving() as people:
        alice = people["alice"]
        made = await alice("POST", "/v1/jobs", json=HELD)
        assert (made.status, made.json["state"]) == (201, "held")
        assert edge.woken == []
        assert await edge.world.store.to_send("c", edge.world.clock.now()) == []
        path = f"/v1/jobs/{made.json['id']}"
        for _ in range(2):
            again = await alice("POST", f"{path}/hold")
            assert (again.status, again.json["state"]) == (202, "held")
        for _ in range(2):
            released = await alice("POST", f"{path}/release")
            assert (released.status, released.json["state"]) == (202, "new")
    assert set(edge.woken) == {made.json["id"]}
    due = await edge.world.store.to_send("c", edge.world.clock.now())
    assert [job.id for job in due] == [made.json["id"]]


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"native_id": 7, "state": State.QUEUED}, "in_queue"),
        ({"native_id": 7, "state": State.HELD}, "in_queue"),
        ({"native_id": 7, "state": State.COMPLETED}, "job_ended"),
        ({"cancel_requested": True}, "job_ended"),
    ],
)
@pytest.mark.parametrize("verb", ["hold", "release"])
async def test_what_is_in_slurm_or_has_ended_cannot_be_held(
    edge: Edge, changes: dict[str, Any], code: str, verb: str
):
    """409 says which, and nothing changes."""
    job = await edge.world.job(1, **changes)
    async with edge.serving() as people:
        answer = await people["alice"]("POST", f"/v1/jobs/{job.id}/{verb}")
        assert (answer.status, answer.json["code"]) == (409, code)
        others = await people["bob"]("POST", f"/v1/jobs/{job.id}/{verb}")
        assert others.json["code"] == "job_unknown"
    assert await edge.world.shown(job) == job
