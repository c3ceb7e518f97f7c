"""The gateway while what it depends on is away, hangs or breaks, and while it is ended itself."""

import asyncio
import re
import signal
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from testbed.caller import Caller
from testbed.embedded import SLURM, EmbeddedSite
from testbed.waiting import until

OK = {"executable": "/bin/true"}
MEGABYTE = 1024 * 1024
PRINTS = (
    f"head -c {8 * MEGABYTE} /dev/zero; touch printed; while [ ! -e stop ]; do sleep 0.05; done"
)
TROUBLE = re.compile(r'Traceback|"bug"|"turn_failed"|"send_failed"|never retrieved|never awaited')


@pytest.fixture
def trouble(site: EmbeddedSite) -> Any:
    """What the gateway has logged since the test began that no fault explains."""
    log = site.path("log", "gateway.log")
    before = log.stat().st_size

    def found() -> list[str]:
        lines = log.read_bytes()[before:].decode(errors="replace").splitlines()
        return [line[:2000] for line in lines if TROUBLE.search(line)]

    return found


async def rows(caller: Caller) -> set[str]:
    """The ids of the caller's jobs."""
    answer = await caller("GET", "/v1/jobs?limit=1000")
    return {job["id"] for job in answer.json["jobs"]}


@pytest.mark.parametrize("service", ["accounts", "tokens"])
async def test_without_a_service_it_needs_nothing_is_admitted(
    site: EmbeddedSite, as_bearer: Any, trouble: Any, service: str
):
    """Registry or translator away: 503 with Retry-After, no job; afterwards all is well."""
    carol = as_bearer(await site.token("carol"))
    await carol.run("true")
    before = await rows(carol)
    headers = {"Idempotency-Key": str(uuid.uuid4())}
    await site.signal(service, signal.SIGKILL)
    try:
        await asyncio.sleep(2.1)  # an account that was just asked for is known that long
        answer = await carol("POST", "/v1/jobs", json=OK, headers=headers)
        assert (answer.status, answer.json["retryable"]) == (503, True)
        assert int(answer.headers["Retry-After"]) > 0
        assert await rows(carol) == before
    finally:
        await site.start(service)
    again = await carol("POST", "/v1/jobs", json=OK, headers=headers)
    if again.status == 503:  # who was just found away is not asked again at once
        await asyncio.sleep(int(again.headers["Retry-After"]))
        again = await carol("POST", "/v1/jobs", json=OK, headers=headers)
    assert again.status == 201
    assert (await carol.until(again.json["id"]))["state"] == "completed"
    assert trouble() == []


async def test_a_cluster_that_hangs_keeps_no_submission_waiting(site: EmbeddedSite, alice: Any):
    """A gateway that has never read its cluster admits jobs at once, and sends them later."""
    await site.signal(SLURM, signal.SIGSTOP)
    try:
        await site.signal("gateway", signal.SIGKILL)
        await site.start("gateway")
        async with asyncio.timeout(8):
            jobs = await asyncio.gather(*(alice.submit("true") for _ in range(20)))
    finally:
        await site.signal(SLURM, signal.SIGCONT)
    ended = await asyncio.gather(*(alice.until(job["id"]) for job in jobs))
    assert {job["state"] for job in ended} == {"completed"}


async def test_two_hundred_requests_at_once_make_one_job_for_each_key(alice: Any, trouble: Any):
    """Every request is answered with the job of its key, and no key has two."""
    before = await rows(alice)
    keys = [str(uuid.uuid4()) for _ in range(20)]

    async def post(key: str) -> tuple[str, int, str]:
        answer = await alice("POST", "/v1/jobs", json=OK, headers={"Idempotency-Key": key})
        return key, answer.status, answer.json["id"]

    answers = await asyncio.gather(*(post(key) for key in keys for _ in range(10)))
    assert {status for _, status, _ in answers} == {201}
    made = {(key, row) for key, _, row in answers}
    assert len(made) == len(keys) == len({row for _, row in made})
    assert await rows(alice) - before == {row for _, row in made}
    ended = await asyncio.gather(*(alice.until(row) for _, row in made))
    assert {job["state"] for job in ended} == {"completed"}
    assert trouble() == []


@pytest.fixture
async def printing(alice: Any) -> AsyncIterator[dict[str, Any]]:
    """A job that has printed eight megabytes and goes on."""
    job = await alice.submit(PRINTS)
    directory = Path(job["directory"])
    await until((directory / "printed").exists, seconds=30)
    yield job
    (directory / "stop").touch()
    await alice.until(job["id"])


def reading(
    session: aiohttp.ClientSession, site: EmbeddedSite, alice: Caller, job: dict[str, Any]
) -> Any:
    """An open answer with a job's output."""
    url = f"{site.addresses.gateway}/v1/jobs/{job['id']}/stdout"
    return session.get(url, headers={"Authorization": f"Bearer {alice.token}"})


async def test_callers_who_leave_in_the_middle_are_no_trouble(
    site: EmbeddedSite, alice: Any, printing: dict[str, Any], trouble: Any
):
    """Connections cut during an answer cost nothing, and the next caller is served."""
    async with aiohttp.ClientSession() as session:
        for _ in range(5):
            async with reading(session, site, alice, printing) as response:
                await response.content.readexactly(1000)
                response.connection.transport.abort()
    assert len((await alice("GET", f"/v1/jobs/{printing['id']}/stdout")).body) == 8 * MEGABYTE
    assert trouble() == []


async def test_a_slow_reader_holds_up_nobody(
    site: EmbeddedSite, alice: Any, printing: dict[str, Any]
):
    """While twenty answers of a user wait to be taken, the same user's jobs run."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        waiting = [reading(session, site, alice, printing) for _ in range(20)]
        for answer in waiting:
            assert (await answer.__aenter__()).status == 200
        async with asyncio.timeout(20):
            assert (await alice.run("true"))["state"] == "completed"
        for answer in waiting:
            await answer.__aexit__(None, None, None)


async def test_a_gateway_that_is_ended_leaves_no_traceback(
    site: EmbeddedSite, alice: Any, trouble: Any
):
    """SIGTERM under load: what was begun is answered, jobs are kept, nothing is logged as a bug."""

    async def post() -> str | None:
        try:
            answer = await alice("POST", "/v1/jobs", json=OK)
        except aiohttp.ClientError:
            return None  # it came too late to be heard
        assert answer.status == 201
        return str(answer.json["id"])

    posting = [asyncio.create_task(post()) for _ in range(50)]
    await asyncio.wait(posting, return_when="FIRST_COMPLETED")
    await site.stop("gateway")
    accepted = [row for row in await asyncio.gather(*posting) if row is not None]
    await site.start("gateway")
    ended = await asyncio.gather(*(alice.until(row) for row in accepted))
    assert accepted
    assert {job["state"] for job in ended} == {"completed"}
    assert trouble() == []
