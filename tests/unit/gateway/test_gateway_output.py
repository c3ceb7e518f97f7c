"""How output reaches a caller, above all when it cannot be read to its end."""

from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import aiohttp
import pytest

from gateway.v1.routes import Api
from gateway.v1.site import Site
from headgate.clock import SystemClock
from headgate.identity import Identity, Principal
from headgate.problems import NotFound, Problem, Unavailable
from headgate.service import ListenSettings, listening


class FakeJobs:
    """Jobs of which the output breaks off."""

    def __init__(self) -> None:
        self.chunks: list[bytes] = []
        self.problem: Problem | None = None
        self.closed = 0

    async def output(self, *_: object, **__: object) -> AsyncGenerator[bytes]:
        """The chunks, then the problem."""
        try:
            for chunk in self.chunks:
                yield chunk
            if self.problem is not None:
                raise self.problem
        finally:
            self.closed += 1


class FakeVerifier:
    """Believes everybody."""

    async def verify(self, token: str) -> Principal:
        """A principal."""
        return Principal(
            identity=Identity("https://iam/", token),
            audience=("gateway",),
            scopes=frozenset(),
            groups=frozenset(),
            client_id="",
            expires_at=SystemClock().now(),
        )


@pytest.fixture
def jobs() -> FakeJobs:
    """What the interface asks."""
    return FakeJobs()


@pytest.fixture
async def url(jobs: Any) -> AsyncIterator[str]:
    """A gateway's interface on top of it."""
    verifier: Any = FakeVerifier()
    nothing: Any = None
    api = Api(
        jobs=jobs,
        clusters=nothing,
        registry=nothing,
        verifier=verifier,
        site=Site(url="http://g", login=(), issuers=()),
        clock=SystemClock(),
    )
    async with listening(api.application({}), ListenSettings()) as address:
        yield f"{address}/v1/jobs/1/stdout"


async def read(url: str) -> tuple[int, bytes]:
    """Status and body; raises when the answer is not whole."""
    async with (
        aiohttp.ClientSession(headers={"Authorization": "Bearer alice"}) as session,
        session.get(url) as response,
    ):
        return response.status, await response.read()


async def test_output_comes_whole(jobs: FakeJobs, url: str):
    """All chunks, in order; none is an empty answer."""
    jobs.chunks = [b"a", b"b"]
    assert await read(url) == (200, b"ab")
    jobs.chunks = []
    assert await read(url) == (200, b"")
    assert jobs.closed == 2


async def test_what_fails_before_the_first_byte_is_a_problem(jobs: FakeJobs, url: str):
    """Nothing printed yet is a 404, a login node that is away a 503."""
    for problem, status in ((NotFound("none"), 404), (Unavailable("away"), 503)):
        jobs.problem = problem
        found, body = await read(url)
        assert (found, b'"retryable"' in body) == (status, True)


async def test_an_answer_that_breaks_off_is_seen_to_do_so(jobs: FakeJobs, url: str):
    """No caller takes half an output, or a problem in the middle of it, for the whole."""
    jobs.chunks, jobs.problem = [b"a" * 1000], Unavailable("away")
    with pytest.raises((aiohttp.ClientPayloadError, aiohttp.ServerDisconnectedError)):
        await read(url)
    assert jobs.closed == 1
