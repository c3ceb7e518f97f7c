"""Jobs as values: the PSI/J specification, the states and their order, and how a job may end."""

import hashlib
import re
from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any

import msgspec

from headgate.identity import Identity
from headgate.problems import Fault, Invalid

MARKER_PREFIX = "hg-"
SEAL_VERSION = 1

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_ROW = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@-]{0,254}")

Text = Annotated[str, msgspec.Meta(max_length=65536)]
Word = Annotated[str, msgspec.Meta(max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*\Z")]
LabelName = Annotated[
    str, msgspec.Meta(min_length=1, max_length=63, pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]*\Z")
]
LabelValue = Annotated[str, msgspec.Meta(max_length=255)]
Labels = Annotated[dict[LabelName, LabelValue], msgspec.Meta(max_length=16)]
Count = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]


class State(StrEnum):
    """State of a job in the words of PSI/J; a requeue goes back from `active` to `queued`."""

    NEW = "new"
    QUEUED = "queued"
    HELD = "held"
    ACTIVE = "active"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELED = "canceled"

    @property
    def final(self) -> bool:
        """Whether nothing can follow."""
        return self in {State.COMPLETED, State.FAILED, State.CANCELED}


class FailureKind(StrEnum):
    """Why a job did not do what it was sent for. Lists are open: a later release may add kinds."""

    PAYLOAD = "payload"
    TIME_LIMIT = "time_limit"
    OUT_OF_MEMORY = "out_of_memory"
    NODE = "node"
    PREEMPTED = "preempted"
    CANCELLED_BY_USER = "cancelled_by_user"
    CANCELLED_BY_SITE = "cancelled_by_site"
    IMAGE = "image"
    STAGING = "staging"
    QUOTA = "quota"
    POLICY = "policy"
    LOST = "lost"


class Failure(msgspec.Struct, frozen=True):
    """Kind of an end, whether the same job may well succeed another time, and a sentence."""

    kind: FailureKind
    detail: str
    retry: bool = False


class Container(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The image a job runs in: a reference as `udocker pull` takes it."""

    image: Annotated[str, msgspec.Meta(min_length=1, max_length=255)]


class Resources(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a job needs. GPUs and cores are per process; `memory` is bytes per node.

    `process_count` is one for each node unless it is given.
    """

    node_count: Count = 1
    process_count: Count | None = None
    cpu_cores_per_process: Count = 1
    gpu_cores_per_process: Annotated[int, msgspec.Meta(ge=0, le=1024)] = 0
    memory: Annotated[int, msgspec.Meta(ge=1024**2, le=1024**5)] | None = None

    @property
    def processes(self) -> int:
        """How many processes there are."""
        return self.node_count if self.process_count is None else self.process_count

    @property
    def processes_per_node(self) -> int:
        """The most that any node gets."""
        return -(-self.processes // self.node_count)


class Attributes(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """How the scheduler shall treat a job; `duration` is the wall time it may take, in seconds.

    `hold`: it is not sent before its owner releases it, so that its files can be brought first.
    """

    duration: Annotated[int, msgspec.Meta(ge=1, le=366 * 86400)] | None = None
    queue_name: Word | None = None
    account: Word | None = None
    reservation_id: Word | None = None
    hold: bool = False


class JobSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What to run, as PSI/J's `JobSpec` has it; `cluster` may stay empty where there is one.

    `labels` are the caller's own words, for finding jobs again; nothing here acts on them.
    """

    executable: Annotated[str, msgspec.Meta(min_length=1, max_length=4096)]
    arguments: tuple[Text, ...] = ()
    environment: dict[str, Text] = msgspec.field(default_factory=dict)
    name: Annotated[str, msgspec.Meta(max_length=255)] = ""
    container: Container | None = None
    resources: Resources = Resources()
    attributes: Attributes = Attributes()
    cluster: Word | None = None
    labels: Labels = msgspec.field(default_factory=dict)


def check_spec(spec: JobSpec) -> None:
    """Raise `Invalid` with every fault that the type alone does not catch."""
    faults = [
        Fault(f"/environment/{name}", "This is no name of an environment variable.")
        for name in spec.environment
        if not _NAME.fullmatch(name)
    ]
    texts: list[tuple[str, str]] = [("/executable", spec.executable), ("/name", spec.name)]
    texts += [(f"/arguments/{index}", text) for index, text in enumerate(spec.arguments)]
    texts += [(f"/environment/{name}", text) for name, text in spec.environment.items()]
    texts += [(f"/labels/{name}", text) for name, text in spec.labels.items()]
    faults += [Fault(p, "This cannot be passed on.") for p, text in texts if not _passable(text)]
    if spec.container and not _IMAGE.fullmatch(spec.container.image):
        faults.append(Fault("/container/image", "This is no image reference."))
    if spec.resources.processes < spec.resources.node_count:
        faults.append(Fault("/resources/process_count", "Each node needs a process."))
    if faults:
        first = f"{faults[0].pointer}: {faults[0].detail}"
        raise Invalid(first, code="invalid_spec", faults=faults)


def _passable(text: str) -> bool:
    """Whether a text survives as an argument of a process: no NUL, no lone surrogate."""
    try:
        return b"\0" not in text.encode("utf-8")
    except UnicodeEncodeError:
        return False


def marker(row: str) -> str:
    """The name a job carries in Slurm: by it, and only by it, we find it again."""
    return MARKER_PREFIX + row


def is_row(text: str) -> bool:
    """Whether this could be the id of a job: others need not be looked for."""
    return _ROW.fullmatch(text) is not None


class Sealed(msgspec.Struct, frozen=True):
    """Exactly what will be executed for one row: the digest of it is sealed at admission."""

    row: str
    uid: int
    script: str
    sbatch_args: tuple[str, ...]
    directory: str
    environment: str
    """Shell assignments that the job reads once and removes; they never reach Slurm."""

    def digest(self) -> str:
        """SHA-256 of the RFC 8785 form of {v, row, uid, script_sha256, sbatch_args, …}, in hex.

        Keys and values are ASCII names, integers and strings, for which sorted compact JSON is
        that canonical form. `headgate_session.py` computes the same on its own.
        """
        document = {
            "v": SEAL_VERSION,
            "row": self.row,
            "uid": self.uid,
            "script_sha256": hashlib.sha256(self.script.encode()).hexdigest(),
            "sbatch_args": list(self.sbatch_args),
            "directory": self.directory,
            "env_sha256": hashlib.sha256(self.environment.encode()).hexdigest(),
        }
        return hashlib.sha256(msgspec.json.encode(document, order="sorted")).hexdigest()


HELD_WORDS = "held back by its owner"
"""Why a job waits that was not sent yet."""


class Submitted(msgspec.Struct, frozen=True):
    """sbatch's answer; `words` is what it or the site's plugins said besides."""

    attempt: int
    job_id: int
    words: str = ""


class JobFiles(msgspec.Struct, frozen=True):
    """What the files in a job's directory say; `claim` is "<Slurm job id> <node>", or "?"."""

    attempt: int = 0
    submitted: Submitted | None = None
    claim: str | None = None
    exit: int | None = None
    failure: str | None = None


class Effective(msgspec.Struct, frozen=True, omit_defaults=True):
    """What Slurm made of the request: its answer wins. `duration` in seconds."""

    queue_name: str = ""
    account: str = ""
    duration: int | None = None
    node_count: int = 0
    cpu_cores: int = 0
    gpus: int = 0


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One row: what was asked, who asked, how far it has come. Times are aware, UTC.

    `environment_names` are those of an environment whose values are not kept any more.
    """

    id: str
    owner: Identity
    client_id: str
    groups: tuple[str, ...]
    cluster: str
    realm: str
    account: str
    uid: int
    directory: str
    spec: JobSpec
    environment_names: tuple[str, ...] = ()
    state: State = State.NEW
    status_message: str = ""
    attempt: int = 1
    revision: int = 1
    native_id: int | None = None
    submitted_at: datetime | None = None
    effective: Effective | None = None
    exit_code: int | None = None
    failure: Failure | None = None
    nodes: str = ""
    cancel_requested: bool = False
    hold_requested: bool = False
    missing_since: datetime | None = None
    retry_at: datetime | None = None
    created_at: datetime
    updated_at: datetime
    started_at: datetime | None = None
    ended_at: datetime | None = None
    files_removed_at: datetime | None = None

    @property
    def marker(self) -> str:
        """The job's name in Slurm."""
        return marker(self.id)

    def changed(self, at: datetime, changes: Mapping[str, Any]) -> "Job":
        """The next revision; itself where nothing changes or the job has ended already."""
        different = {k: v for k, v in changes.items() if getattr(self, k) != v}
        if not different or self.state.final:
            return self
        state = different.get("state", self.state)
        if self.spec.environment and (state is State.ACTIVE or state.final):
            # The job has read it: values are kept no longer than they may have to be sent again.
            different["environment_names"] = tuple(sorted(self.spec.environment))
            different["spec"] = msgspec.structs.replace(self.spec, environment={})
        return msgspec.structs.replace(self, **different, updated_at=at, revision=self.revision + 1)

    def ended(
        self,
        state: State,
        at: datetime,
        failure: Failure | None = None,
        facts: Mapping[str, Any] | None = None,
    ) -> "Job":
        """The last revision; `facts` are further fields, `ended_at` among them if it is known."""
        final = {"state": state, "failure": failure, "ended_at": at, "status_message": ""}
        return self.changed(at, {**final, **(facts or {})})
