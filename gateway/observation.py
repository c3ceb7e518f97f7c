"""What Slurm says of a job, in our words: the next revision of the row, without asking anybody."""

from collections.abc import Mapping
from datetime import datetime

import msgspec

from gateway.images import image_failure
from gateway.jobs import Effective, Failure, FailureKind, Job, JobFiles, JobSpec, State
from headgate.slurm.model import AccountedJob, JobState, QueuedJob

ALREADY_STARTED = 197
"""Status of a batch script that found its row claimed by an earlier start."""
_FIRST_SIGNAL = 128
"""Shells tell of a signal by statuses from here on."""
NO_ROOM = 196
"""Status of a batch script that could not write to its own directory."""

CANCELLED_CLAIM = "cancelled"
"""The claim of a row that was cancelled before it started: no start runs its payload."""

NO_LIMITS: Mapping[str, int | None] = {}

_HELD_REASONS = frozenset({"JobHeldUser", "JobHeldAdmin"})

_REASONS = {
    "Resources": "waiting for free resources",
    "Priority": "waiting behind jobs of higher priority",
    "Dependency": "waiting for another job",
    "BeginTime": "waiting for its start time",
    "JobHeldUser": "held by its owner",
    "JobHeldAdmin": "held by the site",
    "PartitionTimeLimit": "asks for more time than its queue allows",
    "PartitionNodeLimit": "asks for more nodes than its queue allows",
    "PartitionDown": "its queue is down",
    "PartitionInactive": "its queue is closed",
    "ReqNodeNotAvail": "a node it needs is not available",
    "Reservation": "waiting for its reservation",
    "QOSMaxJobsPerUserLimit": "you have as many jobs running as the site allows",
    "AssocMaxJobsLimit": "your account has as many jobs running as the site allows",
    "AssocGrpGRES": "your account uses as many GPUs as the site allows",
    "QOSMaxGRESPerUser": "you use as many GPUs as the site allows",
}

_FAILURES: dict[JobState, tuple[FailureKind, bool, str]] = {
    JobState.TIMEOUT: (FailureKind.TIME_LIMIT, False, "The job ran into its time limit{limit}."),
    JobState.DEADLINE: (FailureKind.TIME_LIMIT, False, "The job's deadline passed."),
    JobState.OUT_OF_MEMORY: (FailureKind.OUT_OF_MEMORY, False, "The job used up its memory."),
    JobState.NODE_FAIL: (FailureKind.NODE, True, "A node of the job failed{nodes}."),
    JobState.BOOT_FAIL: (FailureKind.NODE, True, "A node of the job did not boot{nodes}."),
    JobState.LAUNCH_FAILED: (FailureKind.NODE, True, "The job could not be launched{nodes}."),
    JobState.PREEMPTED: (FailureKind.PREEMPTED, True, "A job of higher priority took its place."),
    JobState.REVOKED: (FailureKind.CANCELLED_BY_SITE, True, "The job was moved away."),
}


def reason_in_words(reason: str) -> str:
    """Why a job waits, for a person; a reason we do not know stays Slurm's own word."""
    bare = reason.split("(", 1)[0].strip()
    return "" if bare in {"", "None"} else _REASONS.get(bare, f"Slurm says {bare}")


def duration_in_words(seconds: int) -> str:
    """A time as people say it, in its two largest units."""
    words, rest = [], seconds
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        number, rest = divmod(rest, size)
        if number:
            words.append(f"{number} {unit}")
    return " ".join(words[:2]) or "0 s"


def _why(row: QueuedJob, limits: Mapping[str, int | None]) -> str:
    """Why a job waits; with the numbers, where they are known."""
    bare, minutes = row.reason.split("(", 1)[0].strip(), row.time_limit_minutes
    for queue in row.partitions:
        limit = limits.get(queue)
        if bare == "PartitionTimeLimit" and limit and minutes and minutes * 60 > limit:
            allowed, asked = duration_in_words(limit), duration_in_words(minutes * 60)
            return f"its queue {queue} allows {allowed} and the job asks for {asked}"
    return reason_in_words(row.reason)


