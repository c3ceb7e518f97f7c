"""A job's end as an exit status."""

import pytest

from headgate.cli import exits
from headgate.client import Failure, Job, JobState


def ended(state: JobState, code: int | None = None, kind: str = "") -> Job:
    """A job that has ended like that."""
    failure = Failure(kind=kind) if kind else None
    return Job(id="x", state=state, exit_code=code, failure=failure)


@pytest.mark.parametrize(
    ("job", "status"),
    [
        (ended(JobState.COMPLETED, 0), 0),
        (ended(JobState.COMPLETED), 0),
        (ended(JobState.FAILED, 3, "payload"), 3),
        (ended(JobState.FAILED, -9, "payload"), 137),
        (ended(JobState.FAILED, 300, "payload"), 255),
        (ended(JobState.FAILED, None, "time_limit"), 124),
        (ended(JobState.FAILED, 0, "time_limit"), 124),
        (ended(JobState.FAILED, None, "image"), 126),
        (ended(JobState.FAILED, 0, "node"), 126),
        (ended(JobState.FAILED), 126),
        (ended(JobState.CANCELED), 130),
        (ended(JobState.CANCELED, 15), 15),
    ],
)
def test_of_job(job: Job, status: int):
    """The payload's code where there is one, else what the help documents."""
    assert exits.of_job(job) == status
