"""Delivery: oldest first, each run once it is taken, whatever Zabbix does."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest

from headgate.clock import HeldClock
from monitoring_probe.delivery import Outcome, TrapperUnavailable, deliver
from monitoring_probe.spool import Spool
from monitoring_probe.values import Value


class Server:
    """A trapper that takes what `takes` says, and may go away after some packets."""

    def __init__(
        self, takes: Callable[[Value], bool] = lambda _: True, *, away_after: int = 1_000
    ) -> None:
        self.takes = takes
        self.away_after = away_after
        self.got: list[int] = []

    async def send(self, values: Sequence[Value]) -> bool:
        """Take a packet."""
        if not self.away_after:
            raise TrapperUnavailable("connection refused")
        self.away_after -= 1
        self.got.append(values[0].clock)
        return all(map(self.takes, values))


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    """An empty one."""
    return Spool(tmp_path, max_age=86400, max_bytes=1_000_000)


async def pass_over(spool: Spool, server: Server, make: SimpleNamespace, later: int = 0) -> Outcome:
    """One pass, `later` seconds after noon."""
    clock = HeldClock(make.noon + timedelta(seconds=later))
    return await deliver(spool, server, clock, until=10.0, patience=600)


async def test_everything_in_order(spool: Spool, make: SimpleNamespace) -> None:
    """The oldest goes first, and what was taken is gone."""
    for second in (3, 1, 2):
        spool.put([make.value(second)])
    server = Server()
    outcome = await pass_over(spool, server, make)
    assert outcome == Outcome(taken=3)
    assert server.got == [make.value(second).clock for second in (1, 2, 3)]
    assert spool.runs() == []


async def test_an_outage_keeps_what_was_not_taken(spool: Spool, make: SimpleNamespace) -> None:
    """It stops at the first that nobody answers for, and goes on from there next time."""
    for second in range(5):
        spool.put([make.value(second)])
    first = await pass_over(spool, Server(away_after=2), make)
    assert (first.taken, first.left, first.stopped) == (2, 3, "connection refused")
    server = Server()
    assert (await pass_over(spool, server, make)).taken == 3
    assert server.got == [make.value(second).clock for second in (2, 3, 4)]


async def test_a_host_that_is_not_there_yet(spool: Spool, make: SimpleNamespace) -> None:
    """All are refused: all stay, however old, and only few are tried."""
    for second in range(40):
        spool.put([make.value(second)])
    server = Server(lambda _: False)
    outcome = await pass_over(spool, server, make, later=3600)
    assert (outcome.taken, outcome.left, outcome.aside) == (0, 40, 0)
    assert len(server.got) == 11
    assert server.got[-1] == make.value(39).clock
    assert (await pass_over(spool, Server(), make)).taken == 40


async def test_one_bad_run_does_not_hold_up_the_others(spool: Spool, make: SimpleNamespace) -> None:
    """It stays for its patience, then goes aside, while others are taken."""
    bad = make.value(0).clock
    for second in range(3):
        spool.put([make.value(second)])
    outcome = await pass_over(spool, Server(lambda value: value.clock != bad), make, later=60)
    assert (outcome.taken, outcome.refused, outcome.left) == (2, 1, 1)
    spool.put([make.value(700)])
    outcome = await pass_over(spool, Server(lambda value: value.clock != bad), make, later=700)
    assert (outcome.taken, outcome.aside, outcome.left) == (1, 1, 0)


async def test_unreadable_files_are_put_aside(
    spool: Spool, tmp_path: Path, make: SimpleNamespace
) -> None:
    """A damaged file costs itself only."""
    (tmp_path / "00000000000000000001.jsonl").write_bytes(b"garbage")
    spool.put([make.value()])
    outcome = await pass_over(spool, Server(), make)
    assert outcome == Outcome(taken=1, aside=1)


async def test_no_time_left(spool: Spool, make: SimpleNamespace) -> None:
    """When the run's time is over the rest waits for the next."""
    spool.put([make.value()])
    outcome = await deliver(spool, Server(), HeldClock(make.noon), until=0.0, patience=1)
    assert (outcome.taken, outcome.left) == (0, 1)
    assert "no time left" in outcome.stopped
