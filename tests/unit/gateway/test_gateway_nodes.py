"""The breaker and the gate of a login node, under a clock that is held."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest

from gateway.sessions.nodes import LAST_PAUSE, STUCK_USERS, Node
from gateway.sessions.session import (
    LoginStuck,
    NodeAway,
    NotAdmitted,
    SessionUnavailable,
)
from headgate.clock import HeldClock


@dataclass
class Bench:
    """A node of which the test says how it greets."""

    clock: HeldClock = field(default_factory=HeldClock)
    greeting: str = ""
    looked: int = 0

    def __post_init__(self) -> None:
        """Put it together."""
        self.node = Node("login1:22", clock=self.clock, handshakes=8, greeting=self.greets)

    async def greets(self) -> str:
        """As the test said."""
        self.looked += 1
        return self.greeting

    async def login(self, failure: Exception | None = None, account: str = "alice") -> None:
        """One login, which ends as the test says."""
        async with self.node.attempt(account):
            await asyncio.sleep(0)
            if failure is not None:
                raise failure

    async def fails(self, failure: Exception, account: str = "alice") -> None:
        """One login that fails so."""
        with pytest.raises(type(failure)):
            await self.login(failure, account)

    async def pass_(self, seconds: float) -> None:
        """Time passes, and what is due happens."""
        for _ in range(5):
            await asyncio.sleep(0)
        self.clock.advance(seconds)
        for _ in range(5):
            await asyncio.sleep(0)


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    """A node that is up."""
    made = Bench()
    yield made
    await made.node.close()


async def test_a_node_that_is_down_is_told_at_once_and_looked_at_ever_more_rarely(bench: Bench):
    """One failure is enough; nobody waits after it, and nobody's login is spent on looking."""
    bench.greeting = "connection refused"
    await bench.fails(NodeAway("away"))
    for _ in range(100):
        with pytest.raises(NodeAway, match="away"):
            await bench.login()
    for seconds in (0.25, 0.5, 1, 2, 4, 8, LAST_PAUSE, LAST_PAUSE):
        before = bench.looked
        await bench.pass_(seconds - 0.125)
        assert bench.looked == before
        await bench.pass_(0.125)
        assert bench.looked == before + 1
    with pytest.raises(NodeAway, match="connection refused"):
        await bench.login()


async def test_when_it_greets_again_one_login_tries_and_then_all_may(bench: Bench):
    """The others are still told at once, until that one has shown that the node is up."""
    await bench.fails(NodeAway("away"))
    await bench.pass_(1)
    assert not bench.node.down
    go_on = asyncio.Event()

    async def trial() -> None:
        async with bench.node.attempt("alice"):
            await go_on.wait()

    trying = asyncio.create_task(trial())
    await asyncio.sleep(0)
    with pytest.raises(NodeAway):
        await bench.login()
    go_on.set()
    await trying
    await bench.login()
    assert bench.node.fault == ""


async def test_a_trial_that_is_given_up_leaves_the_place_to_the_next(bench: Bench):
    """Who goes away while they try decide nothing."""
    await bench.fails(NodeAway("away"))
    await bench.pass_(1)

    async def trial() -> None:
        async with bench.node.attempt("alice"):
            await asyncio.Event().wait()

    trying = asyncio.create_task(trial())
    await asyncio.sleep(0)
    trying.cancel()
    await asyncio.gather(trying, return_exceptions=True)
    await bench.login()


async def test_a_trial_that_hangs_closes_the_node_again(bench: Bench):
    """A node that greets and lets nobody in costs one login for each pause."""
    await bench.fails(NodeAway("away"))
    await bench.pass_(1)
    await bench.fails(LoginStuck("no answer"))
    assert bench.node.down


async def test_one_users_hanging_home_is_not_the_nodes_fault(bench: Bench):
    """However often that user's logins hang; several users in a row, and it is."""
    for _ in range(10):
        await bench.fails(LoginStuck("no answer"))
    await bench.login(account="bob")
    for number in range(STUCK_USERS - 1):
        await bench.fails(LoginStuck("no answer"), f"user{number}")
    assert not bench.node.down
    await bench.fails(LoginStuck("no answer"), "another")
    assert bench.node.down


async def test_a_node_that_refuses_somebody_is_up(bench: Bench):
    """A refusal is an answer."""
    await bench.fails(NotAdmitted("refused"))
    await bench.fails(SessionUnavailable("no session program"))
    assert bench.node.fault == ""


async def test_at_most_eight_knock_at_a_time(bench: Bench):
    """A hundred come; sshd sees eight, and whoever is let in makes room at once."""
    now = most = 0
    inside = asyncio.Event()

    async def come() -> None:
        nonlocal now, most
        async with bench.node.attempt("alice") as admitted:
            now += 1
            most = max(most, now)
            await asyncio.sleep(0)
            now -= 1
            admitted()
            await inside.wait()

    coming = [asyncio.create_task(come()) for _ in range(100)]
    for _ in range(100):
        await asyncio.sleep(0)
    assert (most, now) == (8, 0)
    inside.set()
    await asyncio.gather(*coming)
    with contextlib.suppress(NodeAway):
        await bench.login()
    assert bench.node._room._value == 8


async def test_who_waits_for_room_when_the_node_goes_down_does_not_go_on(bench: Bench):
    """Nobody knocks at a node that was found to be down while they waited."""
    go_on = asyncio.Event()

    async def come() -> None:
        async with bench.node.attempt("alice"):
            await go_on.wait()
            raise NodeAway("away")

    coming = [asyncio.create_task(come()) for _ in range(50)]
    await asyncio.sleep(0)
    go_on.set()
    ends = await asyncio.gather(*coming, return_exceptions=True)
    assert all(isinstance(end, NodeAway) for end in ends)
