"""The values of a headgate gateway's `/v1` interface, as a client reads and writes them.

Names and meanings are those of PSI/J (https://exaworks.org/job-api-spec/specification.html). Fields
that a newer gateway adds are ignored on reading; nothing that this release does not know is sent.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any

import msgspec


class JobState(StrEnum):
    """The life of a job: forward only, except that a requeued job goes back to `queued`."""

    NEW = "new"
    """Taken by the gateway for good, not yet handed to the cluster."""
    QUEUED = "queued"
    """Known to the cluster's scheduler, waiting for its start."""
    HELD = "held"
    """In the queue, and not considered until somebody releases it."""
    ACTIVE = "active"
    """Running."""
    COMPLETED = "completed"
    """Ended with exit code 0."""
    FAILED = "failed"
    """Ended otherwise; `Job.failure` says how."""
    CANCELED = "canceled"
    """Ended because somebody asked for it."""
    UNKNOWN = "unknown"
    """Not a state of the interface: a word that this release of the client does not know."""

    @property
    def final(self) -> bool:
        """Whether a job in this state has ended and will not change any more."""
        return self in {JobState.COMPLETED, JobState.FAILED, JobState.CANCELED}

    @classmethod
    def _missing_(cls, _value: object) -> "JobState":
        return cls.UNKNOWN


class _Sent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A value that is sent: what is not set is left out, and the gateway's default holds."""


class _Read(msgspec.Struct, frozen=True, kw_only=True):
    """A value that is only read."""


class Container(_Sent, frozen=True):
    """What the payload runs in: `image` as the site's runtime names it (`name:tag`, a URL)."""

    image: str


class Resources(_Sent, frozen=True):
    """What a job needs (PSI/J `ResourceSpecV1`); None is the site's default.

    `cpu_cores_per_process` and `gpu_cores_per_process` count for each process; `memory` is bytes
    on each node.
    """

    node_count: int | None = None
    process_count: int | None = None
    cpu_cores_per_process: int | None = None
    gpu_cores_per_process: int | None = None
    memory: int | None = None


class Attributes(_Sent, frozen=True):
    """How a job is scheduled (PSI/J `JobAttributes`); `duration` is seconds of wall time.

    `hold`: the gateway keeps it back until it is released.
    """

    duration: int | None = None
    queue_name: str | None = None
    account: str | None = None
    reservation_id: str | None = None
    hold: bool = False


class JobSpec(_Sent, frozen=True):
    """What to run. `executable` is found on the PATH of the container, or of the node without one.

    `arguments` and `environment` reach the payload as they are, no shell expands them. `name` is
    the user's own word for the job. `cluster` None: the gateway's default. `labels` (at most 16)
    are for finding jobs again.
    """

    executable: str
    arguments: Sequence[str] = ()
    name: str | None = None
    environment: Mapping[str, str] = {}
    container: Container | None = None
    resources: Resources | None = None
    attributes: Attributes | None = None
    cluster: str | None = None
    labels: Mapping[str, str] = {}


class Failure(_Read, frozen=True):
    """Why a job did not complete. The list of kinds is open; treat an unknown one as `payload`.

    `kind`: payload, time_limit, out_of_memory, node, preempted, cancelled_by_user,
    cancelled_by_site, image, staging, quota, policy, lost. `retry` says whether the same job may
    end better another time; `detail` is a sentence for the user.
    """

    kind: str
    retry: bool = False
    detail: str = ""


class Effective(_Read, frozen=True):
    """What the scheduler made of the request: its answer wins. `duration` is seconds."""

    queue_name: str = ""
    account: str = ""
    duration: int | None = None
    node_count: int = 0
    cpu_cores: int = 0
    gpus: int = 0


