"""The manners of `/v1`: filters, pages, ETags, waiting, keys; what is not known is refused."""

import asyncio
import base64
import json
from typing import Any
from urllib.parse import unquote

import pytest
from yarl import URL

from gateway import in_flight, waiting
from gateway.jobs import JobSpec, State
from tests.unit.gateway.edge_world import Edge

OK = {"executable": "/bin/true"}


async def ids(caller: Any, query: str) -> list[str]:
    """The ids of the caller's jobs that a query selects."""
    answer = await caller("GET", f"/v1/jobs?{query}")
    assert answer.status == 200, answer.body
    return [job["id"] for job in answer.json["jobs"]]


async def test_jobs_are_found_by_their_labels(edge: Edge):
    """By name, by name and value, by several; and nobody finds another person's."""
    async with edge.serving() as people:
        alice, bob = people["alice"], people["bob"]
        rows = []
        for labels in ({"run": "7", "site/x": "a=b"}, {"run": "8"}, {}):
            answer = await alice("POST", "/v1/jobs", json={**OK, "labels": labels})
            assert (answer.status, answer.json["spec"].get("labels", {})) == (201, labels)
            rows.append(answer.json["id"])
        assert await ids(alice, "label=run%3D7") == rows[:1]
        assert sorted(await ids(alice, "label=run")) == sorted(rows[:2])
        assert await ids(alice, "label=run&label=site/x%3Da%3Db") == rows[:1]
        assert await ids(alice, "label=run%3D9") == []
        assert await ids(bob, "label=run") == []


@pytest.mark.parametrize(
    "labels",
    [
        {str(number): "" for number in range(17)},
        {"": "x"},
        {"a b": "x"},
        {"a": "x" * 256},
        {"a": "\0"},
        {"a": 1},
    ],
)
async def test_labels_have_bounds(edge: Edge, labels: dict[str, Any]):
    """At most sixteen, with names that can be asked for."""
    async with edge.serving() as people:
        answer = await people["alice"]("POST", "/v1/jobs", json={**OK, "labels": labels})
    assert answer.status == 400, answer.body


async def test_jobs_are_found_by_state_cluster_queue_and_time(edge: Edge):
    """Each filter narrows the list."""
    world = edge.world
    old = await world.job(1, spec=JobSpec(executable="x"))
    world.clock.advance(3600)
    new = await world.queued(2)
    async with edge.serving() as people:
        alice = people["alice"]
        assert await ids(alice, "state=queued&state=active") == [new.id]
        assert sorted(await ids(alice, "cluster=c")) == sorted([old.id, new.id])
        assert await ids(alice, "cluster=other") == []
        assert await ids(alice, "created_after=2026-01-01T00:30:00Z") == [new.id]
        assert await ids(alice, "created_before=2026-01-01T00:30:00%2B00:00") == [old.id]
        posted = await alice("POST", "/v1/jobs", json={**OK, "attributes": {"queue_name": "main"}})
        assert await ids(alice, "queue=main") == [posted.json["id"]]


@pytest.mark.parametrize(
    ("path", "code", "pointer"),
    [
        ("/v1/jobs?stat=new", "unknown_parameter", "/stat"),
        ("/v1/jobs/x?limit=1", "unknown_parameter", "/limit"),
        ("/v1?verbose", "unknown_parameter", "/verbose"),
        ("/v1/clusters?a=1", "unknown_parameter", "/a"),
        ("/v1/jobs?state=gone", "invalid_parameter", "/state"),
        ("/v1/jobs?label==x", "invalid_parameter", "/label"),
        ("/v1/jobs?created_after=yesterday", "invalid_parameter", "/created_after"),
        ("/v1/jobs?created_after=2026-01-01T00:00:00", "invalid_parameter", "/created_after"),
        ("/v1/jobs?limit=0", "invalid_parameter", "/limit"),
        ("/v1/jobs?limit=%D9%A3", "invalid_parameter", "/limit"),
        ("/v1/jobs?cursor=x", "invalid_cursor", "/cursor"),
        ("/v1/jobs?cursor=%C3%BC", "invalid_cursor", "/cursor"),
        ("/v1/jobs?cursor=OTk5OTk5OTk5OTk5OTk5OTk5OTk6eA", "invalid_cursor", "/cursor"),
    ],
)
async def test_parameters_that_are_not_understood_are_refused(
    edge: Edge, path: str, code: str, pointer: str
):
    """A misspelt filter that is ignored would show, or cancel, everything."""
    async with edge.serving() as people:
        answer = await people["alice"]("GET", path)
    assert (answer.status, answer.json["code"]) == (400, code)
    assert answer.json["errors"][0]["pointer"] == pointer


