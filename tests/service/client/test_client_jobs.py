"""The client's verbs against a gateway that keeps the interface's promises."""

import json

import msgspec
import pytest

from headgate.client import (
    Attributes,
    Client,
    Container,
    HeadgateError,
    JobSpec,
    JobState,
    NotFoundError,
    Resources,
    UnexpectedAnswerError,
    UnprocessableError,
    WaitTimeoutError,
)
from tests.service.client.fake_gateway import FakeGateway
from tests.service.client.hurried_clock import HurriedClock


@pytest.fixture
async def client(gateway: FakeGateway, clock: HurriedClock):
    """A client of the fake gateway with a good token."""
    async with Client(gateway.url, token="good", clock=clock) as opened:
        yield opened


async def test_submit_sends_only_what_was_set(client: Client, gateway: FakeGateway):
    """A specification travels without the fields that were left to the gateway."""
    spec = JobSpec(
        executable="python",
        arguments=["train.py"],
        container=Container(image="debian"),
        resources=Resources(gpu_cores_per_process=1),
        attributes=Attributes(duration=600),
    )
    job = await client.submit(spec)
    assert job.state is JobState.NEW
    assert gateway.jobs[job.id]["spec"] == {
        "executable": "python",
        "arguments": ["train.py"],
        "container": {"image": "debian"},
        "resources": {"gpu_cores_per_process": 1},
        "attributes": {"duration": 600},
    }


async def test_a_refused_job_holds_every_fault(client: Client):
    """All pointers and sentences of a problem are on the exception, its text is the detail."""
    with pytest.raises(UnprocessableError, match="No node has that many GPUs") as caught:
        await client.submit(JobSpec(executable="x", resources=Resources(gpu_cores_per_process=9)))
    assert caught.value.code == "too_many_gpus"
    assert caught.value.problem.request_id
    assert [fault.pointer for fault in caught.value.problem.errors] == [
        "/resources/gpu_cores_per_process",
        "/attributes/queue_name",
    ]


async def test_a_callers_key_makes_two_calls_one_job(client: Client, gateway: FakeGateway):
    """The same key and spec give the same job; the key with another spec is refused."""
    first = await client.submit(JobSpec(executable="a"), idempotency_key="k")
    second = await client.submit(JobSpec(executable="a"), idempotency_key="k")
    assert first.id == second.id
    assert len(gateway.jobs) == 1
    with pytest.raises(UnprocessableError) as caught:
        await client.submit(JobSpec(executable="b"), idempotency_key="k")
    assert caught.value.code == "idempotency_key_reused"


async def test_jobs_come_page_by_page(client: Client, gateway: FakeGateway):
    """All jobs arrive, newest first and once each, over as many pages as they take."""
    made = [gateway.add_job()["id"] for _ in range(7)]
    listed = [job.id async for job in client.jobs(page_size=3)]
    assert listed == list(reversed(made))
    assert len(gateway.requests("GET")) == 3


async def test_jobs_can_be_asked_for_by_state(client: Client, gateway: FakeGateway):
    """The state is the gateway's filter."""
    gateway.add_job(state="failed")
    active = gateway.add_job(state="active")
    assert [job.id async for job in client.jobs(state=JobState.ACTIVE)] == [active["id"]]


async def test_a_state_of_the_future_is_no_error(client: Client, gateway: FakeGateway):
    """A word this release does not know reads as `unknown`, and is not final."""
    job = await client.job(gateway.add_job(state="hibernating")["id"])
    assert job.state is JobState.UNKNOWN
    assert not job.state.final


async def test_cancel_answers_with_the_job(client: Client, gateway: FakeGateway):
    """Cancelling gives the job back, and can be repeated."""
    made = gateway.add_job(state="active")
    assert (await client.cancel(made["id"])).state is JobState.CANCELED
    assert (await client.cancel(made["id"])).state is JobState.CANCELED


