"""A gateway that keeps the interface's promises and misbehaves on demand, for client tests."""

import contextlib
import hashlib
import json
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from aiohttp import web
from aiohttp.typedefs import Handler

from headgate.problems import Fault, NotFound, Unauthenticated, Unprocessable
from headgate.web import bearer_token, create_app

EPOCH = datetime(2026, 1, 1, 12, tzinfo=UTC)


@dataclass
class FakeGateway:
    """The state of one fake gateway. Faults are consumed in order by requests that match.

    A fault is (method, kind): `drop` answers nothing but does the work, `refuse` drops before it,
    `busy` is 503 with Retry-After, `limited` 429, `proxy` an HTML 502, `denied` a 401. `answer`
    answers everything instead.
    """

    url: str = ""
    tokens: set[str] = field(default_factory=lambda: {"good"})
    faults: list[tuple[str, str]] = field(default_factory=list)
    retry_after: str = "0"
    jobs: dict[str, dict[str, Any]] = field(default_factory=dict)
    keys: dict[str, tuple[str, str]] = field(default_factory=dict)
    output: dict[str, bytes] = field(default_factory=dict)
    plans: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    plan: list[dict[str, Any]] = field(default_factory=list)
    said: bytes = b""
    me: dict[str, Any] = field(default_factory=dict)
    issuers: list[dict[str, Any]] = field(default_factory=list)
    audience: str = ""
    translator: str = "https://tokens.example.org"
    login_nodes: list[dict[str, Any]] = field(
        default_factory=lambda: [{"host": "login.example.org", "port": 22, "realm": "hpc"}]
    )
    seen: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    page_bytes: int = 1 << 20
    answer: Handler | None = None

    def add_job(self, **fields: object) -> dict[str, Any]:
        """A job that exists already, `new` unless told otherwise."""
        number = len(self.jobs)
        when = (EPOCH + timedelta(minutes=number)).isoformat().replace("+00:00", "Z")
        job = {
            "id": str(uuid.uuid4()),
            "name": None,
            "state": "new",
            "cluster": "hpc",
            "account": "alice",
            "attempt": 1,
            "created_at": when,
            "updated_at": when,
            "spec": {"executable": "true"},
            "links": {},
            "added_by_a_later_release": {"x": 1},
            **fields,
        }
        self.jobs[job["id"]] = job
        return job

    def requests(self, method: str) -> list[dict[str, str]]:
        """Headers of the requests with that method, in order."""
        return [headers for seen, _, headers in self.seen if seen == method]