async def test_lists_and_jobs_that_are_unchanged_are_not_sent_again(edge: Edge):
    """A strong ETag, alone or among others, answers 304 until something changes."""
    job = await edge.world.queued(1)
    async with edge.serving() as people:
        alice = people["alice"]
        for path in ("/v1/jobs?limit=5", f"/v1/jobs/{job.id}"):
            first = await alice("GET", path)
            etag = first.headers["ETag"]
            assert not etag.startswith("W/")
            for given in (etag, f'"x", {etag}', "*"):
                again = await alice("GET", path, headers={"If-None-Match": given})
                assert (again.status, again.body, again.headers["ETag"]) == (304, b"", etag)
        found = await edge.world.shown(job)
        changed = found.changed(edge.world.clock.now(), {"state": State.ACTIVE})
        await edge.world.store.update(found, changed)
        assert (await alice("GET", path, headers={"If-None-Match": etag})).status == 200


async def test_pages_are_followed_by_link_and_cursor(edge: Edge):
    """The cursor is one word, the link keeps the filters, and each job comes once."""
    rows = []
    for number in range(1, 6):
        rows.append((await edge.world.queued(number)).id)
        edge.world.clock.advance(1)
    async with edge.serving() as people:
        seen, path = [], "/v1/jobs?limit=2&state=queued"
        while path:
            answer = await people["alice"]("GET", path)
            seen += [job["id"] for job in answer.json["jobs"]]
            link = answer.headers.get("Link", "")
            assert bool(link) == ("next" in answer.json)
            path = link.partition(">")[0].removeprefix("<")
            assert not path or "state=queued" in path
    assert seen == rows[::-1]


async def test_a_caller_may_wait_for_another_state(edge: Edge):
    """`Prefer: wait` answers as soon as the state changes, and holds nothing meanwhile."""
    job = await edge.world.queued(1)
    async with edge.serving() as people, asyncio.timeout(10):
        waits = {"Prefer": "respond-async, wait=30"}
        path = f"/v1/jobs/{job.id}"
        answered = asyncio.create_task(people["alice"]("GET", path, headers=waits))
        while not edge.world.store.waiting._events:  # noqa: ASYNC110 - under way in this loop
            await asyncio.sleep(0)
        await edge.world.store.update(job, job.changed(job.created_at, {"state": State.ACTIVE}))
        answer = await answered
        assert (answer.status, answer.json["state"]) == (200, "active")
        assert answer.headers["Preference-Applied"] == "wait=30"
        await edge.world.until(job, state=State.ACTIVE)
        late = await people["alice"]("GET", path, headers={"Prefer": "wait=1"})
        assert (late.status, late.json["state"]) == (200, "active")
    assert not edge.world.store.waiting._events


async def test_nobody_waits_for_what_has_ended_or_is_not_theirs(edge: Edge):
    """An ended job is answered at once, and another's does not exist."""
    job = await edge.world.job(1, state=State.COMPLETED)
    async with edge.serving() as people, asyncio.timeout(5):
        waits = {"Prefer": "wait=60"}
        ended = await people["alice"]("GET", f"/v1/jobs/{job.id}", headers=waits)
        assert ended.json["state"] == "completed"
        assert (await people["bob"]("GET", f"/v1/jobs/{job.id}", headers=waits)).status == 404


async def test_one_person_does_not_wait_for_everything(edge: Edge, monkeypatch: pytest.MonkeyPatch):
    """Who waits for too much is answered at once; others are not concerned."""
    monkeypatch.setattr(waiting, "FOR_ONE", 0)
    job = await edge.world.queued(1)
    async with edge.serving() as people, asyncio.timeout(10):
        headers = {"Prefer": "wait=60"}
        answer = await people["alice"]("GET", f"/v1/jobs/{job.id}", headers=headers)
    assert (answer.status, answer.json["state"]) == (200, "queued")
    assert not edge.world.store.waiting._waits


async def test_a_key_whose_request_is_not_answered_yet_is_a_conflict(
    edge: Edge, monkeypatch: pytest.MonkeyPatch
):
    """409 with Retry-After, and afterwards the job of the first request."""
    monkeypatch.setattr(in_flight, "PATIENCE_SECONDS", 0.01)
    edge.seals.gate = asyncio.Event()
    headers = {"Idempotency-Key": "k"}
    async with edge.serving() as people, asyncio.timeout(10):
        alice = people["alice"]
        first = asyncio.create_task(alice("POST", "/v1/jobs", json=OK, headers=headers))
        while not edge.api.jobs._in_flight._locks:  # noqa: ASYNC110 - under way in this loop
            await asyncio.sleep(0)
        second = await alice("POST", "/v1/jobs", json=OK, headers=headers)
        assert (second.status, second.json["code"]) == (409, "request_in_flight")
        assert second.json["retryable"]
        assert int(second.headers["Retry-After"]) > 0
        edge.seals.gate.set()
        made = await first
        again = await alice("POST", "/v1/jobs", json=OK, headers=headers)
        assert (made.status, again.status, again.json["id"]) == (201, 201, made.json["id"])
    assert len(edge.seals.sealed) == 1
    assert not edge.api.jobs._in_flight._locks


