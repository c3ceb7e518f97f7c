"""Whose turn it is: many jobs of one user, and users nobody can reach, keep no other waiting."""

import asyncio

import pytest

from gateway.lines import Lines
from gateway.sessions.user import User
from headgate.clock import HeldClock
from headgate.identity import Identity


def user(name: str) -> User:
    """Somebody."""
    return User(Identity("https://iam.example.org/", name), "main", name)


ALICE, BOB = user("alice"), user("bob")


async def taken(lines: Lines) -> list[tuple[User, str]]:
    """All that would be served now."""
    found = []
    while True:
        try:
            async with asyncio.timeout(0):
                found.append(await lines.next())
        except TimeoutError:
            return found


async def test_a_user_with_ten_thousand_jobs_does_not_keep_another_waiting():
    """After the first user's many jobs the second one's single job is served at once."""
    lines = Lines(1, HeldClock())
    for number in range(10_000):
        lines.offer(ALICE, f"a{number}")
    first = await lines.next()
    lines.offer(BOB, "b")
    lines.done(*first)
    order = []
    for _ in range(2):
        order.append(await lines.next())
        lines.done(*order[-1])
    assert (BOB, "b") in order


async def test_users_whose_sessions_hang_leave_room_for_others():
    """Whoever is served without end takes half of what is free, the next one half of the rest."""
    lines = Lines(16, HeldClock())
    served = []
    for number in range(4):
        for row in range(100):
            lines.offer(user(f"u{number}"), f"{number}-{row}")
        served.append(len(await taken(lines)))
    assert served == [8, 4, 2, 1]


async def test_a_row_stands_in_line_once():
    """Offered again while it waits or is served, it is not served twice at a time."""
    lines = Lines(4, HeldClock())
    lines.offer(ALICE, "a")
    lines.offer(ALICE, "a")
    assert await taken(lines) == [(ALICE, "a")]
    lines.offer(ALICE, "a")
    assert await taken(lines) == []
    lines.done(ALICE, "a")
    lines.offer(ALICE, "a")
    assert await taken(lines) == [(ALICE, "a")]


async def test_who_cannot_be_reached_rests_and_comes_back():
    """A resting user is passed over; afterwards their rows are served in order."""
    clock = HeldClock()
    lines = Lines(4, clock)
    lines.rest(ALICE, 10)
    lines.offer(ALICE, "a1")
    lines.offer(ALICE, "a2")
    lines.offer(BOB, "b")
    assert await taken(lines) == [(BOB, "b")]
    waiting = asyncio.create_task(lines.next())
    clock.advance(11)
    lines.tick()
    assert await waiting == (ALICE, "a1")


async def test_whoever_waits_for_work_gets_it():
    """A row offered later wakes a server; one that is cancelled meanwhile takes nothing along."""
    lines = Lines(2, HeldClock())
    gone = asyncio.create_task(lines.next())
    stays = asyncio.create_task(lines.next())
    await asyncio.sleep(0)
    gone.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gone
    lines.offer(ALICE, "a")
    assert await stays == (ALICE, "a")
