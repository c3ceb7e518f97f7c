"""Problem codes: each that is raised is known, explained, and leads to its page."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway import in_flight, removals
from gateway.codes import CODES
from gateway.translator import _refusal
from gateway.v1 import files
from gateway.v1.problem_pages import markdown
from headgate import problems
from tests.unit.gateway.edge_world import Edge

ROOT = Path(__file__).parents[3]
KINDS = {
    name: kind
    for module in (problems, in_flight, removals, files)
    for name, kind in vars(module).items()
    if isinstance(kind, type) and issubclass(kind, problems.Problem)
}
HELPERS = {"_unprocessable", "_invalid", "_bound"}
"""Functions that take a code among their arguments."""
LIMITS = {"gpus_per_node", "cores_per_node", "memory_per_node", "nodes", "max_duration"}
NOT_OURS = {"peer", "no_peer", "peer_verb"}
"""Codes of the shared package that only services that are called by peers answer with."""


def sources() -> list[Path]:
    """The gateway's modules, and what it shares with other services."""
    found = [*(ROOT / "gateway").rglob("*.py"), *(ROOT / "headgate").glob("*.py")]
    return [path for path in found if path.name not in {"codes.py", "headgate_session.py"}]


def words(node: ast.AST) -> Iterator[str]:
    """The string constants in a node."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Constant) and isinstance(inner.value, str):
            yield inner.value


def raised() -> Iterator[tuple[str, str]]:
    """Each code that is written in a place where a problem is made, and the class it is made of."""
    for path in sources():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                name = ast.unparse(node.func)
                for keyword in node.keywords:
                    if keyword.arg == "code" and isinstance(keyword.value, ast.Constant):
                        yield str(keyword.value.value), name
                if name in HELPERS:
                    found = {word for word in words(node) if word.isidentifier() and "_" in word}
                    yield from ((word, "") for word in found - LIMITS)
            elif isinstance(node, ast.Tuple) and len(node.elts) == 3:
                name = ast.unparse(node.elts[0])
                if name in KINDS:
                    yield next(words(node.elts[1])), name


def test_every_code_that_is_raised_is_known():
    """In its own words, or as the default of its class; with the class's status and retryable."""
    found = set(raised())
    assert {"unknown_queue", "file_unknown", "job_unknown", "too_much_memory"} <= {
        code for code, _ in found
    }
    assert {code for code, _ in found} - set(CODES) - NOT_OURS == set()
    for code, name in found:
        if name in KINDS and code in CODES:
            kind = KINDS[name]
            assert (CODES[code].status, CODES[code].retryable) == (kind.status, kind.retryable)
    for kind in KINDS.values():
        known = CODES[kind.default_code]
        assert (known.status, known.retryable) == (kind.status, kind.retryable)


def test_every_code_is_explained_in_the_docs():
    """The page of the docs is the one that the registry of codes makes."""
    page = ROOT / "docs" / "integrators" / "problems.md"
    command = "python -m gateway.v1.problem_pages > docs/integrators/problems.md"
    assert page.read_text(encoding="utf-8") == markdown(), command


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [(403, "suspended", "suspended"), (403, "brand_new", "forbidden"), (409, "x", "conflict")],
)
def test_a_code_of_another_service_is_passed_on_only_if_it_is_known(
    status: int, code: str, expected: str
):
    """A newer translator's words reach the caller; a code without a page does not."""
    problem = _refusal(status, {"code": code, "detail": "Because."})
    assert (problem.stable_code, problem.detail) == (expected, "Because.")


@pytest.mark.parametrize(
    ("method", "path", "options"),
    [
        ("GET", "/v1/jobs/nope", {}),
        ("GET", "/v1/jobs?x=1", {}),
        ("PUT", "/v1/jobs", {}),
        ("GET", "/nowhere", {}),
        ("POST", "/v1/jobs", {"data": b"{"}),
        ("POST", "/v1/jobs", {"json": {"executable": 1}}),
        ("GET", "/problems/nope", {}),
    ],
)
async def test_a_problem_leads_to_its_page(
    edge: Edge, method: str, path: str, options: dict[str, Any]
):
    """The type of a problem is an address that explains the code to anybody."""
    async with edge.serving() as people:
        answer = await people["alice"](method, path, **options)
        assert answer.headers["Content-Type"].startswith("application/problem+json")
        code = answer.json["code"]
        assert answer.json["type"] == f"https://hpc.example.org/problems/{code}"
        assert answer.json["title"] == CODES[code].title
        assert answer.json["status"] == answer.status == CODES[code].status
        page = await people[""]("GET", f"/problems/{code}")
    assert page.status == 200
    assert code.encode() in page.body
    assert page.headers["Content-Type"].startswith("text/html")


async def test_problems_of_a_batch_lead_to_their_pages_too(edge: Edge):
    """Each item's problem is the one that a request of its own would hear."""
    async with edge.serving() as people:
        body = {"jobs": [{"spec": {}}]}
        answer = await people["alice"]("POST", "/v1/jobs/batch", json=body)
    problem = answer.json["results"][0]["problem"]
    assert problem["type"] == "https://hpc.example.org/problems/invalid_body"
