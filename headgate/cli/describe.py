"""Jobs and identities in a person's words: pure, no terminal."""

import shlex
from datetime import datetime

from rich.text import Text

from headgate.cli.wording import count, duration, harmless, memory, moment
from headgate.client import Job, JobSpec, JobState, Me, ProblemError, Resources

_COLOURS = {
    JobState.NEW: "cyan",
    JobState.QUEUED: "yellow",
    JobState.HELD: "magenta",
    JobState.ACTIVE: "bold blue",
    JobState.COMPLETED: "green",
    JobState.FAILED: "bold red",
    JobState.CANCELED: "bright_black",
}
_OPTIONS = {
    "/container/image": "--image",
    "/resources/gpu_cores_per_process": "--gpus",
    "/resources/cpu_cores_per_process": "--cpus",
    "/resources/memory": "--memory",
    "/resources/node_count": "--nodes",
    "/attributes/duration": "--time",
    "/attributes/queue_name": "--queue",
    "/attributes/account": "--account",
    "/attributes/reservation_id": "--reservation",
    "/environment": "--env",
    "/name": "--name",
    "/cluster": "--cluster",
    "/executable": "the command",
    "/arguments": "the command",
}
"""What a person typed for each part of a job specification."""


def state(job: Job) -> Text:
    """A job's state in its colour."""
    return Text(job.state.value, style=_COLOURS.get(job.state, ""))


def option_of(pointer: str) -> str:
    """What a person typed for a place in a job specification, with the pointer beside it."""
    parts = pointer.split("/")
    for length in range(len(parts), 1, -1):
        option = _OPTIONS.get("/".join(parts[:length]))
        if option:
            return f"{option} ({pointer})"
    return pointer or "the request"


def headline(error: Exception) -> str:
    """The first sentence of a failure; what its list of faults says anyway is not said twice."""
    if isinstance(error, ProblemError):
        problem = error.problem
        if any(fault.detail and fault.detail in problem.detail for fault in problem.errors):
            return "The request was refused:"
    return str(error)


def fields(job: Job, now: datetime) -> dict[str, str | Text]:
    """All that is known about a job, under the names a person knows; what is not known is empty."""
    return {
        "job": job.id,
        "name": job.name or "",
        "state": Text.assemble(state(job), _in_brackets(job)),
        "why": _failure(job),
        "cluster": _where(job),
        "Slurm job": _native(job),
        "nodes": job.nodes or "",
        **_request(job.spec),
        "created": _when(job.created_at, now),
        "started": _when(job.started_at, now),
        "ended": _when(job.ended_at, now),
        "ran": ran(job, now),
        "directory": job.directory or "",
    }


def queue(job: Job) -> str:
    """The queue the scheduler chose, else the one that was asked for."""
    if job.effective is not None and job.effective.queue_name:
        return job.effective.queue_name
    if job.spec is not None and job.spec.attributes is not None:
        return job.spec.attributes.queue_name or ""
    return ""


def ran(job: Job, now: datetime) -> str:
    """How long a job has run, or ran; empty before its start."""
    if job.started_at is None or (job.ended_at is None and job.state.final):
        return ""
    return duration(((job.ended_at or now) - job.started_at).total_seconds())


def account(me: Me) -> str:
    """The account and its number, or that there is none."""
    if not me.account:
        return "none"
    return f"{me.account} (uid {me.uid})" if me.uid is not None else me.account


def sentence(job: Job, now: datetime) -> str:
    """One line for a change: `queued: waits for resources`, `failed after 3s: …`."""
    words = job.state.value
    if job.state.final:
        took = ran(job, now)
        words += f" after {took}" if took else ""
        if job.exit_code:
            words += f" with exit code {job.exit_code}"
        return f"{words}: {job.failure.detail}" if job.failure and job.failure.detail else words
    return f"{words}: {job.status_message}" if job.status_message else words


def _when(moment_: datetime | None, now: datetime) -> str:
    return moment(moment_, now) if moment_ else ""


def _in_brackets(job: Job) -> str:
    if job.state.final:
        return "" if job.exit_code is None else f" (exit code {job.exit_code})"
    if job.cancel_requested:
        return " (being canceled)"
    return f" ({harmless(job.status_message)})" if job.status_message else ""


def _failure(job: Job) -> str:
    if job.failure is None:
        return ""
    again = " Trying again may help." if job.failure.retry else ""
    return f"{job.failure.kind}: {job.failure.detail}{again}"


def _where(job: Job) -> str:
    parts = (
        job.cluster or "",
        f"queue {queue(job)}" if queue(job) else "",
        f"as {job.account}" if job.account else "",
    )
    return ", ".join(part for part in parts if part)


def _native(job: Job) -> str:
    if job.native_id is None:
        return ""
    return f"{job.native_id}" + (f" (attempt {job.attempt})" if job.attempt > 1 else "")


def _request(spec: JobSpec | None) -> dict[str, str | Text]:
    if spec is None:
        return {}
    amounts = _amounts(spec.resources or Resources())
    if spec.attributes is not None and spec.attributes.duration:
        amounts.append(f"for {duration(spec.attributes.duration)}")
    return {
        "command": shlex.join([spec.executable, *spec.arguments]),
        "image": spec.container.image if spec.container else "",
        "asked for": ", ".join(amounts),
    }


def _amounts(asked: Resources) -> list[str]:
    words = []
    if (asked.node_count or 1) > 1:
        words.append(count(asked.node_count or 1, "node"))
    if asked.gpu_cores_per_process:
        words.append(count(asked.gpu_cores_per_process, "GPU"))
    if asked.cpu_cores_per_process:
        words.append(count(asked.cpu_cores_per_process, "core"))
    if asked.memory:
        words.append(memory(asked.memory))
    return words


def coloured(job: Job, words: str) -> Text:
    """A sentence whose first word, the state, has its colour."""
    first, space, rest = harmless(words).partition(" ")
    return Text.assemble((first, _COLOURS.get(job.state, "")), space, rest)
