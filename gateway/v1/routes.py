"""The routes of `/v1`: token to principal, body to value, value to document, nothing else."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import structlog
from aiohttp import web

from gateway.clusters import Clusters
from gateway.files import Files
from gateway.jobs import Job, JobSpec
from gateway.registry import Registry
from gateway.submission import Jobs
from gateway.v1 import openapi
from gateway.v1.bulk import BulkRoutes
from gateway.v1.documents import (
    cluster_document,
    environment_document,
    job_document,
    me_document,
    plan_document,
)
from gateway.v1.files import FileRoutes
from gateway.v1.health import add_public_health
from gateway.v1.parameters import (
    MAX_PAGE,
    check_names,
    idempotency_key,
    number,
    selection,
    tagged,
    wait_seconds,
)
from gateway.v1.problem_pages import ProblemPages, html_page
from gateway.v1.site import Site
from gateway.v1.table import BY_PLACE
from headgate import __version__
from headgate.clock import Clock
from headgate.identity import Principal
from headgate.oidc import TokenVerifier
from headgate.problems import Problem
from headgate.web import Check, bearer_token, create_app, json_body, json_response

log = structlog.get_logger(__name__)

DEFAULT_PAGE = 100
MAX_OUTPUT = 1 << 40
NOSNIFF = {"X-Content-Type-Options": "nosniff"}

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@web.middleware
async def _known_parameters(request: web.Request, handler: Handler) -> web.StreamResponse:
    resource = request.match_info.route.resource
    if request.query_string and resource is not None:
        method = "GET" if request.method == "HEAD" else request.method
        route = BY_PLACE.get((method, resource.canonical))
        check_names(request, route.parameters if route is not None else ())
    return await handler(request)


@dataclass(frozen=True, slots=True)
class Api:
    """The handlers and what they hand requests to."""

    jobs: Jobs
    clusters: Clusters
    registry: Registry
    verifier: TokenVerifier
    site: Site
    clock: Clock
    files: Files | None = None

    def application(self, checks: Mapping[str, Check]) -> web.Application:
        """The gateway's application."""
        app = create_app()
        app.middlewares.append(_known_parameters)
        app.router.add_get("/v1", self.show_site)
        app.router.add_get("/v1/me", self.show_me)
        app.router.add_get("/v1/clusters", self.list_clusters)
        app.router.add_post("/v1/jobs", self.submit_job)
        app.router.add_get("/v1/openapi.json", _show_reference)
        app.router.add_get("/v1/reference", _show_page)
        pages = ProblemPages(self.site.url)
        pages.add_to(app)
        BulkRoutes(self.jobs, self._principal, pages).add_to(app)
        app.router.add_get("/v1/jobs", self.list_jobs)
        app.router.add_get("/v1/jobs/{id}", self.show_job)
        app.router.add_delete("/v1/jobs/{id}", self.cancel_job)
        app.router.add_post("/v1/jobs/{id}/hold", self.hold_job)
        app.router.add_post("/v1/jobs/{id}/release", self.release_job)
        app.router.add_get("/v1/jobs/{id}/script", self.show_script)
        app.router.add_get("/v1/jobs/{id}/environment", self.show_environment)
        app.router.add_get("/v1/jobs/{id}/{file:stdout|stderr}", self.show_output)
        if self.files is not None:
            FileRoutes(self.files, self._principal).add_to(app)
        add_public_health(app, checks)
        return app

    async def show_site(self, _: web.Request) -> web.Response:
        """What a tool needs to know before it has a token."""
        return json_response(
            self.site.document(
                self.clusters, self.clock.now(), features=() if self.files is None else ("files",)
            )
        )

    async def show_me(self, request: web.Request) -> web.Response:
        """The caller, and their account in the realm of the (first, or named) cluster."""
        principal, _ = await self._principal(request)
        wanted = request.query.get("cluster") or None
        cluster = self.clusters.choose(JobSpec(executable="-", cluster=wanted)) if wanted else None
        realm = (cluster or next(iter(self.clusters))).settings.realm
        standing = await self.registry.standing(principal.identity, realm)
        return json_response(me_document(principal, realm, standing))

    async def list_clusters(self, request: web.Request) -> web.Response:
        """The clusters and their queues."""
        await self._principal(request)
        documents = [
            cluster_document(cluster, await self.clusters.offers(cluster))
            for cluster in self.clusters
        ]
        return json_response({"clusters": documents})

    async def submit_job(self, request: web.Request) -> web.Response:
        """Admit a job: 201 with its place; the same job again for the same key and body.

        With `dry_run=1` nothing is admitted: 200 with what would be sent.
        """
        principal, token = await self._principal(request)
        key = idempotency_key(request)
        spec = await json_body(request, JobSpec)
        if number(request, "dry_run", 0, 0, 1):
            return json_response(plan_document(await self.jobs.plan(principal, spec)))
        body = await request.read()
        job, _ = await self.jobs.submit(principal, token, spec, key, body)
        headers = {"Location": f"/v1/jobs/{job.id}", "ETag": _etag(job)}
        return json_response(self._document(job), status=201, headers=headers)

    async def list_jobs(self, request: web.Request) -> web.Response:
        """The caller's jobs, newest first, in pages."""
        principal, _ = await self._principal(request)
        limit = number(request, "limit", DEFAULT_PAGE, 1, MAX_PAGE)
        jobs, cursor = await self.jobs.page(
            principal, selection(request), limit=limit, cursor=request.query.get("cursor", "")
        )
        document: dict[str, object] = {"jobs": [self._document(job) for job in jobs]}
        headers = {}
        if cursor:
            document["next"] = cursor
            following = request.rel_url.update_query(cursor=cursor)
            headers["Link"] = f'<{following}>; rel="next"'
        return tagged(request, document, headers=headers)

    async def show_job(self, request: web.Request) -> web.Response:
        """One job; 304 if the caller has this revision; `Prefer: wait` waits for another state."""
        principal, _ = await self._principal(request)
        seconds = wait_seconds(request)
        job = await self.jobs.later(principal, request.match_info["id"], seconds=seconds)
        headers = {"Preference-Applied": f"wait={seconds}"} if seconds else {}
        return tagged(request, self._document(job), etag=_etag(job), headers=headers)

    async def show_script(self, request: web.Request) -> web.Response:
        """The batch script of a job, as it was sealed; no value of its environment is in it."""
        principal, _ = await self._principal(request)
        script = await self.jobs.script(principal, request.match_info["id"])
        return web.Response(text=script, content_type="text/plain", headers=NOSNIFF)

    async def show_environment(self, request: web.Request) -> web.Response:
        """The environment that a job was given."""
        principal, _ = await self._principal(request)
        job = await self.jobs.job(principal, request.match_info["id"])
        return tagged(request, environment_document(job))

    async def cancel_job(self, request: web.Request) -> web.Response:
        """Ask for a job's end; 202, however often."""
        principal, _ = await self._principal(request)
        job = await self.jobs.cancel(principal, request.match_info["id"])
        return json_response(self._document(job), status=202, headers={"ETag": _etag(job)})

    async def hold_job(self, request: web.Request) -> web.Response:
        """Keep a job back that was not sent yet; 202, however often."""
        principal, _ = await self._principal(request)
        job = await self.jobs.hold(principal, request.match_info["id"])
        return json_response(job_document(job), status=202, headers={"ETag": _etag(job)})

    async def release_job(self, request: web.Request) -> web.Response:
        """Let a job go that was held back; 202, however often."""
        principal, _ = await self._principal(request)
        job = await self.jobs.release(principal, request.match_info["id"])
        return json_response(job_document(job), status=202, headers={"ETag": _etag(job)})

    async def show_output(self, request: web.Request) -> web.StreamResponse:
        """What a job has printed so far, as it is in the file; `follow=1`: and what follows."""
        principal, token = await self._principal(request)
        chunks = self.jobs.output(
            principal,
            token,
            request.match_info["id"],
            file=request.match_info["file"],
            offset=number(request, "offset", 0, 0, MAX_OUTPUT),
            limit=number(request, "limit", MAX_OUTPUT, 1, MAX_OUTPUT),
            follow=number(request, "follow", 0, 0, 1) == 1,
        )
        # A payload prints what it likes: no browser may take it for a page.
        headers = {"Content-Type": "text/plain", **NOSNIFF}
        response = web.StreamResponse(headers=headers)
        async with aclosing(chunks):
            try:
                async for chunk in chunks:
                    if not response.prepared:
                        await response.prepare(request)
                    if chunk:
                        await response.write(chunk)
                    elif request.transport is None or request.transport.is_closing():
                        return response
            except Problem as problem:
                if not response.prepared:
                    raise
                # The status is sent: only a broken connection can say that this is not all.
                log.warning("output_cut", path=request.path, cause=str(problem))
                _cut(request)
                return response
            except ConnectionError:
                log.info("client_left", path=request.path)
                return response
        if not response.prepared:
            await response.prepare(request)
        await response.write_eof()
        return response

    def _document(self, job: Job) -> dict[str, Any]:
        return job_document(job, self.clusters.files_days(job.cluster))

    async def _principal(self, request: web.Request) -> tuple[Principal, str]:
        token = bearer_token(request)
        return await self.verifier.verify(token), token


async def _show_reference(_: web.Request) -> web.Response:
    return web.Response(body=openapi.document(), content_type="application/json")


async def _show_page(_: web.Request) -> web.Response:
    return html_page(openapi.page())


def _cut(request: web.Request) -> None:
    if request.transport is not None:
        request.transport.abort()


def _etag(job: Job) -> str:
    # The same revision may look another way in another release.
    return f'"{job.revision}-{__version__}"'
