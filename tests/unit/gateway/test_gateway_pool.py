"""Kept sessions: lent, given back, retired while in use, and what happens when opening fails."""

import asyncio
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from gateway.sessions.credentials import Credentials, IssuedCertificate
from gateway.sessions.pool import IN_FLIGHT, MAX_AGE, SessionPool
from gateway.sessions.session import NodeAway, SessionDenied, SessionUnavailable
from gateway.sessions.user import User
from headgate.changes import Callback, Change, Stale
from headgate.clock import HeldClock
from headgate.identity import Identity

ALICE = User(Identity("https://iam.example.org/", "alice"), "main", "alice")
BOB = User(Identity("https://iam.example.org/", "bob"), "main", "bob")


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
    away: NodeAway | None = None
    tried: int = 0
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    go_on: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        """Nothing holds it up at first."""
        self.go_on.set()

    async def connect(self, account: str, credentials: Credentials) -> Any:
        """A session."""
        del account, credentials
        self.tried += 1
        self.reached.set()
        await asyncio.sleep(0)
        await self.go_on.wait()
        if self.failure is not None:
            raise self.failure
        self.opened.append(FakeSession())
        return self.opened[-1]

    def require(self) -> None:
        """The node is there, unless the test says otherwise."""
        if self.away is not None:
            raise self.away

    async def greetings(self) -> list[tuple[str, str, str]]:
        """There is no login node."""
        return []

    async def close(self) -> None:
        """Nothing is kept."""


class FakeDenials:
    """A feed that knows what the test says."""

    def __init__(self) -> None:
        self.known = True
        self.held: dict[tuple[Identity, str], str] = {}
        self.callbacks: list[Callback] = []

    def current(self) -> bool:
        """Whether anything is known."""
        return self.known

    def denial(self, identity: Identity, realm: str) -> str | None:
        """As the test said."""
        return self.held.get((identity, "")) or self.held.get((identity, realm))

    def subscribe(self, callback: Callback) -> Any:
        """Tell this one."""
        self.callbacks.append(callback)

        def end() -> None:
            self.callbacks = [one for one in self.callbacks if one is not callback]

        return end

    def deny(self, user: User, realm: str = "") -> None:
        """A hold, heard of at once."""
        self.held[user.identity, realm] = "lost laptop"
        for callback in self.callbacks:
            callback(Change(1, user.identity, realm, effective=False, reason="lost laptop"))

    def fall_silent(self) -> None:
        """Nothing is known any more."""
        self.known = False
        for callback in self.callbacks:
            callback(Stale())


@dataclass
class Bench:
    """A pool with its parts."""

    clock: HeldClock = field(default_factory=HeldClock)
    connector: FakeConnector = field(default_factory=FakeConnector)
    denials: FakeDenials = field(default_factory=FakeDenials)
    certified: int = 0

    def __post_init__(self) -> None:
        """Put it together."""
        self.pool = SessionPool(
            connectors={"main": self.connector},
            realms={"main": "site1"},
            denials=self.denials,
            clock=self.clock,
        )

    async def certify(self, public_key: str) -> IssuedCertificate:
        """A certificate of an hour."""
        del public_key
        self.certified += 1
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


async def rest() -> None:
    """Let what is due happen."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_who_is_denied_loses_every_connection_at_once(bench: Bench):
    """Kept and lent ones alike, what is under way included; others keep theirs."""
    async with (
        bench.pool.without_token(BOB, bench.certify),
        bench.pool.with_token(ALICE, bench.certify) as kept,
    ):
        bench.denials.deny(ALICE)
        await rest()
        bobs, alices = bench.connector.opened
        assert (alices.closed, bobs.closed) == (True, False)
        assert not kept.alive


async def test_a_connection_without_a_token_is_cut_too(bench: Bench):
    """A job that is being sent under a seal does not outlive the suspension either."""
    async with bench.pool.without_token(ALICE, bench.certify) as session:
        bench.denials.deny(ALICE)
        await rest()
        assert not session.alive


async def test_a_session_that_finishes_its_work_is_cut_too(bench: Bench):
    """One that is lent no more and only drains is closed like the others."""
    async with bench.pool.with_token(ALICE, bench.certify):
        pass
    bench.clock.advance(MAX_AGE.total_seconds() + 1)
    await bench.pool.sweep()
    await rest()
    assert not bench.connector.opened[0].closed
    bench.denials.deny(ALICE)
    await rest()
    assert bench.connector.opened[0].closed


async def test_who_is_denied_gets_no_connection(bench: Bench):
    """Neither with a token nor under a seal, and the translator is not even asked."""
    bench.denials.deny(ALICE)
    with pytest.raises(SessionDenied, match="lost laptop"):
        async with bench.pool.with_token(ALICE, bench.certify):
            pass
    with pytest.raises(SessionDenied, match="lost laptop"):
        async with bench.pool.without_token(ALICE, bench.certify):
            pass
    bench.pool.offer(ALICE, bench.certify)
    await rest()
    assert (bench.connector.opened, bench.certified) == ([], 0)


@pytest.mark.parametrize("silent", [False, True])
@pytest.mark.parametrize("kept", [False, True])
async def test_a_connection_that_is_being_opened_is_given_up(
    bench: Bench, *, silent: bool, kept: bool
):
    """What had its certificate before the denial does not come up after it."""

    async def ask() -> None:
        async with bench.pool.without_token(ALICE, bench.certify):
            pass

    bench.connector.go_on.clear()
    if kept:
        bench.pool.offer(ALICE, bench.certify)
    asking = asyncio.create_task(ask())
    await bench.connector.reached.wait()
    await rest()
    if silent:
        bench.denials.fall_silent()
    else:
        bench.denials.deny(ALICE)
    bench.connector.go_on.set()
    with pytest.raises(SessionUnavailable):
        await asking
    assert all(session.closed for session in bench.connector.opened)
    assert bench.certified == 1


async def test_a_hold_of_another_realm_is_none_here(bench: Bench):
    """Clusters of other user bases are not concerned."""
    async with bench.pool.with_token(ALICE, bench.certify) as session:
        bench.denials.deny(ALICE, "site2")
        await rest()
        assert session.alive
        bench.denials.deny(ALICE, "site1")
        await rest()
        assert not session.alive


async def test_silence_closes_everything_and_opens_nothing_until_it_ends(bench: Bench):
    """Who may act is not known then; when it is known again, work goes on."""
    async with bench.pool.with_token(ALICE, bench.certify) as session:
        bench.denials.fall_silent()
        await rest()
        assert not session.alive
    with pytest.raises(SessionUnavailable) as refusal:
        async with bench.pool.without_token(ALICE, bench.certify):
            pass
    assert not isinstance(refusal.value, SessionDenied)
    bench.denials.known = True
    async with bench.pool.with_token(ALICE, bench.certify) as session:
        assert session.alive


async def test_a_silence_nobody_told_of_is_found_by_the_sweep(bench: Bench):
    """Should the feed itself have failed, sessions are closed all the same."""
    async with bench.pool.with_token(ALICE, bench.certify) as session:
        bench.denials.known = False
        await bench.pool.sweep()
        await rest()
        assert not session.alive


async def test_who_may_act_again_gets_a_new_connection(bench: Bench):
    """After the hold is lifted the same person is served as before."""
    bench.denials.deny(ALICE)
    bench.denials.held.clear()
    async with bench.pool.with_token(ALICE, bench.certify) as session:
        assert session.alive