async def test_stdout_is_read_in_pieces_of_any_size(client: Client, gateway: FakeGateway):
    """Output is whole, whatever the gateway gives at a time."""
    gateway.page_bytes = 10
    made = gateway.add_job(state="completed")
    gateway.output[made["id"]] = bytes(range(256))
    assert await client.stdout(made["id"]) == bytes(range(256))


async def test_stdout_has_a_limit(client: Client, gateway: FakeGateway):
    """Output above the limit is an error that names the other way."""
    made = gateway.add_job(state="completed")
    gateway.output[made["id"]] = b"x" * 100
    with pytest.raises(HeadgateError, match="in chunks"):
        await client.stdout(made["id"], limit=99)


async def test_an_unknown_job_is_not_found(client: Client):
    """404 is its own exception with the gateway's code."""
    with pytest.raises(NotFoundError) as caught:
        await client.job("00000000-0000-0000-0000-000000000000")
    assert caught.value.code == "job_unknown"


async def test_what_is_no_job_id_is_never_sent(client: Client, gateway: FakeGateway):
    """An id that would change the path is refused here."""
    with pytest.raises(ValueError, match="not a job id"):
        await client.job("../me")
    assert not gateway.seen


async def test_wait_ends_with_the_job(client: Client, gateway: FakeGateway, clock: HurriedClock):
    """Waiting asks with the ETag, keeps the pace the gateway wishes, and gives the ended job."""
    gateway.retry_after = "3"
    made = gateway.add_job()
    gateway.plans[made["id"]] = [
        {"state": "queued"},
        {},
        {"state": "active"},
        {"state": "completed", "exit_code": 0},
    ]
    ended = await client.wait(made["id"])
    assert ended.state is JobState.COMPLETED
    assert clock.slept == [3.0, 3.0, 3.0]
    assert all("If-None-Match" in headers for headers in gateway.requests("GET")[1:])


async def test_watch_tells_each_change_once(client: Client, gateway: FakeGateway):
    """A watcher hears of changes, not of polls."""
    made = gateway.add_job()
    gateway.plans[made["id"]] = [
        {},
        {},
        {"state": "active"},
        {},
        {"state": "failed", "exit_code": 3},
    ]
    states = [job.state.value async for job in client.watch(made["id"])]
    assert states == ["new", "active", "failed"]


async def test_wait_gives_up_after_its_timeout(
    client: Client, gateway: FakeGateway, clock: HurriedClock
):
    """A job that does not end in time raises, and was asked for last at the very end."""
    made = gateway.add_job()
    with pytest.raises(WaitTimeoutError, match="10 seconds"):
        await client.wait(made["id"], timeout=10)
    assert clock.monotonic() == pytest.approx(10, abs=0.2)


async def test_public_and_personal_descriptions(client: Client):
    """Site, identity and clusters read as values."""
    site = await client.site()
    assert [node.host for node in site.login_nodes] == ["login.example.org"]
    assert (await client.me()).account == "alice"
    (cluster,) = await client.clusters()
    assert cluster.queues[0].max_duration == 3600


async def test_site_needs_no_token(gateway: FakeGateway):
    """The public description is read without a token, and none is sent."""
    async with Client(gateway.url) as client:
        assert (await client.site()).version == "9.9"
    assert "Authorization" not in gateway.requests("GET")[0]


async def test_something_else_at_the_address(client: Client, gateway: FakeGateway):
    """JSON that is not the interface's is named as such."""
    made = gateway.add_job()
    del made["state"]
    with pytest.raises(UnexpectedAnswerError, match="address right"):
        await client.job(made["id"])


async def test_a_token_does_not_travel_in_the_clear():
    """Plain HTTP to another machine needs an explicit word."""
    with pytest.raises(ValueError, match="not HTTPS"):
        Client("http://gateway.example.org", token="good")
    Client("http://gateway.example.org", token="good", insecure=True)


async def test_the_job_is_json_again(client: Client, gateway: FakeGateway):
    """A job can be encoded, for programs that pass it on."""
    job = await client.job(gateway.add_job()["id"])
    assert json.loads(msgspec.json.encode(job))["created_at"] == "2026-01-01T12:00:00Z"
