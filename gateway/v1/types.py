"""What `/v1` answers, as types: the reference is made from them."""

from typing import Annotated, Any, Literal

import msgspec

from gateway.clusters import Queue
from gateway.jobs import Effective, Failure, JobSpec, State

Time = Annotated[str, msgspec.Meta(extra_json_schema={"format": "date-time"})]
"""RFC 3339, UTC."""


class Answered(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is answered: fields without a default are always there, others where they are known."""


class Fault(Answered, frozen=True, kw_only=True):
    """One fault: where in the body or which parameter (RFC 6901), and a sentence."""

    pointer: str
    detail: str


class Limit(Answered, frozen=True, kw_only=True):
    """A limit that a request is beyond: its name, its value, what was asked."""

    name: str
    value: int
    asked: int


class Problem(Answered, frozen=True, kw_only=True):
    """A refusal (RFC 9457); `type` is the address of a page about `code`."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    retryable: bool
    request_id: str = ""
    errors: tuple[Fault, ...] = ()
    limit: Limit | None = None


class Links(Answered, frozen=True, kw_only=True):
    """Where more of a job is."""

    self: str
    stdout: str
    stderr: str
    script: str
    environment: str


class Expiry(Answered, frozen=True, kw_only=True):
    """When what belongs to a job is removed."""

    files: Time


class JobState(Answered, frozen=True, kw_only=True):
    """A job's state and end.

    `native_id` is Slurm's id, `attempt` counts submissions to Slurm, `exit_code` is the payload's
    own answer, `status_message` says why the job waits.
    """

    id: str
    name: str
    state: State
    cluster: str
    attempt: int
    created_at: Time
    updated_at: Time
    status_message: str = ""
    native_id: str = ""
    exit_code: int | None = None
    failure: Failure | None = None
    cancel_requested: bool = False
    hold_requested: bool = False
    started_at: Time = ""
    ended_at: Time = ""


class Job(JobState, frozen=True, kw_only=True):
    """A job: its state, its end, and what was asked for."""

    account: str
    directory: str
    spec: JobSpec
    links: Links
    effective: Effective | None = None
    nodes: str = ""
    expires: Expiry | None = None
    files_removed_at: Time = ""
    environment_names: tuple[str, ...] = ()


class JobPage(Answered, frozen=True, kw_only=True):
    """A page of jobs, newest first; `next` is the cursor of the page that follows."""

    jobs: tuple[Job, ...]
    next: str = ""


class Plan(Answered, frozen=True, kw_only=True):
    """What would be sent to Slurm."""

    cluster: str
    account: str
    directory: str
    sbatch_args: tuple[str, ...]
    script: str


class BatchResult(Answered, frozen=True, kw_only=True):
    """What one item of a batch has come to: a job (201) or a problem."""

    status: int
    job: Job | None = None
    problem: Problem | None = None


class BatchResults(Answered, frozen=True, kw_only=True):
    """One result for each item, in their order."""

    results: tuple[BatchResult, ...]


class JobStates(Answered, frozen=True, kw_only=True):
    """States of the caller's jobs among those asked for, and the ids of the others."""

    jobs: tuple[JobState, ...]
    unknown: tuple[str, ...]
    more: bool = False


class Environment(Answered, frozen=True, kw_only=True):
    """The environment of a job; `values` is null once they are kept no longer."""

    names: tuple[str, ...]
    values: dict[str, str] | None


class Planned(Answered, frozen=True, kw_only=True):
    """A reservation for maintenance."""

    name: str
    nodes: str
    starts_at: Time | None
    ends_at: Time | None


class Cluster(Answered, frozen=True, kw_only=True):
    """A cluster; without queues it could not be read so far."""

    name: str
    containers: bool
    queues: tuple[Queue, ...]
    maintenance: tuple[Planned, ...]
    read_at: Time | None


class ClusterList(Answered, frozen=True, kw_only=True):
    """All clusters."""

    clusters: tuple[Cluster, ...]


class Me(Answered, frozen=True, kw_only=True):
    """The caller, and their account in a realm, or why there is none."""

    iss: str
    sub: str
    name: str
    groups: tuple[str, ...]
    realm: str
    state: Literal["active", "blocked", "pending", "unknown"]
    account: str = ""
    uid: int = 0
    reason: str = ""
    how_to_ask: str = ""
    waiting_for: str = ""
    requested_at: str = ""


class Site(Answered, frozen=True, kw_only=True):
    """What a tool has to know before it has a token."""

    name: str
    version: str
    url: str
    features: tuple[str, ...]
    limits: dict[str, int]
    runtimes: dict[str, tuple[str, ...]]
    issuers: tuple[dict[str, Any], ...]
    trusted_issuers: tuple[dict[str, Any], ...]
    notices: tuple[dict[str, Any], ...]
    clusters: tuple[str, ...]
    token_translator: str | None
    login_nodes: tuple[dict[str, Any], ...]


class Entry(Answered, frozen=True, kw_only=True):
    """Something in a job's directory; `mode` in octal, `size` in bytes."""

    name: str
    path: str
    type: str
    size: int
    mode: str
    modified_at: Time
    href: str
    target: str = ""


class Directory(Answered, frozen=True, kw_only=True):
    """A page of a directory's entries."""

    path: str
    entries: tuple[Entry, ...]
    next: str = ""
