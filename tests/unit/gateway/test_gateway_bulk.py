"""Many jobs at a time: each item has its own result, and nobody reaches another person's jobs."""

import asyncio
from typing import Any

import pytest

from gateway.jobs import State
from headgate.problems import Unavailable
from tests.unit.gateway.edge_world import Edge

OK = {"executable": "/bin/true"}


async def test_a_batch_has_a_result_for_each_item(edge: Edge):
    """Good ones are jobs, bad ones problems, in the order they came; none stops the others."""
    items = [
        {"spec": {**OK, "name": "first"}},
        {"spec": {"executable": 7}},
        {"spec": {**OK, "attributes": {"queue_name": "nope"}}},
        {"spec": {**OK, "name": "last"}},
    ]
    async with edge.serving() as people:
        answer = await people["alice"]("POST", "/v1/jobs/batch", json={"jobs": items})
        listed = (await people["alice"]("GET", "/v1/jobs")).json["jobs"]
    assert answer.status == 200
    results = answer.json["results"]
    assert [result["status"] for result in results] == [201, 400, 422, 201]
    assert [results[0]["job"]["name"], results[3]["job"]["name"]] == ["first", "last"]
    assert results[1]["problem"]["errors"][0]["pointer"] == "/executable"
    assert results[2]["problem"]["code"] == "unknown_queue"
    assert {job["id"] for job in listed} == {results[0]["job"]["id"], results[3]["job"]["id"]}
    assert sorted(edge.woken) == sorted(edge.seals.sealed)


async def test_the_key_of_an_item_is_that_of_a_single_job(edge: Edge):
    """A batch that is sent again makes no second job, nor does one of its items alone."""
    body = (
        b'{"jobs":[{"idempotency_key":"k1","spec":{"executable": "a"}},'
        b'{"idempotency_key":"k2","spec":{"executable":"b"}}]}'
    )
    async with edge.serving() as people:
        alice = people["alice"]
        first = await alice("POST", "/v1/jobs/batch", data=body)
        again = await alice("POST", "/v1/jobs/batch", data=body)
        rows = [result["job"]["id"] for result in first.json["results"]]
        assert [result["job"]["id"] for result in again.json["results"]] == rows
        headers = {"Idempotency-Key": "k1"}
        single = await alice("POST", "/v1/jobs", data=b'{"executable": "a"}', headers=headers)
        assert (single.status, single.json["id"]) == (201, rows[0])
        other = body.replace(b'"b"', b'"c"')
        changed = await alice("POST", "/v1/jobs/batch", data=other)
        assert [result["status"] for result in changed.json["results"]] == [201, 422]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"jobs": []},
        {"jobs": [{"spec": OK}] * 1001},
        {"jobs": [{"spec": OK, "key": "x"}]},
        {"jobs": [{"spec": OK, "idempotency_key": ""}]},
        {"jobs": [{"spec": OK, "idempotency_key": "x" * 256}]},
        {"jobs": [OK]},
        {"jobs": [{"spec": []}]},
    ],
)
async def test_a_batch_that_is_none_is_refused_whole(edge: Edge, body: dict[str, Any]):
    """Nothing of it is admitted."""
    async with edge.serving() as people:
        answer = await people["alice"]("POST", "/v1/jobs/batch", json=body)
        assert answer.status == 400, answer.body
        assert (await people["alice"]("GET", "/v1/jobs")).json["jobs"] == []


async def test_a_thousand_jobs_are_one_request(edge: Edge):
    """The most that is taken, under a key each."""
    items = [{"spec": OK, "idempotency_key": str(number)} for number in range(1000)]
    async with edge.serving() as people, asyncio.timeout(60):
        answer = await people["alice"]("POST", "/v1/jobs/batch", json={"jobs": items})
        assert {result["status"] for result in answer.json["results"]} == {201}
        rows = [result["job"]["id"] for result in answer.json["results"]]
        states = await people["alice"]("POST", "/v1/jobs/status", json={"ids": rows})
    assert [job["id"] for job in states.json["jobs"]] == rows


async def test_states_are_asked_for_by_ids(edge: Edge):
    """In the order of the question; what is not the caller's is unknown, and so is nonsense."""
    mine = await edge.world.queued(1)
    ended = await edge.world.job(2, state=State.COMPLETED, exit_code=0)
    theirs = await edge.world.queued(3, "bob")
    ids = [ended.id, theirs.id, "x", mine.id, mine.id]
    async with edge.serving() as people:
        answer = await people["alice"]("POST", "/v1/jobs/status", json={"ids": ids})
    assert answer.status == 200
    found = [(job["id"], job["state"]) for job in answer.json["jobs"]]
    assert found == [(ended.id, "completed"), (mine.id, "queued")]
    assert answer.json["jobs"][0]["exit_code"] == 0
    assert "spec" not in answer.json["jobs"][0]
    assert answer.json["unknown"] == [theirs.id, "x"]


