"""Many jobs, labels, holds and waiting on the embedded site: the whole way to the payload."""

import asyncio
from typing import Any

OK = {"executable": "/bin/true", "labels": {"sweep": "1"}}


async def test_a_batch_runs_and_is_found_by_its_label(alice: Any):
    """Three jobs in one request end, and their states are asked for at once."""
    items = [{"spec": {**OK, "name": str(number)}} for number in range(3)]
    made = (await alice("POST", "/v1/jobs/batch", json={"jobs": items})).json["results"]
    rows = [result["job"]["id"] for result in made]
    await asyncio.gather(*(alice.until(row) for row in rows))
    states = await alice("POST", "/v1/jobs/status", json={"ids": rows})
    assert {job["state"] for job in states.json["jobs"]} == {"completed"}
    listed = await alice("GET", "/v1/jobs?label=sweep%3D1&state=completed&queue=main")
    found = {job["id"] for job in listed.json["jobs"]}
    every = await alice("GET", "/v1/jobs?label=sweep%3D1")
    assert found <= {job["id"] for job in every.json["jobs"]} == set(rows)


async def test_a_held_job_runs_when_it_is_released(alice: Any):
    """It stays where it is until then, time to bring its files."""
    spec = {"executable": "/bin/cat", "arguments": ["input"], "attributes": {"hold": True}}
    row = (await alice("POST", "/v1/jobs", json=spec)).json["id"]
    path = f"/v1/jobs/{row}"
    assert (await alice("PUT", f"{path}/files/input", data=b"hi\n")).status == 201
    held = await alice("GET", path, headers={"Prefer": "wait=2"})
    assert (held.json["state"], "native_id" in held.json) == ("held", False)
    assert (await alice("POST", f"{path}/release")).json["state"] == "new"
    ended = await alice.until(row)
    assert (ended["state"], ended["exit_code"]) == ("completed", 0)
    assert await alice.output(ended) == "hi\n"


async def test_a_job_that_is_held_at_once_is_held_or_in_the_queue(alice: Any):
    """Whichever was first: it is never lost, and ends when it is let go."""
    made = [await alice.submit("true") for _ in range(5)]
    answers = [await alice("POST", f"/v1/jobs/{job['id']}/hold") for job in made]
    assert {answer.status for answer in answers} <= {202, 409}
    for job in made:
        released = await alice("POST", f"/v1/jobs/{job['id']}/release")
        assert released.status in {202, 409}, released.body
    ended = await asyncio.gather(*(alice.until(job["id"]) for job in made))
    assert {job["state"] for job in ended} == {"completed"}