class Job(_Read, frozen=True):
    """One job as the gateway knows it now. Times are aware, UTC; None: not yet, or not known.

    `native_id` is the scheduler's own id, `attempt` counts from 1 and grows when it is requeued,
    `exit_code` is the payload's. `status_message` says why the job is where it is. `account` is
    the local account it runs as, `directory` its own directory on the cluster.
    """

    id: str
    state: JobState
    name: str | None = None
    status_message: str | None = None
    cluster: str | None = None
    account: str | None = None
    native_id: str | None = None
    attempt: int = 1
    exit_code: int | None = None
    failure: Failure | None = None
    nodes: str | None = None
    directory: str | None = None
    cancel_requested: bool = False
    created_at: datetime | None = None
    updated_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    effective: Effective | None = None
    spec: JobSpec | None = None
    links: Mapping[str, Any] | None = None


class Me(_Read, frozen=True):
    """Who the gateway takes the caller for.

    `state`: `active` and `blocked` (`reason`) have an account; `pending` waits for one
    (`requested_at`, and `waiting_for` says whom); `unknown` has none, `how_to_ask` says what to do.
    `realm` is the set of clusters that the answer is about.
    """

    iss: str
    sub: str
    state: str
    name: str = ""
    realm: str = ""
    groups: Sequence[str] = ()
    account: str | None = None
    uid: int | None = None
    reason: str | None = None
    requested_at: datetime | None = None
    waiting_for: str | None = None
    how_to_ask: str | None = None


class Queue(_Read, frozen=True):
    """One queue of a cluster, with what its largest node has.

    `state` is Slurm's word (UP, DOWN, DRAIN, INACTIVE); `max_duration` is seconds, None: unlimited.
    """

    name: str
    is_default: bool = False
    state: str = ""
    nodes: int = 0
    max_duration: int | None = None
    cores_per_node: int = 0
    gpus_per_node: int = 0
    gpu_types: Sequence[str] = ()


class Cluster(_Read, frozen=True):
    """One cluster behind the gateway; `containers`: whether jobs can have an image.

    No queues: the cluster could not be read so far.
    """

    name: str
    containers: bool = False
    queues: Sequence[Queue] = ()


class SiteIssuer(_Read, frozen=True):
    """An issuer whose tokens the site takes, and how a person's client asks it for one.

    `client_id` is a public client registered for the command line (RFC 8628); a token with all
    `audiences` is taken by every service of the site.
    """

    issuer: str
    client_id: str = ""
    scopes: Sequence[str] = ()
    audiences: Sequence[str] = ()


class LoginNode(_Read, frozen=True):
    """A login node of the site: an SSH address, and the user base whose accounts it has."""

    host: str
    port: Annotated[int, msgspec.Meta(ge=1, le=65535)] = 22
    realm: str = ""


class Site(_Read, frozen=True):
    """What a gateway says about its site to anybody, token or not (`GET /v1`).

    `url` is the gateway's own name, and the audience of tokens for it; so is `token_translator`
    for the service that gives SSH certificates.
    """

    version: str
    name: str = ""
    url: str = ""
    issuers: Sequence[SiteIssuer] = ()
    clusters: Sequence[str] = ()
    token_translator: str | None = None
    login_nodes: Sequence[LoginNode] = ()
    limits: Mapping[str, Any] | None = None


class Certificate(_Read, frozen=True):
    """An SSH user certificate (one line of OpenSSH's format) and what it says; times are UTC."""

    certificate: str
    serial: int
    account: str
    realm: str
    valid_after: datetime
    valid_before: datetime
    key_id: str = ""
    principals: Sequence[str] = ()


class Hold(_Read, frozen=True):
    """What keeps a person out of the site: `owner` can lift it. `realm` empty: everywhere."""

    id: str
    owner: str
    reason: str
    realm: str = ""
    created_at: datetime | None = None


class DelegatedCertificate(_Read, frozen=True):
    """A certificate that lives for one delegation; `verb` is what it may do with the job."""

    serial: int
    verb: str
    valid_before: datetime
    revoked: bool = False


class Delegation(_Read, frozen=True):
    """What a service may do for the person without a token: one job, as it was when sealed.

    `row` is the job's id at the service; `state` is `active` or `ended`.
    """

    row: str
    service: str
    sealed_at: datetime
    expires_at: datetime
    state: str
    realm: str = ""
    client_id: str = ""
    certificates: Sequence[DelegatedCertificate] = ()