async def test_jobs_are_cancelled_by_ids(edge: Edge):
    """Each that is the caller's; asking twice changes nothing."""
    mine = await edge.world.queued(1)
    theirs = await edge.world.queued(2, "bob")
    body = {"ids": [mine.id, theirs.id]}
    async with edge.serving() as people:
        for _ in range(2):
            answer = await people["alice"]("POST", "/v1/jobs/cancel", json=body)
            assert answer.status == 202
            assert [job["id"] for job in answer.json["jobs"]] == [mine.id]
            assert answer.json["jobs"][0]["cancel_requested"]
            assert answer.json["unknown"] == [theirs.id]
    assert (await edge.world.shown(mine)).cancel_requested
    assert not (await edge.world.shown(theirs)).cancel_requested


async def test_jobs_are_cancelled_by_label(edge: Edge):
    """All of the caller's that carry it and go on, and no others."""
    async with edge.serving() as people:
        alice, bob = people["alice"], people["bob"]
        rows = []
        for caller, labels in (
            (alice, {"run": "7"}),
            (alice, {"run": "7", "x": "y"}),
            (alice, {"run": "8"}),
            (bob, {"run": "7"}),
        ):
            made = await caller("POST", "/v1/jobs", json={**OK, "labels": labels})
            rows.append(made.json["id"])
        answer = await alice("POST", "/v1/jobs/cancel", json={"labels": {"run": "7"}})
        assert sorted(job["id"] for job in answer.json["jobs"]) == sorted(rows[:2])
        assert answer.json["more"] is False
        again = await alice("POST", "/v1/jobs/cancel", json={"labels": {"run": "7"}})
        assert again.json["jobs"] == []
        for row in rows[2:]:
            job = await edge.world.store.job(row)
            assert job is not None
            assert not job.cancel_requested


@pytest.mark.parametrize(
    "body", [{}, {"ids": []}, {"labels": {}}, {"ids": ["a"], "labels": {"a": "b"}}, {"all": True}]
)
async def test_nothing_is_cancelled_by_a_question_that_names_nothing(
    edge: Edge, body: dict[str, Any]
):
    """An empty selection is a mistake, not everything."""
    job = await edge.world.queued(1)
    async with edge.serving() as people:
        answer = await people["alice"]("POST", "/v1/jobs/cancel", json=body)
    assert answer.status == 400, answer.body
    assert not (await edge.world.shown(job)).cancel_requested


async def test_a_dry_run_shows_what_would_be_sent_and_sends_nothing(edge: Edge):
    """Script, options and place; refusals are those of the real thing."""
    async with edge.serving() as people:
        alice = people["alice"]
        shown = await alice("POST", "/v1/jobs?dry_run=1", json=OK)
        assert shown.status == 200
        assert shown.json["script"].startswith("#!/bin/sh")
        assert "--nodes=1" in shown.json["sbatch_args"]
        assert (shown.json["cluster"], shown.json["account"]) == ("c", "alice")
        refused = await alice("POST", "/v1/jobs?dry_run=1", json={**OK, "cluster": "nope"})
        assert refused.json["code"] == "unknown_cluster"
        assert (await alice("GET", "/v1/jobs")).json["jobs"] == []
    assert (edge.seals.sealed, edge.woken) == ([], [])


async def test_a_database_that_goes_away_meanwhile_is_no_bug(
    edge: Edge, monkeypatch: pytest.MonkeyPatch
):
    """503 for what is asked as a whole, for each item of a batch its own."""
    job = await edge.world.queued(1)

    async def away(*_: object) -> Any:
        raise Unavailable("The job database does not answer.")

    monkeypatch.setattr(edge.world.store, "update", away)
    monkeypatch.setattr(edge.world.store, "admit", away)
    async with edge.serving() as people:
        cancelled = await people["alice"]("POST", "/v1/jobs/cancel", json={"ids": [job.id]})
        assert cancelled.status == 503
        batch = await people["alice"]("POST", "/v1/jobs/batch", json={"jobs": [{"spec": OK}]})
        assert [result["status"] for result in batch.json["results"]] == [503]
        assert batch.json["results"][0]["problem"]["retryable"]
