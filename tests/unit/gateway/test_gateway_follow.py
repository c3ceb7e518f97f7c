"""Output that is followed: while nothing is printed, at the job's end, when nobody listens."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from gateway.jobs import Job, State
from gateway.sessions.session import SessionRefused
from gateway.submission import FOLLOW_SECONDS, Jobs
from headgate.identity import Principal
from headgate.problems import NotFound
from tests.unit.gateway.recovery_world import World


class Printing:
    """A session of a job that prints what the test says."""

    def __init__(self) -> None:
        self.printed = b""
        self.looks = 0

    @contextlib.asynccontextmanager
    async def with_token(self, *_: object) -> AsyncIterator[Any]:
        """It."""
        yield self

    async def read(self, *_: object, offset: int, limit: int) -> AsyncIterator[bytes]:
        """What was printed so far."""
        self.looks += 1
        if not self.printed:
            raise SessionRefused("no_file", "")
        yield self.printed[offset : offset + limit]

    async def active_account(self, *_: object) -> None:
        """As the registry: everybody is."""


class Bench:
    """A job of alice's that is followed."""

    def __init__(self, world: World, job: Job) -> None:
        self.world, self.job, self.session = world, job, Printing()
        own: Any = self.session
        translator: Any = _Translator()
        nothing: Any = None
        self.jobs = Jobs(
            store=world.store,
            clusters=nothing,
            registry=own,
            translator=translator,
            pool=own,
            clock=world.clock,
            wake=nothing,
        )
        self.principal = Principal(
            identity=job.owner,
            audience=("gateway",),
            scopes=frozenset(),
            groups=frozenset(),
            client_id="",
            expires_at=world.clock.now() + timedelta(hours=1),
        )
        self.chunks = self.output(follow=True)

    def output(self, *, follow: bool) -> Any:
        """What comes."""
        return self.jobs.output(
            self.principal,
            "token",
            self.job.id,
            file="stdout",
            offset=0,
            limit=1 << 40,
            follow=follow,
        )

    async def next(self) -> bytes:
        """The next chunk, as much time passing as it takes."""
        asking = asyncio.create_task(anext(self.chunks))
        while not asking.done():
            self.world.clock.advance(FOLLOW_SECONDS)
            await asyncio.sleep(0.001)
        chunk: bytes = await asking
        return chunk

    async def comes_to_its_end(self) -> None:
        """Nothing but empty chunks, a few at most."""
        assert b"".join([chunk async for chunk in self.chunks]) == b""

    async def ends(self) -> None:
        """The job does."""
        job = await self.world.shown(self.job)
        ended = job.ended(State.COMPLETED, self.world.clock.now())
        assert await self.world.store.update(job, ended)


class _Translator:
    def with_token(self, *_: object) -> None:
        """No certificate is needed."""


@pytest.fixture
async def bench(world: World) -> AsyncIterator[Bench]:
    """A job that runs and has printed nothing."""
    made = Bench(world, await world.job(1, state=State.ACTIVE, native_id=1))
    yield made
    await made.chunks.aclose()


async def test_while_nothing_is_printed_the_caller_can_be_looked_at(bench: Bench):
    """Empty chunks come: whoever sends them on sees whether anybody is still there."""
    assert await bench.next() == b""
    assert await bench.next() == b""
    bench.session.printed = b"one\n"
    assert await bench.next() == b"one\n"
    assert await bench.next() == b""
    bench.session.printed += b"two\n"
    assert await bench.next() == b"two\n"


async def test_what_was_printed_last_comes_before_the_end(bench: Bench):
    """Seen to have ended, the job's output is read once more."""
    bench.session.printed = b"one\n"
    assert await bench.next() == b"one\n"
    bench.session.printed += b"last\n"
    await bench.ends()
    assert await bench.next() == b"last\n"
    await bench.comes_to_its_end()


async def test_a_job_that_printed_nothing_ends_what_follows_it(bench: Bench):
    """An empty answer, not an endless one."""
    await bench.ends()
    await bench.comes_to_its_end()


async def test_nobody_follows_longer_than_their_token_is_good(bench: Bench):
    """Its end is the end."""
    assert await bench.next() == b""
    bench.world.clock.advance(3600)
    with pytest.raises(StopAsyncIteration):
        await bench.next()


async def test_without_following_nothing_printed_is_nothing_there(bench: Bench):
    """As before: 404."""
    chunks = bench.output(follow=False)
    with pytest.raises(NotFound):
        await anext(chunks)
    await chunks.aclose()
