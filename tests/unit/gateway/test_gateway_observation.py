"""What each answer of Slurm's means for a job."""

from datetime import UTC, datetime
from typing import Any

import pytest

from gateway.jobs import FailureKind, Job, JobSpec, State
from gateway.observation import accounted, observed, reason_in_words
from headgate.identity import Identity
from headgate.slurm.model import AccountedJob, JobState, QueuedJob

NOW = datetime(2026, 11, 21, tzinfo=UTC)
STARTED = datetime(2026, 11, 21, 1, tzinfo=UTC)


def job(*, cancel_requested: bool = False) -> Job:
    """A job that Slurm has taken."""
    return Job(
        id="6f3b6c1e-0000-4000-8000-000000000001",
        owner=Identity("https://iam/", "alice"),
        client_id="",
        groups=(),
        cluster="c",
        realm="r",
        account="alice",
        uid=20001,
        directory="/home/alice/j",
        spec=JobSpec(executable="/bin/true"),
        state=State.QUEUED,
        native_id=5,
        cancel_requested=cancel_requested,
        created_at=NOW,
        updated_at=NOW,
    )


def queued(state: JobState, **changes: Any) -> QueuedJob:
    """A row of the queue."""
    fields: dict[str, Any] = {
        "job_id": 5,
        "user": "alice",
        "uid": 20001,
        "account": "users",
        "partitions": ("gpu",),
        "state": state,
        "reason": "None",
        "cpus": 2,
        "nodes": 1,
        "node_list": "n1",
        "submitted_at": NOW,
        "started_at": STARTED,
        "ended_at": None,
        "time_limit_minutes": 10,
        "tres": {"gres/gpu": 1},
    }
    return QueuedJob(**{**fields, **changes})


def remembered(state: JobState, **changes: Any) -> AccountedJob:
    """What accounting knows."""
    fields: dict[str, Any] = {
        "job_id": 5,
        "user": "alice",
        "uid": 20001,
        "account": "users",
        "partition": "gpu",
        "state": state,
        "exit_status": 0,
        "exit_signal": 0,
        "submitted_at": NOW,
        "started_at": STARTED,
        "ended_at": STARTED,
        "node_list": "n1",
    }
    return AccountedJob(**{**fields, **changes})


@pytest.mark.parametrize(
    ("state", "reason", "expected"),
    [
        (JobState.PENDING, "Resources", State.QUEUED),
        (JobState.PENDING, "JobHeldUser", State.HELD),
        (JobState.REQUEUED, "None", State.QUEUED),
        (JobState.RUNNING, "None", State.ACTIVE),
        (JobState.COMPLETING, "None", State.ACTIVE),
        (JobState.UNKNOWN, "None", State.ACTIVE),
    ],
)
def test_a_job_in_the_queue_has_a_state_of_psij(state: JobState, reason: str, expected: State):
    """Slurm's many states become the few a client knows."""
    assert observed(job(), queued(state, reason=reason), NOW).state is expected


def test_what_slurm_made_of_the_request_is_shown():
    """Queue, account, time and GPUs are read back from Slurm's answer."""
    effective = observed(job(), queued(JobState.RUNNING), NOW).effective
    assert effective is not None
    assert (effective.queue_name, effective.account) == ("gpu", "users")
    assert (effective.duration, effective.gpus, effective.cpu_cores) == (600, 1, 2)


@pytest.mark.parametrize(
    ("state", "kind"),
    [
        (JobState.TIMEOUT, FailureKind.TIME_LIMIT),
        (JobState.OUT_OF_MEMORY, FailureKind.OUT_OF_MEMORY),
        (JobState.NODE_FAIL, FailureKind.NODE),
        (JobState.PREEMPTED, FailureKind.PREEMPTED),
        (JobState.FAILED, FailureKind.PAYLOAD),
    ],
)
def test_an_end_has_a_kind(state: JobState, kind: FailureKind):
    """Each way to fail is told apart."""
    after = accounted(job(), remembered(state, exit_status=1), NOW)
    assert after.state is State.FAILED
    assert after.failure is not None
    assert after.failure.kind is kind


def test_a_signal_is_a_status_above_128():
    """A payload killed by a signal ends with 128 plus its number, as in a shell."""
    after = accounted(job(), remembered(JobState.FAILED, exit_signal=9), NOW)
    assert after.exit_code == 137


@pytest.mark.parametrize(
    ("by", "asked", "kind"),
    [
        (20001, False, FailureKind.CANCELLED_BY_USER),
        (None, True, FailureKind.CANCELLED_BY_USER),
        (0, False, FailureKind.CANCELLED_BY_SITE),
        (0, True, FailureKind.CANCELLED_BY_USER),
    ],
)
def test_a_cancelled_job_says_who_cancelled_it(by: int | None, *, asked: bool, kind: FailureKind):
    """The owner's own cancel and the site's are different ends."""
    row = remembered(JobState.CANCELLED, cancelled_by_uid=by)
    after = accounted(job(cancel_requested=asked), row, NOW)
    assert after.state is State.CANCELED
    assert after.failure is not None
    assert after.failure.kind is kind


def test_reasons_are_sentences_and_unknown_ones_stay_slurms():
    """A person reads why a job waits; a new reason is shown as it is."""
    assert reason_in_words("Resources") == "waiting for free resources"
    assert reason_in_words("BrandNew") == "Slurm says BrandNew"
    assert reason_in_words("None") == ""