def observed(
    job: Job, row: QueuedJob, at: datetime, limits: Mapping[str, int | None] = NO_LIMITS
) -> Job:
    """A job as the queue shows it now; one that has ended there ends here.

    `limits` are the seconds that queues give, as far as they are known.
    """
    if row.state.final:
        return _end(
            job,
            row.state,
            at=at,
            status=row.exit_status,
            signal=row.exit_signal,
            started_at=row.started_at,
            ended_at=row.ended_at,
            nodes=row.node_list,
            effective=_effective(row),
            by_site=True,  # the queue does not say; it was not through us
        )
    waiting = row.state.pending
    held = waiting and row.reason in _HELD_REASONS
    state = State.HELD if held else State.QUEUED if waiting else State.ACTIVE
    changes: dict[str, object] = {
        "state": state,
        "status_message": _why(row, limits) if waiting else "",
        "submitted_at": row.submitted_at,
        "effective": _effective(row),
        "missing_since": None,
        "retry_at": None,
    }
    if not waiting:
        changes |= {"started_at": row.started_at, "nodes": row.node_list}
    return job.changed(at, changes)


def accounted(job: Job, row: AccountedJob, at: datetime) -> Job:
    """A job as accounting remembers it, after it has left the queue."""
    if not row.state.final:
        return job
    # slurmctld's own deeds carry no uid, and slurmd's are root's.
    by_site = row.cancelled_by_uid != job.uid
    return _end(
        job,
        row.state,
        at=at,
        status=row.exit_status,
        signal=row.exit_signal,
        started_at=row.started_at,
        ended_at=row.ended_at,
        nodes=row.node_list,
        effective=job.effective or Effective(queue_name=row.partition, account=row.account),
        by_site=by_site,
    )


def unexplained(job: Job, row: QueuedJob) -> bool:
    """Whether only accounting knows who ended the job."""
    return row.state is JobState.CANCELLED and not job.cancel_requested


def claimant(files: JobFiles) -> int | None:
    """The Slurm id that the batch script wrote into its claim."""
    word = (files.claim or "").split(" ", 1)[0]
    return int(word) if word.isdigit() else None


_IN_DOUBT = frozenset(
    {
        FailureKind.PAYLOAD,
        FailureKind.CANCELLED_BY_SITE,
        FailureKind.NODE,
        FailureKind.TIME_LIMIT,
    }
)


def has_words(after: Job) -> bool:
    """Whether the job's own files may know better how it ended."""
    if after.failure is None:
        return after.state is State.COMPLETED
    return after.failure.kind in _IN_DOUBT


def in_own_words(
    before: Job, after: Job, files: JobFiles, at: datetime, *, waited: bool
) -> Job | None:
    """An end as the job's own files tell it; None: wait, they may not be seen here yet.

    Slurm knows a start by its id alone: after a controller has forgotten jobs and given their ids
    away again, the status it tells may be another start's. The script writes down its own.
    """
    payload = after.failure is not None and after.failure.kind is FailureKind.PAYLOAD
    alone = before.spec.resources.processes == 1
    if payload and files.failure:
        told = _told(files.failure, before.spec)
        return msgspec.structs.replace(after, exit_code=None, failure=told)
    if files.exit is not None:
        if payload and (files.exit == after.exit_code or not alone):
            return after
        # A payload that is cut off may still say something, and that is not how it would end.
        if files.exit and after.failure and after.failure.kind is FailureKind.TIME_LIMIT:
            return after
        return _keeping(after, unheard(before, files, at))
    if after.state is State.COMPLETED and not waited:
        return None
    return _without_exit(after, files, waited=waited, payload=payload, alone=alone)


def _without_exit(
    after: Job, files: JobFiles, *, waited: bool, payload: bool, alone: bool
) -> Job | None:
    """An end of which the job itself has not written down the status."""
    code = after.exit_code or 0
    if payload and code == NO_ROOM:
        words = "The job's directory could not be written: is there room, in your quota, too?"
        failure = Failure(FailureKind.QUOTA, words)
        return msgspec.structs.replace(after, exit_code=None, failure=failure)
    # A script that has claimed its row and was not killed has written down how it ended.
    foreign = payload and alone and code < _FIRST_SIGNAL
    begun = after.started_at is not None
    doubtful = payload or after.state is State.COMPLETED
    ends_unstarted = files.claim is None and (doubtful or (begun and after.state is State.CANCELED))
    if (ends_unstarted or foreign) and not waited:
        return None
    if ends_unstarted:
        words = "Slurm could not start the job" + (" on its node." if begun else ".")
        failure = Failure(FailureKind.NODE, words, retry=True)
        return msgspec.structs.replace(after, state=State.FAILED, exit_code=None, failure=failure)
    return after


