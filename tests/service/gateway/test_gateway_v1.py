"""The gateway's interface on the embedded site: what callers send, and what they hear."""

import asyncio
import base64
import io
import json
import uuid
from typing import Any

import pytest

from testbed.embedded import EmbeddedSite

OK = {"executable": "/bin/true"}


async def test_a_job_runs_and_its_output_and_exit_code_are_the_payloads(alice: Any):
    """What the payload printed and how it ended is what the API says."""
    job = await alice.run('echo out; echo "$GREETING" >&2; exit 7', environment={"GREETING": "h'i"})
    assert (job["state"], job["exit_code"]) == ("failed", 7)
    assert job["failure"]["kind"] == "payload"
    assert (await alice("GET", f"/v1/jobs/{job['id']}/stdout")).body == b"out\n"
    assert (await alice("GET", f"/v1/jobs/{job['id']}/stderr")).body == b"h'i\n"


async def test_gpus_are_slurms_and_shown(alice: Any):
    """A job gets the GPUs it asked for, and the answer says how many."""
    job = await alice.run(
        "echo $CUDA_VISIBLE_DEVICES", resources={"gpu_cores_per_process": 2, "process_count": 1}
    )
    output = (await alice("GET", f"/v1/jobs/{job['id']}/stdout")).body
    assert len(output.split(b",")) == 2
    assert job["effective"]["gpus"] == 2


async def test_creating_says_where_the_job_is(alice: Any):
    """201 carries the job's place, and the place shows the job."""
    answer = await alice("POST", "/v1/jobs", json=OK)
    assert answer.status == 201
    assert answer.json["state"] == "new"
    shown = await alice("GET", answer.headers["Location"])
    assert shown.json["id"] == answer.json["id"]
    await alice.until(answer.json["id"])


async def test_the_same_key_and_body_are_the_same_job(alice: Any):
    """A retry finds the job it made before; another body under that key is refused."""
    headers = {"Idempotency-Key": str(uuid.uuid4())}
    answers = await asyncio.gather(
        *(alice("POST", "/v1/jobs", json=OK, headers=headers) for _ in range(8))
    )
    assert {answer.status for answer in answers} == {201}
    assert len({answer.json["id"] for answer in answers}) == 1
    other = await alice("POST", "/v1/jobs", json={**OK, "name": "x"}, headers=headers)
    assert (other.status, other.json["code"]) == (422, "idempotency_key_reused")


async def test_a_key_that_is_none_is_refused(alice: Any):
    """An empty key protects nothing, and is refused rather than taken for none."""
    answer = await alice("POST", "/v1/jobs", json=OK, headers={"Idempotency-Key": ""})
    assert answer.status == 400


@pytest.mark.parametrize(
    "change",
    [
        {"attributes": {"account": "proj\n"}},
        {"resources": {"memory": 10**60}},
    ],
)
async def test_words_and_numbers_have_bounds(alice: Any, change: dict[str, Any]):
    """A newline behind a word, and a number beyond any machine, are refused."""
    answer = await alice("POST", "/v1/jobs", json={**OK, **change})
    assert answer.status == 400, answer.json


async def test_two_users_may_choose_the_same_key(alice: Any, bob: Any):
    """Keys belong to the caller: nobody is answered with somebody else's job."""
    headers = {"Idempotency-Key": str(uuid.uuid4())}
    first = await alice("POST", "/v1/jobs", json=OK, headers=headers)
    second = await bob("POST", "/v1/jobs", json=OK, headers=headers)
    assert first.json["id"] != second.json["id"]


async def test_a_cancelled_job_ends_canceled_however_often_it_is_asked(alice: Any):
    """Cancelling is idempotent, and the end says who did it."""
    made = await alice("POST", "/v1/jobs", json={"executable": "/bin/sleep", "arguments": ["600"]})
    row = made.json["id"]
    for _ in range(2):
        assert (await alice("DELETE", f"/v1/jobs/{row}")).status == 202
    job = await alice.until(row)
    assert job["state"] == "canceled"
    assert job["failure"]["kind"] == "cancelled_by_user"
    assert (await alice("DELETE", f"/v1/jobs/{row}")).json["state"] == "canceled"


async def test_jobs_of_others_do_not_exist(alice: Any, bob: Any):
    """Seeing, reading and cancelling somebody else's job is answered like an unknown id."""
    row = (await alice("POST", "/v1/jobs", json=OK)).json["id"]
    for method, path in (("GET", row), ("DELETE", row), ("GET", f"{row}/stdout")):
        answer = await bob(method, f"/v1/jobs/{path}")
        assert (answer.status, answer.json["code"]) == (404, "job_unknown")
    listed = (await bob("GET", "/v1/jobs")).json["jobs"]
    assert row not in {job["id"] for job in listed}


async def test_lists_come_in_pages_newest_first(alice: Any):
    """Following `next` shows each job once, in the order they were made."""
    made = [(await alice("POST", "/v1/jobs", json=OK)).json["id"] for _ in range(5)]
    seen: list[str] = []
    path = "/v1/jobs?limit=2"
    while path and len(seen) < 6:
        answer = await alice("GET", path)
        seen += [job["id"] for job in answer.json["jobs"]]
        link = answer.headers.get("Link", "")
        path = link.partition(">")[0].removeprefix("<")
    assert seen[:5] == made[::-1]


async def test_an_unchanged_job_is_not_sent_again(alice: Any):
    """The ETag of an ended job answers 304."""
    job = await alice.run("true")
    first = await alice("GET", f"/v1/jobs/{job['id']}")
    again = await alice(
        "GET", f"/v1/jobs/{job['id']}", headers={"If-None-Match": first.headers["ETag"]}
    )
    assert (again.status, again.body) == (304, b"")


