"""What the gateway counts, for Prometheus; nothing of it names a person or a job."""

import time
from collections.abc import Callable, Mapping

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, ProcessCollector
from prometheus_client.exposition import choose_encoder

from gateway.store import Store
from headgate import __version__
from headgate.problems import Unavailable

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE"})
GONE = "gone"
"""In place of a status: the caller left before there was one."""


class Metrics:
    """The gateway's numbers; each request is counted, the rest is asked for when it is shown.

    `sessions` counts the open sessions, `ages` has the seconds since each cluster was last read
    (None: not yet), `current` says whether it is known who may act.
    """

    def __init__(
        self,
        *,
        store: Store,
        sessions: Callable[[], int],
        ages: Mapping[str, Callable[[], float | None]],
        current: Callable[[], bool],
    ) -> None:
        self._store = store
        self._ages = ages
        self._registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self._requests = Counter(
            "headgate_gateway_requests_total",
            "Requests by route and status.",
            ["method", "route", "code"],
            registry=registry,
        )
        self._seconds = Histogram(
            "headgate_gateway_request_seconds",
            "From a request to the end of its answer.",
            ["method", "route"],
            buckets=BUCKETS,
            registry=registry,
        )
        self._jobs = self._gauge("jobs", "Stored jobs.", "cluster", "state")
        self._to_send = self._gauge("jobs_to_send", "Jobs that Slurm has not got yet.", "cluster")
        self._age = self._gauge("watch_age_seconds", "Since the queue was last read.", "cluster")
        self._database = self._gauge("database_up", "Whether the database answers.")
        self._gauge("sessions_open", "Sessions on login nodes.").set_function(sessions)
        self._gauge("changes_current", "Whether it is known who may act.").set_function(current)
        release = Info("headgate_gateway_build", "The release that runs.", registry=registry)
        release.info({"version": __version__})

    @property
    def middleware(self) -> Middleware:
        """Counts each request; to be the outermost one."""

        @web.middleware
        async def count(request: web.Request, handler: Handler) -> web.StreamResponse:
            began, code = time.perf_counter(), GONE
            try:
                response = await handler(request)
                code = str(response.status)
                return response
            finally:
                # Only what we chose ourselves: a caller must not be able to make new series.
                method = request.method if request.method in METHODS else "other"
                resource = request.match_info.route.resource
                route = resource.canonical if resource is not None else "none"
                self._requests.labels(method, route, code).inc()
                self._seconds.labels(method, route).observe(time.perf_counter() - began)

        return count

    async def show(self, request: web.Request) -> web.Response:
        """All numbers as of now, in the text format that the caller prefers."""
        await self._look()
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        return web.Response(body=encode(self._registry), headers={"Content-Type": content_type})

    async def _look(self) -> None:
        for gauge in (self._jobs, self._to_send, self._age):
            gauge.clear()
        for cluster, age in self._ages.items():
            if (seconds := age()) is not None:
                self._age.labels(cluster).set(seconds)
        try:
            counts = await self._store.counts()
        except Unavailable:
            self._database.set(0)
            return
        self._database.set(1)
        for cluster in self._ages:
            self._to_send.labels(cluster).set(0)
        for count in counts:
            self._jobs.labels(count.cluster, count.state).set(count.jobs)
            self._to_send.labels(count.cluster).inc(count.to_send)

    def _gauge(self, name: str, sentence: str, *labels: str) -> Gauge:
        return Gauge(f"headgate_gateway_{name}", sentence, labels, registry=self._registry)
