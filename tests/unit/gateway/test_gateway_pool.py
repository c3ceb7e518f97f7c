"""Kept sessions: lent, given back, retired while in use, and what happens when opening fails."""

import asyncio
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from gateway.sessions.credentials import Credentials, IssuedCertificate
from gateway.sessions.pool import IN_FLIGHT, MAX_AGE, SessionPool, User
from gateway.sessions.session import SessionUnavailable
from headgate.clock import HeldClock
from headgate.identity import Identity

ALICE = User(Identity("https://iam.example.org/", "alice"), "main", "alice")


@dataclass
class FakeSession:
    """A session of which only its life matters."""

    alive: bool = True
    closed: bool = False
    idle: asyncio.Event = field(default_factory=asyncio.Event)

    async def drain(self) -> None:
        """Return when the test says that nothing is under way."""
        await self.idle.wait()

    async def close(self) -> None:
        """Hang up."""
        self.alive, self.closed = False, True


@dataclass
class FakeConnector:
    """Opens fake sessions, or fails."""

    opened: list[FakeSession] = field(default_factory=list)
    failure: Exception | None = None

    async def connect(self, account: str, credentials: Credentials) -> Any:
        """A session."""
        del account, credentials
        await asyncio.sleep(0)
        if self.failure is not None:
            raise self.failure
        self.opened.append(FakeSession())
        return self.opened[-1]


@dataclass
class Bench:
    """A pool with its parts."""

    clock: HeldClock = field(default_factory=HeldClock)
    connector: FakeConnector = field(default_factory=FakeConnector)

    def __post_init__(self) -> None:
        """Put it together."""
        self.pool = SessionPool(connectors={"main": self.connector}, clock=self.clock)

    async def certify(self, public_key: str) -> IssuedCertificate:
        """A certificate of an hour."""
        del public_key
        return IssuedCertificate("certificate", self.clock.now() + timedelta(hours=1))


@pytest.fixture
async def bench() -> Any:
    """A fresh pool, closed in the end."""
    made = Bench()
    yield made
    await made.pool.close()


async def test_one_session_serves_all_requests_of_a_user(bench: Bench):
    """Many at a time open one session."""

    async def ask() -> None:
        async with bench.pool.with_token(ALICE, bench.certify) as session:
            assert session.alive
            await asyncio.sleep(0)

    await asyncio.gather(*(ask() for _ in range(3 * IN_FLIGHT)))
    assert len(bench.connector.opened) == 1


async def test_a_session_that_ends_while_somebody_waits_for_room_is_replaced(bench: Bench):
    """Who waited for room gets a living session, not the one that was there when they came."""
    inside = asyncio.Event()
    leave = asyncio.Event()

    async def occupy() -> None:
        async with bench.pool.with_token(ALICE, bench.certify):
            inside.set()
            await leave.wait()

    occupants = [asyncio.create_task(occupy()) for _ in range(IN_FLIGHT)]
    await inside.wait()
    alive: list[bool] = []

    async def wait_for_room() -> None:
        async with bench.pool.with_token(ALICE, bench.certify) as session:
            alive.append(session.alive)

    waiter = asyncio.create_task(wait_for_room())
    await asyncio.sleep(0)
    bench.connector.opened[0].alive = False
    await bench.pool.sweep()
    leave.set()
    await asyncio.gather(*occupants, waiter)
    assert alive == [True]
    assert len(bench.connector.opened) == 2


async def test_a_retired_session_ends_when_nothing_is_under_way(bench: Bench):
    """At the end of its time a session is lent no more; who has it may finish."""
    async with bench.pool.with_token(ALICE, bench.certify) as session:
        bench.clock.advance(MAX_AGE.total_seconds() + 1)
        await bench.pool.sweep()
        await asyncio.sleep(0)
        assert session.alive
        async with bench.pool.with_token(ALICE, bench.certify) as other:
            assert other is not session
    bench.connector.opened[0].idle.set()
    for _ in range(3):
        await asyncio.sleep(0)
    assert bench.connector.opened[0].closed


async def test_nothing_is_kept_of_users_who_left(bench: Bench):
    """A user without a session, a request or an opening takes no room in the pool."""
    async with bench.pool.without_token(ALICE, bench.certify):
        await bench.pool.sweep()
        assert bench.pool._kept
    await bench.pool.sweep()
    assert not bench.pool._kept
    assert all(session.closed for session in bench.connector.opened)


@pytest.mark.parametrize("failure", [SessionUnavailable("away"), ValueError("a surprise")])
async def test_an_opening_that_fails_is_told_and_tried_again(bench: Bench, failure: Exception):
    """Whatever went wrong, the caller hears that there is no session, and the next one may."""
    bench.connector.failure = failure
    with pytest.raises(SessionUnavailable):
        async with bench.pool.with_token(ALICE, bench.certify):
            pass
    bench.connector.failure = None
    async with bench.pool.with_token(ALICE, bench.certify) as session:
        assert session.alive


async def test_a_cancelled_request_gives_its_room_back(bench: Bench):
    """Callers that give up, inside and while they wait, leave no place taken."""
    entered = asyncio.Event()

    async def stay() -> None:
        async with bench.pool.with_token(ALICE, bench.certify):
            entered.set()
            await asyncio.Event().wait()

    tasks = [asyncio.create_task(stay()) for _ in range(2 * IN_FLIGHT)]
    await entered.wait()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    async with asyncio.timeout(1), bench.pool.with_token(ALICE, bench.certify) as session:
        assert session.alive


async def test_closing_ends_what_is_being_opened(bench: Bench):
    """A pool that is closed while a session opens leaves neither task nor session behind."""
    bench.pool.offer(ALICE, bench.certify)
    await bench.pool.close()
    assert all(session.closed for session in bench.connector.opened)
