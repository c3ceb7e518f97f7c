"""Jobs: the rows that squeue and sacct print for the fields that are asked for here.

Rows are told apart by a mark that the reader draws anew for every question. Whatever text a user
got into a field (without enforced associations even the account is free text, newlines included),
it cannot hold that mark, so it cannot end a row or begin another one.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache, partial

from headgate.slurm.model import AccountedJob, JobState, QueuedJob
from headgate.slurm.parse.notes import Note, silent
from headgate.slurm.parse.resources import NOTHING, tres
from headgate.slurm.parse.times import minutes, moment

QUEUE_FIELDS = (
    "JobID",
    "ArrayJobID",
    "ArrayTaskID",
    "UserName",
    "UserID",
    "Partition",
    "State",
    "NumCPUs",
    "NumNodes",
    "NodeList",
    "SubmitTime",
    "StartTime",
    "EndTime",
    "TimeLimit",
    "exit_code",
    "RestartCnt",
    "tres-alloc",
    # From here on text that might hold a separator; it can only disarrange itself.
    "Reason",
    "QOS",
    "Account",
)
"""Fields of squeue's `-O` that a queue row has, in their order (squeue(1))."""

NAME_FIELD = "Name"
"""Comes before the others, and only where a filter left no names but those asked for."""

ACCOUNTED_FIELDS = (
    "JobIDRaw",
    "UID",
    "User",
    "Partition",
    "State",
    "ExitCode",
    "Submit",
    "Start",
    "End",
    "NodeList",
    "Account",
    "JobName",
)
"""Fields of sacct's `--format`, in their order (sacct(1))."""

_BEGINNING = datetime.fromtimestamp(0, UTC)


class MalformedAnswerError(ValueError):
    """The text is not the rows that were asked for: cut short, or of another shape."""


def queue_format(mark: str, *, named: bool = False) -> str:
    """The argument of squeue's `-O`: each field with `|` behind it, the row ended by the mark.

    Without a `:` squeue cuts every field at 20 characters; with one and no size it cuts nothing.
    """
    fields = (NAME_FIELD, *QUEUE_FIELDS) if named else QUEUE_FIELDS
    return ",".join(f"{field}:|" for field in fields) + mark


def queued_jobs(text: str, mark: str, note: Note = silent) -> list[QueuedJob]:
    """The rows of `squeue -h --noconvert -O` with `queue_format(mark)`, oldest first.

    Raises:
        MalformedAnswerError: the text does not end with a whole row.
    """
    read = _QueueRows(note)
    found = [job for row in _rows(text, mark) if (job := read.job(row)) is not None]
    return sorted(found, key=_age)


def named_jobs(
    text: str, mark: str, names: Sequence[str], note: Note = silent
) -> dict[str, list[QueuedJob]]:
    """Rows of `queue_format(mark, named=True)` by name, oldest first.

    squeue's `--name` ignores case; what has not exactly one of the names is left out.

    Raises:
        MalformedAnswerError: the text does not end with a whole row.
    """
    read = _QueueRows(note)
    wanted = frozenset(names)
    found: dict[str, list[QueuedJob]] = {}
    for row in _rows(text, mark):
        name, _, fields = row.partition("|")
        if name in wanted and (job := read.job(fields)) is not None:
            found.setdefault(name, []).append(job)
    return {name: sorted(jobs, key=_age) for name, jobs in found.items()}


def accounted_jobs(
    text: str, mark: str, names: Sequence[str], note: Note = silent
) -> dict[str, list[AccountedJob]]:
    """Rows of `sacct --parsable --noheader` by name, oldest first; see `accounting_delimiter`.

    The database compares names without case and trailing spaces; what has not exactly one of the
    names is left out.

    Raises:
        MalformedAnswerError: the text is not made of whole rows.
    """
    wanted = frozenset(names)
    width = len(ACCOUNTED_FIELDS)
    *cells, rest = text.split(accounting_delimiter(mark))
    if len(cells) % width or rest.strip():
        raise MalformedAnswerError("the answer ends within a row")
    found: dict[str, list[AccountedJob]] = {}
    for start in range(0, len(cells), width):
        # The newline behind a row's last mark stands before the next row's first field.
        row = dict(zip(ACCOUNTED_FIELDS, cells[start : start + width], strict=True))
        if row["JobName"] in wanted and (job := _accounted(row, note)) is not None:
            found.setdefault(row["JobName"], []).append(job)
    return {name: sorted(jobs, key=_age) for name, jobs in found.items()}


def accounting_delimiter(mark: str) -> str:
    """The argument of sacct's `--delimiter`: the mark behind every field, with an edge of its own.

    Without the edges the end of a field and the start of the mark could look like the mark.
    """
    return f"|{mark}|"


