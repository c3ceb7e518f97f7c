"""The reference of `/v1`: current, complete, and the service does what it says."""

import asyncio
import contextlib
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings, strategies
from hypothesis.errors import Unsatisfiable
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from gateway import jobs
from gateway.jobs import State
from gateway.v1.openapi import document
from gateway.v1.table import BY_PLACE, ROUTES
from headgate.client import values
from tests.unit.gateway.edge_world import Edge

PAGE = Path(__file__).parents[3] / "docs" / "integrators" / "openapi.json"
CHECKS = (
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
)
EXAMPLES = 12
"""Of each route and mode: a look at what anybody may send, not a campaign."""


def test_the_committed_reference_is_current():
    """What integrators read is what the routes and types say."""
    command = "python -m gateway.v1.openapi > docs/integrators/openapi.json"
    assert PAGE.read_bytes() == document(), command


def test_every_route_is_in_the_reference(edge: Edge):
    """No route is served that is not described, and none is described that is not served."""
    edge.api = edge.with_files()
    app = edge.api.application({})
    served = {
        (route.method, route.resource.canonical)
        for route in app.router.routes()
        if route.method != "HEAD" and route.resource is not None
    }
    assert served == set(BY_PLACE)


def described(kind: str) -> set[str]:
    """The fields that the reference says of a type."""
    return set(json.loads(document())["components"]["schemas"][kind]["properties"])


async def test_every_field_that_is_answered_is_described(edge: Edge):
    """A field that the reference does not have is one that nobody promised to keep."""
    job = await edge.world.queued(1)
    ended = job.ended(State.COMPLETED, edge.world.clock.now(), None, {"exit_code": 0, "nodes": "n"})
    await edge.world.store.update(job, ended)
    async with edge.serving() as people:
        alice = people["alice"]
        for path, kind in (
            (f"/v1/jobs/{job.id}", "Job"),
            ("/v1/jobs", "JobPage"),
            ("/v1", "Site"),
            ("/v1/me", "Me"),
            ("/v1/clusters", "ClusterList"),
            ("/v1/jobs/nope", "Problem"),
        ):
            assert set((await alice("GET", path)).json) - described(kind) == set(), path
        cluster = (await alice("GET", "/v1/clusters")).json["clusters"][0]
    assert set(cluster) - described("Cluster") == set()


async def test_the_reference_is_served_to_programs_and_people(edge: Edge):
    """Without a token, and the page without any script."""
    async with edge.serving() as people:
        machine = await people[""]("GET", "/v1/openapi.json")
        page = await people[""]("GET", "/v1/reference")
    assert machine.body == document()
    assert machine.json["openapi"].startswith("3.1")
    assert b"<script" not in page.body
    assert b"/v1/jobs/batch" in page.body


@pytest.mark.parametrize(
    "mode", [schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE]
)
async def test_the_service_does_what_the_reference_says(edge: Edge, mode: Any):
    """Whatever is sent: no 5xx but 503, and no answer that is not described."""
    states = (State.QUEUED, State.COMPLETED)
    made = [await edge.world.queued(number, state=state) for number, state in enumerate(states)]
    async with edge.serving() as people:
        rows = [job.id for job in made]
        await asyncio.to_thread(explore, people["alice"]._url, mode, rows)


def explore(url: str, mode: Any, rows: list[str]) -> None:
    """Send what the reference allows, or what it does not, to each route."""
    reference = schemathesis.openapi.from_dict(json.loads(document()))
    for found in reference.get_all_operations():
        operation = found.ok()

        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            database=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        )
        @given(
            case=operation.as_strategy(generation_mode=mode),
            row=strategies.sampled_from([None, *rows]),
        )
        def one(case: Any, row: str | None) -> None:
            case.headers = {**(case.headers or {}), "Authorization": "Bearer alice"}
            case.headers.pop("Prefer", None)  # nobody waits here
            if row is not None and "id" in (case.path_parameters or {}):
                case.path_parameters["id"] = row
            response = case.call(base_url=url)
            assert response.status_code < 500 or response.status_code == 503
            case.validate_response(response, checks=CHECKS)

        with contextlib.suppress(Unsatisfiable):  # a route without parameters takes nothing wrong
            one()


def test_each_route_says_what_it_does():
    """A summary and an answer each, and problems that are known."""
    assert all(route.summary and route.answers for route in ROUTES)


@pytest.mark.parametrize("name", ["JobSpec", "Resources", "Attributes", "Container"])
def test_the_client_can_say_what_the_gateway_takes(name: str):
    """The public client's specification has the gateway's fields, and no others."""
    taken = {field.name for field in msgspec.structs.fields(getattr(jobs, name))}
    assert {field.name for field in msgspec.structs.fields(getattr(values, name))} == taken
