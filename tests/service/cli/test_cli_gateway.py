"""The client and the command against the gateway's own interface, with an issuer's own tokens."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from headgate.client import (
    Attributes,
    AuthenticationError,
    Client,
    ForbiddenError,
    InvalidRequestError,
    JobSpec,
    JobState,
    NotFoundError,
    Resources,
    UnprocessableError,
)
from testbed.issuer.core import Issuer
from tests.service.cli.command_line import CommandLine
from tests.service.cli.real_gateway import OUTPUT, RealGateway, running


@pytest.fixture
async def real(tmp_path: Path, issuer: Issuer) -> AsyncIterator[RealGateway]:
    """The gateway, listening."""
    async with running(tmp_path, issuer.url, "headgate-cli") as listening:
        yield listening


@pytest.fixture
async def client(real: RealGateway, issuer: Issuer) -> AsyncIterator[Client]:
    """A client with alice's token."""
    token = issuer.mint("alice", audience=("gateway",)).token
    async with Client(real.url, token=token) as opened:
        yield opened


async def test_a_job_from_submission_to_its_end(client: Client, real: RealGateway):
    """Every verb of the client is understood by the gateway, and every answer by the client."""
    spec = JobSpec(
        executable="python",
        arguments=["x.py"],
        name="train",
        environment={"A": "1"},
        resources=Resources(gpu_cores_per_process=1, memory=2**30),
        attributes=Attributes(duration=60, queue_name="gpu"),
    )
    job = await client.submit(spec, idempotency_key="k")
    assert job.state is JobState.NEW
    assert job.spec == await _spec(client, job.id)
    assert (await client.submit(spec, idempotency_key="k")).id == job.id
    changes = client.watch(job.id)
    assert (await anext(changes)).state is JobState.NEW
    await real.end(job.id, 3)
    ended = [change async for change in changes][-1]
    assert (ended.state, ended.exit_code, ended.native_id) == (JobState.FAILED, 3, "7")
    assert await client.stdout(job.id) == OUTPUT
    assert (await client.cancel(job.id)).state is JobState.FAILED


async def _spec(client: Client, job_id: str) -> JobSpec | None:
    return (await client.job(job_id)).spec


async def test_lists_are_complete(client: Client):
    """Pages of the gateway's cursor give every job once, newest first."""
    made = [(await client.submit(JobSpec(executable="x"))).id for _ in range(7)]
    assert [job.id async for job in client.jobs(page_size=3)] == made[::-1]
    assert [job.id async for job in client.jobs(state=JobState.ACTIVE)] == []


async def test_descriptions(client: Client, real: RealGateway):
    """Site, identity and clusters read as values."""
    site = await client.site()
    assert site.issuers[0].audiences == ["gateway", "tokens"]
    (cluster,) = await client.clusters()
    assert (cluster.queues[0].gpus_per_node, cluster.queues[0].max_duration) == (4, 3600)
    real.registry.state = "blocked"
    me = await client.me()
    assert (me.state, me.account, me.reason) == ("blocked", "alice", "Left.")


async def test_refusals_are_typed(client: Client, real: RealGateway):
    """Each refusal of the gateway is its own exception with its code."""
    with pytest.raises(UnprocessableError) as too_many:
        await client.submit(JobSpec(executable="x", resources=Resources(gpu_cores_per_process=9)))
    assert too_many.value.code == "too_many_gpus"
    with pytest.raises(InvalidRequestError) as invalid:
        await client.submit(JobSpec(executable="", attributes=Attributes(duration=0)))
    assert [f.pointer for f in invalid.value.problem.errors] == [
        "/attributes/duration",
        "/executable",
    ]
    with pytest.raises(NotFoundError):
        await client.job("00000000-0000-4000-8000-000000000000")
    await client.submit(JobSpec(executable="a"), idempotency_key="same")
    with pytest.raises(UnprocessableError) as reused:
        await client.submit(JobSpec(executable="b"), idempotency_key="same")
    assert reused.value.code == "idempotency_key_reused"
    real.registry.state = "blocked"
    with pytest.raises(ForbiddenError) as blocked:
        await client.submit(JobSpec(executable="x"))
    assert blocked.value.code == "account_blocked"


async def test_a_token_for_another_service(real: RealGateway, issuer: Issuer):
    """A token that the gateway refuses is asked for once more, and used if it is good."""
    given = iter(["elsewhere", "gateway"])

    def token() -> str:
        return issuer.mint("alice", audience=(next(given),)).token

    async with Client(real.url, token=token) as client:
        assert (await client.me()).account == "alice"
    bad = issuer.mint("alice", audience=("gateway",), lifetime=-100).token
    async with Client(real.url, token=bad) as client:
        with pytest.raises(AuthenticationError, match="expired"):
            await client.me()


async def test_the_command(real: RealGateway, issuer: Issuer, tmp_path: Path):
    """Submit, list, show, logs, cancel, whoami as processes."""
    token = issuer.mint("alice", audience=("gateway",)).token
    headgate = CommandLine(tmp_path, {"HEADGATE_SITE": real.url, "HEADGATE_TOKEN": token})
    assert (await headgate.json("whoami"))["account"] == "alice"
    done = (await headgate("job", "submit", "--nodes", "1", "--gpus", "1", "--", "x")).checked()
    job_id = done.stdout.decode().strip()
    cancel = (await headgate("job", "cancel", job_id[:8])).checked()
    assert "is being canceled" in cancel.stderr.decode()
    shown = (await headgate("job", "show", job_id[:8])).checked().stdout.decode()
    assert "new (being canceled)" in shown
    await real.end(job_id, 0)
    assert (await headgate("job", "logs", job_id)).checked().stdout == OUTPUT
    jobs = (await headgate.json("job", "list", "--state", "completed"))["jobs"]
    assert [job["id"] for job in jobs] == [job_id]
    refused = await headgate("job", "submit", "--gpus", "9", "--queue", "gpu", "--", "x")
    assert "--gpus (/resources/gpu_cores_per_process): 9 GPUs" in refused.stderr.decode()
