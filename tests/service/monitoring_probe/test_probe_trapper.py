"""The trapper adapter against servers that are well, broken or gone."""

import gc
from typing import Any

import pytest

from monitoring_probe.delivery import TrapperUnavailable
from monitoring_probe.values import Value
from monitoring_probe.zabbix.trapper import ZabbixTrapper

VALUES = [
    Value(host="hpc", key="hg.snapshot", value=f'{{"n":{n}}}', clock=1_770_000_000 + n, ns=7)
    for n in range(3)
]


async def test_values_arrive_as_they_were_measured(trapper: Any) -> None:
    """Host, key, value, clock and ns; and all were processed."""
    async with trapper("take") as fake:
        assert await ZabbixTrapper([("127.0.0.1", fake.port)], timeout=5).send(VALUES)
    assert fake.values[0] == {
        "host": "hpc",
        "key": "hg.snapshot",
        "value": '{"n":0}',
        "clock": 1_770_000_000,
        "ns": 7,
    }
    assert len(fake.values) == 3


async def test_refused_values_are_no_success(trapper: Any) -> None:
    """The server's "success" means nothing: what counts is that all were processed."""
    async with trapper("refuse") as fake:
        assert not await ZabbixTrapper([("127.0.0.1", fake.port)], timeout=5).send(VALUES)


# The sender library leaves its connection to the garbage collector when an answer does not come
# or is none; the probe ends right after.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize(
    "fault",
    [
        "silent",
        "reset",
        "garbage",
        "not json",
        "no info",
        "other info",
        "an array",
        "failed",
        "cut",
    ],
)
async def test_faults_are_one_error_within_the_deadline(trapper: Any, fault: str) -> None:
    """Whatever the server does, nobody knows what it has: the values are to be sent again."""
    async with trapper(fault) as fake:
        sender = ZabbixTrapper([("127.0.0.1", fake.port)], timeout=0.2)
        with pytest.raises(TrapperUnavailable, match=rf"^127\.0\.0\.1:{fake.port}: .+"):
            await sender.send(VALUES)
    gc.collect()


async def test_nobody_listens(trapper: Any) -> None:
    """A refused connection names the server."""
    async with trapper("take") as fake:
        port = fake.port
    with pytest.raises(TrapperUnavailable, match=str(port)):
        await ZabbixTrapper([("127.0.0.1", port)], timeout=1).send(VALUES)


async def test_the_second_server_stands_in(trapper: Any) -> None:
    """Servers are tried in turn, and each value is sent to one of them only."""
    async with trapper("take") as gone:
        port = gone.port
    async with trapper("take") as fake:
        sender = ZabbixTrapper([("127.0.0.1", port), ("127.0.0.1", fake.port)], timeout=1)
        assert await sender.send(VALUES)
    assert len(fake.values) == 3


async def test_many_values_go_in_packets(trapper: Any) -> None:
    """More than a packet's worth are several packets."""
    many = [
        Value(host="hpc", key=f"k{n}", value="1", clock=1_770_000_000, ns=n) for n in range(600)
    ]
    async with trapper("take") as fake:
        assert await ZabbixTrapper([("127.0.0.1", fake.port)], timeout=5).send(many)
    assert [value["ns"] for value in fake.values] == list(range(600))
