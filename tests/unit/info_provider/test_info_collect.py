"""Collecting: each query once, all or nothing."""

from collections import Counter
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from headgate.clock import HeldClock
from headgate.slurm.model import ClusterUnavailable, Configuration
from info_provider.collect import CannotPublish, collect
from info_provider.settings import EndpointSettings


class Reader:
    """A cluster of given answers that counts the questions; an exception as answer is raised."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.asked: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Callable[[], Any]:
        async def ask() -> Any:
            self.asked[name] += 1
            answer = self.answers[name]
            if isinstance(answer, Exception):
                raise answer
            return answer

        return ask


@pytest.fixture
def reader(make: SimpleNamespace) -> Any:
    """A small cluster."""
    return Reader(
        configuration=Configuration("hpc", "24.11.5", 300),
        partitions=[make.partition()],
        nodes=[make.node()],
        jobs=[],
    )


async def test_each_question_is_asked_once(reader: Any) -> None:
    """Four queries, none twice: within the budget of six kinds."""
    snapshot = await collect(reader, HeldClock(), expected_cluster="hpc")
    assert snapshot.configuration.version == "24.11.5"
    assert reader.asked == {"configuration": 1, "partitions": 1, "nodes": 1, "jobs": 1}


@pytest.mark.parametrize("question", ["configuration", "partitions", "nodes", "jobs"])
async def test_a_failed_query_fails_all(reader: Any, question: str) -> None:
    """The sentence is the query's own, on one line."""
    reader.answers[question] = ClusterUnavailable("squeue ended with status 1:\n no contact")
    with pytest.raises(CannotPublish, match=r"^squeue ended with status 1: no contact$"):
        await collect(reader, HeldClock())


@pytest.mark.parametrize("nothing", ["partitions", "nodes"])
async def test_an_empty_cluster_is_not_believed(reader: Any, nothing: str) -> None:
    """A site does not vanish from the catalogue because Slurm answered with nothing."""
    empty: Sequence[Any] = []
    reader.answers[nothing] = empty
    with pytest.raises(CannotPublish, match="Slurm reports no"):
        await collect(reader, HeldClock())


async def test_another_cluster_is_refused(reader: Any) -> None:
    """A wrong slurm.conf does not publish another cluster under this one's name."""
    with pytest.raises(CannotPublish, match="'hpc', not 'big'"):
        await collect(reader, HeldClock(), expected_cluster="big")


async def test_health_of_endpoints(reader: Any) -> None:
    """200 is ok, anything else critical with the reason, a refused connection too."""

    async def answer(request: web.Request) -> web.Response:
        return web.Response(status=int(request.match_info["status"]))

    app = web.Application()
    app.router.add_get("/{status}", answer)
    async with TestServer(app) as server:
        endpoints = [
            EndpointSettings(url="a", health=str(server.make_url("/200"))),
            EndpointSettings(url="b", health=str(server.make_url("/503"))),
            EndpointSettings(url="c"),
        ]
        snapshot = await collect(reader, HeldClock(), endpoints=endpoints)
        gone = str(server.make_url("/200"))
    assert {url: health.state for url, health in snapshot.health.items()} == {
        "a": "ok",
        "b": "critical",
    }
    assert snapshot.health["b"].info == "answers 503 Service Unavailable"
    snapshot = await collect(
        reader, HeldClock(), endpoints=[EndpointSettings(url="a", health=gone)]
    )
    assert snapshot.health["a"].state == "critical"
