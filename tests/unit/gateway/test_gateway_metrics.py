"""What the gateway counts, and that only its operators' listener tells."""

from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from prometheus_client.parser import text_string_to_metric_families

from gateway.jobs import State
from gateway.metrics import Metrics
from gateway.v1.health import operations
from headgate.problems import NotFound, Unavailable
from headgate.web import create_app
from tests.unit.gateway.recovery_world import World


def samples(text: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Each sample's value by name and labels."""
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def labels(**pairs: str) -> frozenset[tuple[str, str]]:
    """Labels of a sample."""
    return frozenset(pairs.items())


def metrics(world: World) -> Metrics:
    """Those of a gateway with this store, three sessions and one cluster."""
    return Metrics(
        store=world.store,
        sessions=lambda: 3,
        ages={"c": world.tracker.age},
        current=lambda: True,
    )


async def scraped(counted: Metrics) -> dict[Any, float]:
    """What a scrape shows."""
    async with TestClient(TestServer(operations({}, counted.show))) as client:
        answer = await client.get("/metrics")
        assert answer.status == 200
        assert answer.headers["Content-Type"].startswith("text/plain; version=")
        return samples(await answer.text())


async def test_requests_are_counted_by_route_and_code(world: World):
    """By the route's pattern: neither ids nor odd methods and paths make new series."""
    counted = metrics(world)
    app = create_app()
    app.middlewares.insert(0, counted.middleware)

    async def job(request: web.Request) -> web.Response:
        if request.match_info["id"] == "none":
            raise NotFound("There is no such job.")
        if request.match_info["id"] == "bug":
            raise RuntimeError
        return web.Response()

    app.router.add_get("/v1/jobs/{id}", job)
    async with TestClient(TestServer(app)) as client:
        for path in ("a", "b", "none", "bug"):
            await client.get(f"/v1/jobs/{path}")
        for method in ("PROPFIND", "LINK"):
            await client.request(method, f"/v2/{method}")
    found = await scraped(counted)
    name, route = "headgate_gateway_requests_total", "/v1/jobs/{id}"
    assert found[name, labels(method="GET", route=route, code="200")] == 2
    assert found[name, labels(method="GET", route=route, code="404")] == 1
    assert found[name, labels(method="GET", route=route, code="500")] == 1
    assert found[name, labels(method="other", route="none", code="404")] == 2
    count = "headgate_gateway_request_seconds_count"
    assert found[count, labels(method="GET", route=route)] == 4


async def test_jobs_sessions_and_the_age_of_watching_are_shown(world: World):
    """How many jobs are in which state, how many wait to be sent, how old the last look is."""
    await world.job(1)
    await world.job(2)
    await world.queued(3)
    counted = metrics(world)
    before = await scraped(counted)
    assert ("headgate_gateway_watch_age_seconds", labels(cluster="c")) not in before
    await world.look()
    world.clock.advance(7)
    found = await scraped(counted)
    jobs = "headgate_gateway_jobs"
    assert found[jobs, labels(cluster="c", state="new")] == 2
    assert found[jobs, labels(cluster="c", state="queued")] == 1
    assert found["headgate_gateway_jobs_to_send", labels(cluster="c")] == 2
    assert found["headgate_gateway_sessions_open", labels()] == 3
    assert found["headgate_gateway_changes_current", labels()] == 1
    assert found["headgate_gateway_watch_age_seconds", labels(cluster="c")] == 7


async def test_a_state_that_nobody_is_in_any_more_is_zero(world: World):
    """A series does not stay at its last value when the last job has left the state."""
    job = await world.job(1)
    counted = metrics(world)
    await scraped(counted)
    now = world.clock.now()
    await world.store.update(job, job.ended(State.COMPLETED, now))
    found = await scraped(counted)
    assert found["headgate_gateway_jobs", labels(cluster="c", state="new")] == 0
    assert found["headgate_gateway_jobs", labels(cluster="c", state="completed")] == 1


async def test_without_the_database_the_rest_is_shown(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    """Just when something is wrong the numbers that are known have to be there."""

    async def away() -> Any:
        raise Unavailable("The job database does not answer.")

    monkeypatch.setattr(world.store, "counts", away)
    found = await scraped(metrics(world))
    assert found["headgate_gateway_sessions_open", labels()] == 3
    assert found["headgate_gateway_database_up", labels()] == 0
    assert not [name for name, _ in found if name == "headgate_gateway_jobs"]
