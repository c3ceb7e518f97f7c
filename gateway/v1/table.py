"""The routes of `/v1` as data: what each takes, what it answers, and how it may refuse."""

from dataclasses import dataclass

from gateway.jobs import JobSpec
from gateway.v1 import types
from gateway.v1.bulk import Asked, Batch, Cancelled
from gateway.v1.parameters import SELECTION

TEXT = "text/plain"
BYTES = "application/octet-stream"
HTML = "text/html"
JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer: its status, its type (None: no body) and its media type."""

    status: int
    kind: type | None = None
    media: str = JSON


@dataclass(frozen=True, slots=True)
class Route:
    """One route; `path` is aiohttp's canonical one, `parameters` are those of the query.

    `codes` are of the problems besides those that every route has.
    """

    method: str
    path: str
    summary: str
    answers: tuple[Answer, ...]
    codes: tuple[str, ...] = ()
    parameters: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()
    body: type | str | None = None
    public: bool = False


UNCHANGED = Answer(304)
_SPEC = (
    "body",
    "not_json",
    "invalid_body",
    "invalid_spec",
    "too_slow",
    "too_large",
    "cluster_needed",
    "unknown_cluster",
    "account_unknown",
    "account_pending",
    "account_blocked",
    "unknown_queue",
    "no_containers",
    "too_many_gpus",
    "too_many_cores",
    "too_much_memory",
    "too_many_nodes",
    "too_long",
)
_KEY = ("idempotency_key_reused", "request_in_flight", "seal_conflict", "suspended")
_BODY = ("body", "not_json", "invalid_body", "too_slow", "too_large")
_ACCOUNT = ("account_unknown", "account_pending", "account_blocked", "suspended")
_FILES = (
    "job_unknown",
    "file_unknown",
    "invalid_path",
    *_ACCOUNT,
    "not_a_file",
    "not_a_directory",
    "refused_by_cluster",
    "files_removed",
    "file_changed",
    "session_program_outdated",
)
_PATH = "/v1/jobs/{id}/files/{path}"

ROUTES = (
    Route("GET", "/v1", "The site", (Answer(200, types.Site),), public=True),
    Route("GET", "/v1/openapi.json", "This reference, for programs", (Answer(200),), public=True),
    Route(
        "GET",
        "/v1/reference",
        "This reference, for people",
        (Answer(200, str, HTML),),
        public=True,
    ),
    Route(
        "GET",
        "/v1/me",
        "The caller and their account",
        (Answer(200, types.Me),),
        ("unknown_cluster",),
        parameters=("cluster",),
    ),
    Route("GET", "/v1/clusters", "Clusters and queues", (Answer(200, types.ClusterList),)),
    Route(
        "POST",
        "/v1/jobs",
        "Submit a job; with `dry_run=1` see what would be sent",
        (Answer(201, types.Job), Answer(200, types.Plan)),
        (*_SPEC, *_KEY),
        parameters=("dry_run",),
        headers=("Idempotency-Key",),
        body=JobSpec,
    ),
    Route(
        "POST",
        "/v1/jobs/batch",
        "Submit many jobs",
        (Answer(200, types.BatchResults),),
        _BODY,
        body=Batch,
    ),
    Route(
        "POST",
        "/v1/jobs/status",
        "States of many jobs",
        (Answer(200, types.JobStates),),
        _BODY,
        body=Asked,
    ),
    Route(
        "POST",
        "/v1/jobs/cancel",
        "Cancel many jobs, by ids or by labels",
        (Answer(202, types.JobStates),),
        _BODY,
        body=Cancelled,
    ),
    Route(
        "GET",
        "/v1/jobs",
        "The caller's jobs, newest first",
        (Answer(200, types.JobPage), UNCHANGED),
        ("invalid_cursor",),
        parameters=(*SELECTION, "limit", "cursor"),
        headers=("If-None-Match",),
    ),
    Route(
        "GET",
        "/v1/jobs/{id}",
        "One job; `Prefer: wait=30` answers when its state changes",
        (Answer(200, types.Job), UNCHANGED),
        ("job_unknown",),
        headers=("If-None-Match", "Prefer"),
    ),
    Route(
        "DELETE",
        "/v1/jobs/{id}",
        "Cancel a job, however often",
        (Answer(202, types.Job),),
        ("job_unknown",),
    ),
    Route(
        "POST",
        "/v1/jobs/{id}/hold",
        "Keep a job from being sent to Slurm, however often",
        (Answer(202, types.Job),),
        ("job_unknown", "job_ended", "in_queue"),
    ),
    Route(
        "POST",
        "/v1/jobs/{id}/release",
        "Let a job go that was held back, however often",
        (Answer(202, types.Job),),
        ("job_unknown", "job_ended", "in_queue"),
    ),
    Route(
        "GET",
        "/v1/jobs/{id}/script",
        "The batch script as it was sealed",
        (Answer(200, str, TEXT),),
        ("job_unknown",),
    ),
    Route(
        "GET",
        "/v1/jobs/{id}/environment",
        "The environment of a job",
        (Answer(200, types.Environment), UNCHANGED),
        ("job_unknown",),
        headers=("If-None-Match",),
    ),
    Route(
        "GET",
        "/v1/jobs/{id}/{file}",
        "What a job has printed; `follow=1`: and what it prints until it ends",
        (Answer(200, str, TEXT),),
        ("job_unknown", "no_output", "files_removed", *_ACCOUNT),
        parameters=("offset", "limit", "follow"),
    ),
    Route(
        "GET",
        "/v1/jobs/{id}/files",
        "The entries of a job's directory",
        (Answer(200, types.Directory),),
        (*_FILES, "invalid_cursor"),
        parameters=("limit", "cursor"),
    ),
    Route(
        "GET",
        _PATH,
        "A file (with `Range`), a directory's entries, or all of it as a tar archive",
        (Answer(200, types.Directory), Answer(206, bytes, BYTES), UNCHANGED),
        (*_FILES, "invalid_cursor", "range_not_satisfiable"),
        parameters=("limit", "cursor"),
        headers=("If-None-Match", "Range"),
    ),
    Route(
        "PUT",
        _PATH,
        "Bring a file",
        (Answer(201), Answer(204)),
        (*_FILES, "body", "too_slow", "too_large", "quota", "precondition_failed"),
        headers=("If-Match", "If-None-Match"),
        body=BYTES,
    ),
    Route(
        "DELETE",
        _PATH,
        "Remove a file, or a directory with all that is in it",
        (Answer(204),),
        (*_FILES, "precondition_failed"),
        headers=("If-Match",),
    ),
    Route("GET", "/problems", "All problems", (Answer(200, str, HTML),), public=True),
    Route(
        "GET",
        "/problems/{code}",
        "One problem",
        (Answer(200, str, HTML),),
        ("not_found",),
        public=True,
    ),
    Route("GET", "/livez", "Whether it answers", (Answer(200, str, TEXT),), public=True),
    Route(
        "GET",
        "/readyz",
        "Whether it is ready",
        (Answer(200, str, TEXT), Answer(503, str, TEXT)),
        parameters=("verbose",),
        public=True,
    ),
)
BY_PLACE = {(route.method, route.path): route for route in ROUTES}
"""Each route by its method and path."""