def job_state(text: str, note: Note = silent) -> JobState:
    """A state's long word; a word that is not known is noted and becomes UNKNOWN."""
    try:
        return JobState(text)
    except ValueError:
        note("job state", text)
        return JobState.UNKNOWN


def array_tasks(expression: str) -> int:
    """How many elements an array expression stands for: `[1-9,20%5]` is 10, `20-60:10` is 5.

    Also with the job's id before it (`123_[1-9]`); one element, or none of an array, is 1.

    Raises:
        ValueError: not an array expression.
    """
    inside = expression.rpartition("_")[2].strip("[]").partition("%")[0]
    if inside in NOTHING:
        return 1
    total = 0
    for piece in inside.split(","):
        bounds, _, step = piece.partition(":")
        low, dash, high = bounds.partition("-")
        first, last, by = int(low), int(high if dash else low), int(step or 1)
        if last < first or by < 1:
            raise ValueError(f"not an array expression: {expression!r}")
        total += (last - first) // by + 1
    return total


def _rows(text: str, mark: str) -> Iterator[str]:
    *rows, rest = text.split(f"|{mark}\n")
    if rest:
        raise MalformedAnswerError("the answer ends within a row")
    yield from rows


class _QueueRows:
    """Reads the rows of one answer; what many rows have in common is understood once."""

    def __init__(self, note: Note) -> None:
        self._note = note
        self._state = cache(partial(job_state, note=note))
        self._moment = cache(partial(moment, note=note))
        self._minutes = cache(partial(minutes, note=note))
        self._tres = cache(partial(tres, note=note))

    def job(self, text: str) -> QueuedJob | None:
        """One row; None, and a note, where it is not one."""
        try:
            return self._job(text.split("|", len(QUEUE_FIELDS) - 1))
        except ValueError:
            self._note("queue row", text)
            return None

    def _job(self, cells: Sequence[str]) -> QueuedJob:
        (
            job_id,
            array_id,
            tasks,
            user,
            uid,
            partition,
            state_word,
            cpus,
            nodes,
            node_list,
            submitted,
            started,
            ended,
            time_limit,
            exit_code,
            restarts,
            held,
            reason,
            qos,
            account,
        ) = cells  # QUEUE_FIELDS, in their order
        state = self._state(state_word)
        where = _text(node_list)
        status, signal = _exit(exit_code)
        return QueuedJob(
            job_id=int(job_id),
            user=user,
            uid=int(uid),
            account=_text(account),
            partitions=tuple(partition.split(",")),
            state=state,
            reason="" if reason == "None" else reason,
            cpus=_lowest(cpus),
            nodes=_lowest(nodes),
            node_list=where,
            submitted_at=self._moment(submitted),
            # Of a job that waits this is a guess, of one that never ran the time it was given up.
            started_at=self._moment(started) if where and not state.pending else None,
            ended_at=self._moment(ended) if state.final else None,
            time_limit_minutes=self._minutes(time_limit),
            qos=_text(qos),
            array_job_id=int(array_id) if _text(tasks) else 0,
            tasks=array_tasks(tasks),
            exit_status=status,
            exit_signal=signal,
            restarts=int(restarts),
            tres=self._tres(held),
        )


def _accounted(row: Mapping[str, str], note: Note) -> AccountedJob | None:
    try:
        state, _, by = row["State"].partition(" by ")
        status, _, signal = row["ExitCode"].partition(":")
        nodes = "" if row["NodeList"] == "None assigned" else _text(row["NodeList"])
        return AccountedJob(
            job_id=int(row["JobIDRaw"]),
            user=row["User"],
            uid=int(row["UID"]),
            account=_text(row["Account"]),
            partition=row["Partition"],
            state=job_state(state, note),
            exit_status=int(status),
            exit_signal=int(signal or 0),
            submitted_at=moment(row["Submit"], note),
            # Cancelled while it waited, a job may have the time of that as its start.
            started_at=moment(row["Start"], note) if nodes else None,
            ended_at=moment(row["End"], note),
            node_list=nodes,
            cancelled_by_uid=int(by) if by else None,
        )
    except ValueError:
        note("accounting row", "|".join(row.values()))
        return None


def _age(job: QueuedJob | AccountedJob) -> tuple[datetime, int]:
    return (job.submitted_at or _BEGINNING, job.job_id)


def _exit(text: str) -> tuple[int, int]:
    """Status and signal from a raw wait status (`768`), or from `3:0` as other commands write."""
    status, colon, signal = text.partition(":")
    if colon:
        return int(status), int(signal)
    raw = int(text)
    return (raw >> 8) & 0xFF, raw & 0x7F


def _lowest(text: str) -> int:
    """A count, or the lower end of the range that a pending job asked for (`1-2`)."""
    return int(text.partition("-")[0])


def _text(text: str) -> str:
    return "" if text in NOTHING else text
