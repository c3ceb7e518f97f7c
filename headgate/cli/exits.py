"""The exit statuses of the `headgate` command, and how a job's end becomes one."""

from headgate.client import Job, JobState

FAILED = 1
"""The command could not do what was asked; the sentence on standard error says why."""
USAGE = 2
"""The command line makes no sense."""
TIME_LIMIT = 124
"""With --wait: the job was ended by its time limit (as timeout(1) has it)."""
NOT_FOLLOWED = 125
"""With --wait: the job was refused, or could not be followed to its end."""
NO_PAYLOAD_STATUS = 126
"""With --wait: the job failed and its payload has no exit code (image, node, lost, …)."""
INTERRUPTED = 130
"""Ctrl-C, or with --wait: the job was canceled."""

SIGNAL_BASE = 128
LARGEST = 255


def of_job(job: Job) -> int:
    """The exit status that stands for an ended job: the payload's own where there is one.

    A payload killed by a signal (a negative code) gives 128 + signal, as shells have it.
    """
    code = job.exit_code
    if job.state is JobState.COMPLETED:
        return _in_range(code or 0)
    if code:
        return _in_range(code)
    if job.state is JobState.CANCELED:
        return INTERRUPTED
    if job.failure is not None and job.failure.kind == "time_limit":
        return TIME_LIMIT
    return NO_PAYLOAD_STATUS


def _in_range(code: int) -> int:
    if code < 0:
        return min(SIGNAL_BASE - code, LARGEST)
    return min(code, LARGEST)