class _Handlers:
    def __init__(self, gateway: FakeGateway) -> None:
        self.gateway = gateway

    async def site(self, _: web.Request) -> web.Response:
        return web.json_response(
            {
                "version": "9.9",
                "issuers": self.gateway.issuers,
                "url": self.gateway.audience or self.gateway.url,
                "token_translator": self.gateway.translator,
                "login_nodes": self.gateway.login_nodes,
                "limits": {"gpus": 8},
            }
        )

    async def me(self, request: web.Request) -> web.Response:
        self._admit(request)
        return web.json_response(self.gateway.me)

    async def clusters(self, request: web.Request) -> web.Response:
        self._admit(request)
        queues = [{"name": "gpu", "is_default": True, "max_duration": 3600, "gpus_per_node": 4}]
        return web.json_response(
            {"clusters": [{"name": "hpc", "containers": True, "queues": queues}]}
        )

    async def submit(self, request: web.Request) -> web.Response:
        self._admit(request)
        body = await request.read()
        spec = json.loads(body)
        key, digest = request.headers["Idempotency-Key"], hashlib.sha256(body).hexdigest()
        if key in self.gateway.keys:
            job_id, before = self.gateway.keys[key]
            if before != digest:
                raise Unprocessable("This key is used.", code="idempotency_key_reused")
            return web.json_response(self.gateway.jobs[job_id], status=201)
        gpus = spec.get("resources", {}).get("gpu_cores_per_process", 0)
        if gpus > 4:
            raise Unprocessable(
                "/resources/gpu_cores_per_process: No node has that many GPUs. (1 more in errors)",
                code="too_many_gpus",
                faults=[
                    Fault("/resources/gpu_cores_per_process", "No node has that many GPUs."),
                    Fault("/attributes/queue_name", "There is no such queue; there are: gpu."),
                ],
            )
        job = self.gateway.add_job(spec=spec, name=spec.get("name"))
        self.gateway.keys[key] = (job["id"], digest)
        self.gateway.output[job["id"]] = self.gateway.said
        self.gateway.plans[job["id"]] = list(self.gateway.plan)
        return web.json_response(job, status=201)

    async def list_jobs(self, request: web.Request) -> web.Response:
        self._admit(request)
        wish = request.query.get("state")
        jobs = [j for j in reversed(self.gateway.jobs.values()) if not wish or j["state"] == wish]
        start, limit = int(request.query.get("cursor", "0")), int(request.query["limit"])
        page: dict[str, Any] = {"jobs": jobs[start : start + limit]}
        if start + limit < len(jobs):
            page["next"] = str(start + limit)
        return web.json_response(page)

    async def show(self, request: web.Request) -> web.Response:
        self._admit(request)
        job = self._job(request)
        plan = self.gateway.plans.get(job["id"])
        if plan:
            job.update(plan.pop(0))
        etag = f'"{hashlib.sha256(json.dumps(job).encode()).hexdigest()[:16]}"'
        headers = {"ETag": etag, "Retry-After": self.gateway.retry_after}
        if request.headers.get("If-None-Match") == etag:
            return web.Response(status=304, headers=headers)
        return web.json_response(job, headers=headers)

    async def cancel(self, request: web.Request) -> web.Response:
        self._admit(request)
        job = self._job(request)
        if job["state"] not in {"completed", "failed"}:
            job["state"] = "canceled"
        return web.json_response(job, status=202)

    async def stdout(self, request: web.Request) -> web.Response:
        self._admit(request)
        job = self._job(request)
        if job["state"] in {"new", "queued"}:
            raise NotFound("The job has not started yet.", code="no_output")
        offset, limit = int(request.query["offset"]), int(request.query["limit"])
        output = self.gateway.output.get(job["id"], b"")
        piece = output[offset : offset + min(limit, self.gateway.page_bytes)]
        return web.Response(body=piece, content_type="text/plain")

    def _job(self, request: web.Request) -> dict[str, Any]:
        job = self.gateway.jobs.get(request.match_info["id"])
        if job is None:
            raise NotFound("There is no such job of yours.", code="job_unknown")
        return job

    def _admit(self, request: web.Request) -> None:
        if bearer_token(request) not in self.gateway.tokens:
            raise Unauthenticated("The token has expired.")


def _misbehaviour(gateway: FakeGateway):  # noqa: ANN202 - aiohttp has no public name for it
    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        gateway.seen.append((request.method, request.path_qs, dict(request.headers)))
        if gateway.answer is not None:
            return await gateway.answer(request)
        for fault in gateway.faults:
            if fault[0] == request.method:
                gateway.faults.remove(fault)
                return await _misbehave(gateway, fault[1], request, handler)
        return await handler(request)

    return middleware


async def _misbehave(
    gateway: FakeGateway, kind: str, request: web.Request, handler: Handler
) -> web.StreamResponse:
    if kind == "drop":
        await handler(request)
    if kind in {"drop", "refuse"}:
        request.transport.abort()
        return web.Response()
    if kind == "proxy":
        return web.Response(status=502, text="<h1>Bad Gateway</h1>", content_type="text/html")
    if kind == "denied":
        raise Unauthenticated("The token has expired.")
    if kind == "moved":
        return web.Response(status=302, headers={"Location": "https://elsewhere.example.org/v1/me"})
    status, code = {"busy": (503, "unavailable"), "limited": (429, "too_many_requests")}[kind]
    return web.json_response(
        {"status": status, "code": code, "detail": "Not now.", "retryable": True},
        status=status,
        content_type="application/problem+json",
        headers={"Retry-After": gateway.retry_after},
    )


@contextlib.asynccontextmanager
async def running() -> AsyncIterator[FakeGateway]:
    """A listening fake gateway on a free loopback port."""
    gateway = FakeGateway()
    handlers = _Handlers(gateway)
    app = create_app()
    app.middlewares.append(_misbehaviour(gateway))
    app.router.add_get("/v1", handlers.site)
    app.router.add_get("/v1/me", handlers.me)
    app.router.add_get("/v1/clusters", handlers.clusters)
    app.router.add_post("/v1/jobs", handlers.submit)
    app.router.add_get("/v1/jobs", handlers.list_jobs)
    app.router.add_get("/v1/jobs/{id}", handlers.show)
    app.router.add_delete("/v1/jobs/{id}", handlers.cancel)
    app.router.add_get("/v1/jobs/{id}/stdout", handlers.stdout)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        gateway.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        gateway.me = {"iss": "https://iam/", "sub": "alice-1", "groups": ["hpc"], "state": "active"}
        gateway.me |= {"account": "alice", "uid": 20001}
        yield gateway
    finally:
        await runner.cleanup()