async def test_anybody_is_told_what_a_tool_has_to_know(edge: Edge):
    """Without a token: release, features, limits, runtimes, issuers with scopes, notices."""
    async with edge.serving() as people:
        told = (await people[""]("GET", "/v1")).json
    assert {"labels", "prefer_wait", "idempotency_key"} <= set(told["features"])
    assert told["limits"]["page"] == 1000
    assert told["runtimes"] == {"c": ["none"]}
    assert told["trusted_issuers"] == [{"issuer": "https://iam/", "scopes": ["compute.create"]}]
    assert told["notices"] == [{"text": "New GPUs.", "until": None}]


async def test_a_job_shows_its_script_and_environment_to_its_owner_alone(edge: Edge):
    """The script as it was sealed; the values as long as they are kept, then the names."""
    async with edge.serving() as people:
        alice, bob = people["alice"], people["bob"]
        made = await alice("POST", "/v1/jobs", json={**OK, "environment": {"A": "s3cret"}})
        row = made.json["id"]
        script = await alice("GET", made.json["links"]["script"])
        assert script.body.startswith(b"#!/bin/sh")
        assert b"s3cret" not in script.body
        path = made.json["links"]["environment"]
        shown = await alice("GET", path)
        assert shown.json == {"names": ["A"], "values": {"A": "s3cret"}}
        for link in ("script", "environment"):
            assert (await bob("GET", f"/v1/jobs/{row}/{link}")).status == 404
        found = await edge.world.store.job(row)
        assert found is not None
        now = edge.world.clock.now()
        await edge.world.store.update(found, found.changed(now, {"state": State.ACTIVE}))
        assert (await alice("GET", path)).json == {"names": ["A"], "values": None}
        job = await alice("GET", f"/v1/jobs/{row}")
        assert b"s3cret" not in job.body


ODD = ["%00", "%ED%A0%80", "%FF", "a%00b", "%0A", "%F4%8F%BF%BF"]


@pytest.mark.parametrize("odd", ODD)
async def test_odd_characters_are_the_callers_fault_on_every_database(edge: Edge, odd: str):
    """NUL, halves of characters and what is no UTF-8 reach no database: some break on them."""
    await edge.world.queued(1)
    async with edge.serving() as people:
        alice = people["alice"]
        for name in ("cluster", "queue", "label", "cursor", "state", "created_after"):
            url = URL(f"/v1/jobs?{name}={odd}", encoded=True)
            answer = await alice("GET", str(url))
            assert answer.status in {200, 400}, (name, answer.body)
            if "00" in odd:
                assert answer.status == 400, name
        for verb in ("", "/script", "/stdout"):
            assert (await alice("GET", f"/v1/jobs/{odd}{verb}")).status == 404
        ids = [unquote(odd, errors="surrogatepass") if odd != "%FF" else "\x7f"]
        body = json.dumps({"ids": ids})
        for verb in ("status", "cancel"):
            answer = await alice("POST", f"/v1/jobs/{verb}", data=body.encode())
            assert answer.status in {200, 202, 400}, answer.body


@pytest.mark.parametrize(
    "query",
    [
        "created_after=0001-01-01T00:00:00%2B14:00",
        "created_before=9999-12-31T23:59:59-14:00",
        "created_after=2026-W01-1T00:00:00Z",
        "label=" + "&label=".join(f"a{number}" for number in range(17)),
        "state=" + "&state=".join(["new"] * 2000),
    ],
)
async def test_extremes_are_answered(edge: Edge, query: str):
    """The first and the last moment, a thousand states: an answer, and never a bug."""
    async with edge.serving() as people:
        answer = await people["alice"]("GET", f"/v1/jobs?{query}")
    assert answer.status in {200, 400}, answer.body


async def test_cursors_are_ours_or_none(edge: Edge):
    """A cursor that somebody made up is refused, whatever is in it."""
    async with edge.serving() as people:
        for text in ("1:\0", "1:x", "x:y", f"{10**30}:x", "", ":", "-1:6f3b6c1e"):
            cursor = base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")
            answer = await people["alice"]("GET", f"/v1/jobs?cursor={cursor}x")
            assert answer.status == 400, (text, answer.body)
