"""The reference of `/v1` as OpenAPI 3.1, made from the table of routes and the types.

`python -m gateway.v1.openapi > docs/integrators/openapi.json` writes the one of the docs.
"""

import html
import sys
from collections import defaultdict
from functools import cache
from http import HTTPStatus
from typing import Any

import msgspec

from gateway.codes import CODES
from gateway.jobs import State
from gateway.v1.parameters import MAX_KEY, MAX_PAGE, MAX_WAIT
from gateway.v1.table import JSON, ROUTES, Answer, Route
from gateway.v1.types import Problem
from headgate import __version__
from headgate.web import PROBLEM_TYPE

_EVERYWHERE = ("invalid_request", "malformed", "invalid_parameter", "unknown_parameter", "internal")
_WITH_TOKEN = (
    "missing_token",
    "invalid_token",
    "insufficient_user_authentication",
    "forbidden",
    "unavailable",
    "registry_away",
    "too_many_requests",
)
_TIME = {"type": "string", "format": "date-time"}
_WORD = {"type": "string"}
_PARAMETERS: dict[str, tuple[str, dict[str, Any]]] = {
    "state": ("One of these states.", {"type": "array", "items": {"enum": list(State)}}),
    "cluster": ("On this cluster.", _WORD),
    "queue": ("In this queue.", _WORD),
    "label": (
        "With this label, as name or name=value; several: all of them.",
        {"type": "array", "items": {"type": "string", "pattern": "^[^=].*"}},
    ),
    "created_after": ("Made later.", _TIME),
    "created_before": ("Made before.", _TIME),
    "limit": ("How much at the most.", {"type": "integer", "minimum": 1, "maximum": MAX_PAGE}),
    "cursor": ("`next` of the page before.", _WORD),
    "offset": ("From this byte on.", {"type": "integer", "minimum": 0}),
    "follow": ("1: until the job ends.", {"type": "integer", "enum": [0, 1]}),
    "dry_run": ("1: admit nothing.", {"type": "integer", "enum": [0, 1]}),
    "verbose": ("Changes nothing here.", _WORD),
}
_HEADERS: dict[str, tuple[str, dict[str, Any]]] = {
    "Idempotency-Key": (
        "The same key and body are the same job.",
        {"type": "string", "minLength": 1, "maxLength": MAX_KEY, "pattern": "^[!-~]+$"},
    ),
    "If-None-Match": ("304 if that is still it.", _WORD),
    "If-Match": ("412 if that is not it any more.", _WORD),
    "Prefer": (f"`wait=N`: up to N seconds, {MAX_WAIT} at the most (RFC 7240).", _WORD),
    "Range": ("Some bytes of a file (RFC 9110, section 14.2).", _WORD),
}


@cache
def document() -> bytes:
    """The reference as JSON, the same bytes for the same release."""
    kinds = [Problem, *(kind for route in ROUTES for kind in _kinds(route))]
    schemas, components = msgspec.json.schema_components(
        kinds, ref_template="#/components/schemas/{name}"
    )
    references = dict(zip(kinds, schemas, strict=True))
    paths: defaultdict[str, dict[str, Any]] = defaultdict(dict)
    for route in ROUTES:
        paths[route.path][route.method.lower()] = _operation(route, references)
    whole = {
        "openapi": "3.1.0",
        "info": {"title": "headgate gateway", "version": __version__, "license": _LICENSE},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }
    # Through JSON once: the schemas hold tuples, and enumerations that are words.
    return msgspec.json.format(msgspec.json.encode(whole, order="sorted"), indent=1) + b"\n"


_LICENSE = {"name": "Apache-2.0", "identifier": "Apache-2.0"}


def page() -> str:
    """The reference for people: one table, without scripts."""
    rows = "".join(
        f"<tr><td><code>{route.method} {html.escape(route.path)}</code></td>"
        f"<td>{html.escape(route.summary)}</td>"
        f"<td>{html.escape(', '.join((*route.parameters, *route.headers)))}</td>"
        f"<td>{', '.join(str(answer.status) for answer in route.answers)}</td>"
        f"<td>{' '.join(_problem_link(code) for code in route.codes)}</td></tr>"
        for route in ROUTES
    )
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>headgate gateway</title>'
        f"<h1>headgate gateway {__version__}</h1>"
        '<p>For programs: <a href="/v1/openapi.json">OpenAPI 3.1</a>. '
        '<a href="/problems">All problems</a></p>'
        "<table><tr><th>request</th><th>what it does</th><th>parameters, headers</th>"
        f"<th>answers</th><th>refusals</th></tr>{rows}</table></html>\n"
    )


def _problem_link(code: str) -> str:
    return f'<a href="/problems/{code}">{code}</a>'


def _kinds(route: Route) -> list[Any]:
    found: list[Any] = [answer.kind for answer in route.answers if answer.media == JSON]
    found.append(None if isinstance(route.body, str) else route.body)
    return [kind for kind in found if kind is not None]


def _operation(route: Route, references: dict[Any, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "summary": route.summary,
        "operationId": f"{route.method.lower()}{route.path.translate(_IDENTIFIER)}",
        "parameters": list(_parameters(route)),
        "responses": _responses(route, references),
    }
    if not route.public:
        operation["security"] = [{"token": []}]
    if route.body is not None:
        raw = isinstance(route.body, str)
        media = str(route.body) if raw else JSON
        schema = {} if raw else references[route.body]
        operation["requestBody"] = {"required": True, "content": {media: {"schema": schema}}}
    return operation


_IDENTIFIER = str.maketrans({"/": "_", "{": "", "}": "", ".": "_"})


def _parameters(route: Route) -> Any:  # noqa: ANN401 - JSON
    for part in route.path.split("/"):
        if part.startswith("{"):
            schema = {"enum": ["stdout", "stderr"]} if part == "{file}" else {"minLength": 1}
            yield {
                "name": part.strip("{}"),
                "in": "path",
                "required": True,
                "schema": {"type": "string", **schema},
            }
    for place, names, known in (
        ("query", route.parameters, _PARAMETERS),
        ("header", route.headers, _HEADERS),
    ):
        for name in names:
            sentence, schema = known[name]
            yield {"name": name, "in": place, "description": sentence, "schema": schema}


def _responses(route: Route, references: dict[Any, Any]) -> dict[str, Any]:
    responses = {str(answer.status): _answer(answer, references) for answer in route.answers}
    by_status: defaultdict[int, list[str]] = defaultdict(list)
    for code in (*_EVERYWHERE, *(() if route.public else _WITH_TOKEN), *route.codes):
        by_status[CODES[code].status].append(code)
    for status, codes in sorted(by_status.items()):
        response = responses.setdefault(str(status), {"description": "", "content": {}})
        words = " ".join(f"`{code}`" for code in dict.fromkeys(codes))
        response["description"] = f"{response['description']} {words}".strip()
        response["content"][PROBLEM_TYPE] = {"schema": references[Problem]}
    return responses


def _answer(answer: Answer, references: dict[Any, Any]) -> dict[str, Any]:
    described: dict[str, Any] = {"description": HTTPStatus(answer.status).phrase, "content": {}}
    if answer.kind is not None or answer.media != JSON:
        text = {"type": "string"} if answer.media != JSON else None
        described["content"][answer.media] = {"schema": text or references[answer.kind]}
    elif answer.status == HTTPStatus.OK:
        described["content"][JSON] = {"schema": {"type": "object"}}
    return described


if __name__ == "__main__":
    sys.stdout.write(document().decode())