def second_start(before: Job, after: Job, files: JobFiles, at: datetime) -> Job | None:
    """What to make of a start that found its row claimed; None: the first one still goes on."""
    if files.exit is not None or files.claim == CANCELLED_CLAIM:
        return _keeping(after, unheard(before, files, at))
    first = claimant(files)
    if first is not None and first != before.native_id:
        return before.changed(at, {"native_id": first, "missing_since": None})
    return None


def _keeping(facts: Job, end: Job) -> Job:
    """An end, with what Slurm says of times and places."""
    return msgspec.structs.replace(
        end,
        started_at=facts.started_at,
        ended_at=facts.ended_at,
        nodes=facts.nodes,
        effective=facts.effective,
    )


def unheard(job: Job, files: JobFiles, at: datetime) -> Job:
    """The end of a job that was claimed and of which the cluster knows nothing (any more)."""
    if files.claim == CANCELLED_CLAIM:
        return job.ended(State.CANCELED, at, _cancelled(job, by_site=False))
    if files.exit is None:
        detail = "The job started, and the cluster does not know how it ended."
        return job.ended(State.FAILED, at, Failure(FailureKind.LOST, detail, retry=True))
    if files.exit == 0:
        return job.ended(State.COMPLETED, at, None, {"exit_code": 0})
    return job.ended(State.FAILED, at, _payload(files.exit, 0), {"exit_code": files.exit})


def _told(text: str, spec: JobSpec) -> Failure:
    """A failure as the batch script wrote it down: the kind, then whose words there are."""
    word, _, words = text.partition("\n")
    kind = FailureKind(word) if word in set(FailureKind) else FailureKind.PAYLOAD
    if kind is FailureKind.IMAGE:
        return image_failure(words, spec)
    return Failure(kind, words.strip()[-1000:])


def _effective(row: QueuedJob) -> Effective:
    minutes = row.time_limit_minutes
    return Effective(
        queue_name=",".join(row.partitions),
        account=row.account,
        duration=None if minutes is None else minutes * 60,
        node_count=row.nodes,
        cpu_cores=row.cpus,
        gpus=row.tres.get("gres/gpu", 0),
    )


def _end(
    job: Job,
    state: JobState,
    *,
    at: datetime,
    status: int,
    signal: int,
    started_at: datetime | None,
    ended_at: datetime | None,
    nodes: str,
    effective: Effective | None,
    by_site: bool = False,
) -> Job:
    facts: dict[str, object] = {
        "started_at": started_at or job.started_at,
        "ended_at": ended_at or at,
        "nodes": nodes or job.nodes,
        "effective": effective,
    }
    if state is JobState.COMPLETED:
        return job.ended(State.COMPLETED, at, None, {**facts, "exit_code": 0})
    if state is JobState.CANCELLED:
        return job.ended(State.CANCELED, at, _cancelled(job, by_site=by_site), facts)
    code = 128 + signal if signal else status
    if state in _FAILURES:
        # Slurm's own status of what it ended itself: the payload has not answered.
        return job.ended(State.FAILED, at, _failure(job, state), facts)
    return job.ended(State.FAILED, at, _payload(code, signal), {**facts, "exit_code": code})


def _cancelled(job: Job, *, by_site: bool) -> Failure:
    if by_site and not job.cancel_requested:
        return Failure(FailureKind.CANCELLED_BY_SITE, "The site cancelled the job.", retry=True)
    return Failure(FailureKind.CANCELLED_BY_USER, "The job was cancelled by its owner.")


def _failure(job: Job, state: JobState) -> Failure:
    kind, retry, sentence = _FAILURES[state]
    seconds = job.effective.duration if job.effective else job.spec.attributes.duration
    limit = f" of {duration_in_words(seconds)}" if seconds else ""
    nodes = f" ({job.nodes})" if job.nodes else ""
    return Failure(kind, sentence.format(limit=limit, nodes=nodes), retry)


def _payload(code: int, signal: int) -> Failure:
    how = f"was ended by signal {signal}" if signal else f"ended with status {code}"
    return Failure(FailureKind.PAYLOAD, f"The payload {how}.")