async def test_all_faults_of_a_body_are_reported_with_their_pointers(alice: Any):
    """Unknown and mistyped fields are named at once, and nothing of the input is echoed."""
    body = {
        "executable": 7,
        "gpus": "s3cret",
        "resources": {"node_count": 0, "gpu_cores_per_process": "2", "x": 1},
        "environment": {"A": 1},
    }
    answer = await alice("POST", "/v1/jobs", json=body)
    assert (answer.status, answer.headers["Content-Type"].split(";")[0]) == (
        400,
        "application/problem+json",
    )
    assert {fault["pointer"] for fault in answer.json["errors"]} == {
        "/executable",
        "/gpus",
        "/resources/node_count",
        "/resources/gpu_cores_per_process",
        "/resources/x",
        "/environment/A",
    }
    assert b"s3cret" not in answer.body


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff", b'"x"', b"[" * 100_000])
async def test_what_is_not_a_json_object_is_refused(alice: Any, body: bytes):
    """A body that is no specification is the caller's fault, never ours."""
    answer = await alice("POST", "/v1/jobs", data=body)
    assert answer.status == 400, answer.body
    assert answer.json["code"] in {"not_json", "invalid_body"}


async def test_a_huge_body_is_refused(alice: Any):
    """A body over the limit is not read to its end."""
    answer = await alice("POST", "/v1/jobs", data=io.BytesIO(b"x" * 3 * 1024**2))
    assert (answer.status, answer.json["code"]) == (413, "too_large")


@pytest.mark.parametrize(
    ("change", "code", "pointer"),
    [
        ({"attributes": {"queue_name": "nope"}}, "unknown_queue", "/attributes/queue_name"),
        (
            {"resources": {"gpu_cores_per_process": 5}},
            "too_many_gpus",
            "/resources/gpu_cores_per_process",
        ),
        (
            {"resources": {"cpu_cores_per_process": 99}},
            "too_many_cores",
            "/resources/cpu_cores_per_process",
        ),
        (
            {"resources": {"node_count": 3, "process_count": 3}},
            "too_many_nodes",
            "/resources/node_count",
        ),
        (
            {"resources": {"process_count": 3, "cpu_cores_per_process": 3}},
            "too_many_cores",
            "/resources/cpu_cores_per_process",
        ),
        ({"attributes": {"duration": 10**7}}, "too_long", "/attributes/duration"),
        ({"container": {"image": "a/b"}}, "no_containers", "/container"),
        ({"cluster": "elsewhere"}, "unknown_cluster", "/cluster"),
    ],
)
async def test_what_can_never_run_is_refused_with_the_limit(
    alice: Any, change: dict[str, Any], code: str, pointer: str
):
    """A request beyond what the cluster has is told so at once, with the place in the body."""
    answer = await alice("POST", "/v1/jobs", json={**OK, **change})
    assert answer.status in {400, 422}
    assert answer.json["code"] == code
    assert answer.json["errors"][0]["pointer"] == pointer


def forged(token: str, header: dict[str, Any], signature: str = "") -> str:
    """The token with another header and signature."""
    encoded = base64.urlsafe_b64encode(json.dumps(header).encode()).decode().rstrip("=")
    return f"{encoded}.{token.split('.')[1]}.{signature}"


async def test_tokens_that_are_not_good_are_refused(site: EmbeddedSite, as_bearer: Any, alice: Any):
    """Missing, expired, for another audience, unsigned, symmetric, broken: 401 with a reason."""
    good = alice.token
    bad = {
        "missing": "",
        "garbage": "x.y.z",
        "expired": await site.token("alice", lifetime=-3600),
        "audience": await site.token("alice", audience=["https://elsewhere"]),
        "none": forged(good, {"alg": "none"}),
        "None": forged(good, {"alg": "None"}),
        "symmetric": forged(good, {"alg": "HS256"}, "AAAA"),
        "signature": good[:-4] + ("AAAA" if good[-4:] != "AAAA" else "BBBB"),
    }
    for name, token in bad.items():
        answer = await as_bearer(token)("POST", "/v1/jobs", json=OK)
        assert answer.status == 401, name
        assert answer.headers["WWW-Authenticate"].startswith("Bearer"), name
        assert answer.json["detail"], name
        assert not token or token.encode() not in answer.body


async def test_a_user_without_an_account_is_told_who_can_help(site: EmbeddedSite, as_bearer: Any):
    """Dave is in no group: the problem says how an account is asked for."""
    dave = as_bearer(await site.token("dave"))
    answer = await dave("POST", "/v1/jobs", json=OK)
    assert (answer.status, answer.json["code"]) == (403, "account_unknown")
    assert "administrator" in answer.json["detail"]
    me = await dave("GET", "/v1/me")
    assert (me.status, me.json["state"]) == (200, "unknown")


async def test_output_is_read_in_parts(alice: Any):
    """Offset and limit cut the output; beyond its end it is empty."""
    job = await alice.run("printf 0123456789")
    path = f"/v1/jobs/{job['id']}/stdout"
    assert (await alice("GET", f"{path}?offset=3&limit=4")).body == b"3456"
    assert (await alice("GET", f"{path}?offset=99")).body == b""
    assert (await alice("GET", f"{path}?offset=-1")).status == 400


async def test_unknown_routes_and_methods_are_problems(alice: Any):
    """What aiohttp refuses by itself has the same shape as what we refuse."""
    for method, path, status in (("GET", "/v1/nope", 404), ("PUT", "/v1/jobs", 405)):
        answer = await alice(method, path)
        assert (answer.status, answer.json["status"]) == (status, status)
        assert answer.json["request_id"]
