"""What the client does when answers get lost, come late, or say "not now"."""

import asyncio

import aiohttp
import pytest

from headgate.client import (
    AuthenticationError,
    Client,
    JobSpec,
    RetryPolicy,
    UnavailableError,
    UnexpectedAnswerError,
    UnreachableError,
)
from tests.service.client.fake_gateway import FakeGateway
from tests.service.client.hurried_clock import HurriedClock

SPEC = JobSpec(executable="true")


@pytest.fixture
async def client(gateway: FakeGateway, clock: HurriedClock):
    """A client of the fake gateway with a good token."""
    async with Client(gateway.url, token="good", clock=clock) as opened:
        yield opened


@pytest.mark.parametrize("fault", ["drop", "refuse", "busy", "limited", "proxy"])
async def test_a_repeated_submission_is_one_job(client: Client, gateway: FakeGateway, fault: str):
    """Whatever happened to the first answers, the same key is sent and one job exists."""
    gateway.faults = [("POST", fault)] * 3
    job = await client.submit(SPEC)
    keys = {headers["Idempotency-Key"] for headers in gateway.requests("POST")}
    assert len(gateway.requests("POST")) == 4
    assert len(keys) == 1
    assert list(gateway.jobs) == [job.id]


async def test_each_submission_has_a_key_of_its_own(client: Client, gateway: FakeGateway):
    """Two calls are two jobs, though their specs are equal."""
    await client.submit(SPEC)
    await client.submit(SPEC)
    assert len(gateway.jobs) == 2


async def test_retry_after_is_kept(client: Client, gateway: FakeGateway, clock: HurriedClock):
    """The pause is the one the gateway asked for."""
    gateway.retry_after = "7"
    gateway.faults = [("GET", "busy"), ("GET", "limited")]
    await client.me()
    assert clock.slept == [7.0, 7.0]


async def test_a_wish_beyond_the_deadline_fails_at_once(
    client: Client, gateway: FakeGateway, clock: HurriedClock
):
    """Nobody waits for a service that asks for more time than the call has."""
    gateway.retry_after = "3600"
    gateway.faults = [("GET", "busy")]
    with pytest.raises(UnavailableError, match="Not now") as caught:
        await client.me()
    assert caught.value.retry_after == 3600
    assert clock.slept == []


async def test_the_deadline_bounds_all_attempts(
    client: Client, gateway: FakeGateway, clock: HurriedClock
):
    """A service that stays away is given up after the deadline, with its last words."""
    gateway.faults = [("GET", "proxy")] * 1000
    with pytest.raises(UnavailableError, match="502"):
        await client.me()
    assert clock.monotonic() <= 60
    assert len(clock.slept) < 20


async def test_nobody_there(clock: HurriedClock, unused_port: int):
    """A refused connection is retried, then named."""
    async with Client(f"http://127.0.0.1:{unused_port}", token="t", clock=clock) as client:
        with pytest.raises(UnreachableError, match="does not answer: the connection was refused"):
            await client.me()
    assert len(clock.slept) > 3


@pytest.fixture
async def unused_port():
    """A port on which nobody listens any more."""
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    return port


async def test_a_slow_server_is_a_lost_answer(clock: HurriedClock):
    """An attempt that takes too long is repeated within the deadline."""
    silent = await asyncio.start_server(lambda _reader, writer: writers.append(writer), "::1", 0)
    writers: list[asyncio.StreamWriter] = []
    port = silent.sockets[0].getsockname()[1]
    policy = RetryPolicy(deadline=1.0, attempt=0.1)
    try:
        async with Client(f"http://[::1]:{port}", token="t", clock=clock, policy=policy) as client:
            with pytest.raises(UnreachableError, match="took too long"):
                await client.me()
    finally:
        for writer in writers:
            writer.close()
            await writer.wait_closed()
        silent.close()
        await silent.wait_closed()
    assert len(writers) > 1


