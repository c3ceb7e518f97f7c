"""Files of jobs that ended long ago: which are due to be removed, and that they are gone."""

from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus

from gateway.jobs import Job
from headgate.clock import rfc3339
from headgate.identity import Identity
from headgate.problems import Problem


class Gone(Problem):
    """It was there, and is not any more (RFC 9110, section 15.5.11)."""

    status = HTTPStatus.GONE
    default_code = "files_removed"


def require_files(job: Job) -> None:
    """Raise `Gone`, with the date, where a job's files were removed."""
    if job.files_removed_at is not None:
        day = rfc3339(job.files_removed_at)
        words = f"The files of this job were removed at {day}: they are kept for a while only."
        raise Gone(words, members={"files_removed_at": day})


@dataclass(frozen=True, slots=True)
class Expired:
    """A job that ended so long ago that its files go."""

    id: str
    owner: Identity
    account: str
    directory: str
    ended_at: datetime