async def test_a_refused_token_is_asked_for_once_more(gateway: FakeGateway, clock: HurriedClock):
    """After 401 the callback is asked again, and the same request goes on with the new token."""
    given = iter(["stale", "good"])

    async def token() -> str:
        return next(given)

    async with Client(gateway.url, token=token, clock=clock) as client:
        await client.submit(SPEC)
        await client.submit(SPEC)
    assert [h["Authorization"] for h in gateway.requests("POST")] == [
        "Bearer stale",
        "Bearer good",
        "Bearer good",
    ]
    keys = [h["Idempotency-Key"] for h in gateway.requests("POST")]
    assert keys[0] == keys[1] != keys[2]


async def test_a_token_that_stays_refused_is_an_error(gateway: FakeGateway, clock: HurriedClock):
    """The callback is asked twice and no more, whatever it says."""
    asked = []

    def token() -> str:
        asked.append(1)
        return f"bad-{len(asked)}"

    async with Client(gateway.url, token=token, clock=clock) as client:
        with pytest.raises(AuthenticationError, match="expired"):
            await client.me()
    assert len(asked) == 2


async def test_a_fixed_token_is_not_sent_twice(gateway: FakeGateway, clock: HurriedClock):
    """Without a callback there is nothing to try again with."""
    async with Client(gateway.url, token="bad", clock=clock) as client:
        with pytest.raises(AuthenticationError):
            await client.me()
    assert len(gateway.seen) == 1


async def test_requests_refused_together_ask_once(gateway: FakeGateway, clock: HurriedClock):
    """Many requests with one stale token lead to one question for a new one."""
    asked = []

    async def token() -> str:
        asked.append(1)
        await asyncio.sleep(0)
        return "stale" if len(asked) == 1 else "good"

    async with Client(gateway.url, token=token, clock=clock) as client:
        await asyncio.gather(*(client.me() for _ in range(5)))
    assert len(asked) == 2


async def test_no_redirect_is_followed(client: Client, gateway: FakeGateway):
    """A token is not carried to where a redirect points; the address is named instead."""
    gateway.faults = [("GET", "moved")]
    with pytest.raises(UnexpectedAnswerError, match=r"elsewhere\.example\.org"):
        await client.me()


async def test_output_survives_a_broken_connection(client: Client, gateway: FakeGateway):
    """A piece that was lost is read again, none is doubled."""
    gateway.page_bytes = 4
    made = gateway.add_job(state="completed")
    gateway.output[made["id"]] = b"0123456789"
    gateway.faults = [("GET", "drop"), ("GET", "busy"), ("GET", "drop")]
    assert await client.stdout(made["id"]) == b"0123456789"


async def test_a_wait_outlives_an_outage(client: Client, gateway: FakeGateway, clock: HurriedClock):
    """Minutes without an answer do not end a wait."""
    made = gateway.add_job(state="active")
    gateway.plans[made["id"]] = [{}, {"state": "completed", "exit_code": 0}]
    waiting = client.watch(made["id"])
    await anext(waiting)
    gateway.faults = [("GET", "proxy")] * 20
    last = [job async for job in waiting][-1]
    assert last.state.value == "completed"
    assert clock.monotonic() > 60


async def test_retries_are_told(gateway: FakeGateway, clock: HurriedClock):
    """An observer hears why and how long."""
    told = []
    gateway.retry_after = "2"
    gateway.faults = [("GET", "busy")]
    async with Client(gateway.url, token="good", clock=clock, on_retry=told.append) as client:
        await client.me()
    assert [(retry.failures, retry.pause) for retry in told] == [(1, 2.0)]


async def test_a_session_that_was_given_stays_open(gateway: FakeGateway, clock: HurriedClock):
    """The client closes only what it opened."""
    async with aiohttp.ClientSession() as session:
        async with Client(gateway.url, token="good", session=session, clock=clock) as client:
            await client.me()
        assert not session.closed
