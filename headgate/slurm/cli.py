"""Reading a cluster through Slurm's own commands: the default `ClusterReader`."""

import asyncio
import contextlib
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from headgate.command import DEFAULT_LIMIT, CommandError, Completed, run
from headgate.slurm import parse
from headgate.slurm.model import (
    AccountedJob,
    ClusterUnavailable,
    Configuration,
    Controller,
    Node,
    Partition,
    QueuedJob,
    Reservation,
)
from headgate.slurm.names import check_names

_DEADLINE = 30.0
_NAMES_AT_ONCE = 1000
"""Names in one question; one argument of a command may have 128 KiB (execve(2))."""

_STATES = "BF,CA,CD,DL,F,NF,OOM,PD,PR,R,RQ,RS,RV,S,TO"
_PREFIX = re.compile(r"^(?:\w+: )?(?:\w+ )?(?:error|fatal): ")
_CHANGES_OUTPUT = ("SACCT_", "SCONTROL_", "SINFO_", "SLURM_", "SQUEUE_")


def command_variables(base: Mapping[str, str], slurm_conf: str = "") -> dict[str, str]:
    """The environment Slurm's commands are asked in: `base` without what changes their output.

    Texts in English, times as epoch seconds (squeue(1), SLURM_TIME_FORMAT) and array expressions
    in full length (SLURM_BITSTR_LEN); `slurm_conf`, if given, says which cluster.
    """
    kept = {key: value for key, value in base.items() if not key.startswith(_CHANGES_OUTPUT)}
    conf = slurm_conf or base.get("SLURM_CONF", "")
    if conf:
        kept["SLURM_CONF"] = conf
    kept.update(LC_ALL="C", SLURM_TIME_FORMAT="%s", SLURM_BITSTR_LEN="0")
    return kept


class CommandReader:
    """Asks `scontrol`, `squeue` and `sacct`; one command and one RPC per question.

    `env` comes from `command_variables`. `before` is put in front of each command (`nsenter …`,
    `ssh …` to a forced command). `timeout` is in seconds, `limit` in bytes, both per command.
    Nothing is cached. Works with Slurm 22.05 and newer.
    """

    def __init__(
        self,
        *,
        env: Mapping[str, str],
        before: Sequence[str] = (),
        timeout: float = _DEADLINE,
        limit: int = DEFAULT_LIMIT,
    ) -> None:
        self._env = env
        self._before = tuple(before)
        self._timeout = timeout
        self._limit = limit
        self._note = parse.Notes()

    async def configuration(self) -> Configuration:
        """The cluster's name, release and settings."""
        return parse.configuration(await self._ask("scontrol", "show", "config"), self._note)

    async def partitions(self) -> Sequence[Partition]:
        """All queues, hidden ones too."""
        text = await self._ask("scontrol", "-a", "-o", "show", "partition")
        return parse.partitions(text, self._note)

    async def nodes(self) -> Sequence[Node]:
        """All nodes, with what is used on them."""
        text = await self._ask("scontrol", "-a", "-d", "-o", "show", "node")
        return await asyncio.to_thread(parse.nodes, text, self._note)

    async def reservations(self) -> Sequence[Reservation]:
        """All reservations."""
        text = await self._ask("scontrol", "-o", "show", "reservation")
        return parse.reservations(text, self._note)

    async def controllers(self) -> Sequence[Controller]:
        """The controllers and whether each answers; a controller that is down is an answer."""
        # The status is 1 as soon as one of them is down.
        answer = await self._run("scontrol", "ping")
        found = parse.controllers(_text(answer.stdout))
        if not found:
            raise _unavailable("scontrol", answer)
        return found

    async def jobs(self, *, ended: bool = False) -> Sequence[QueuedJob]:
        """The queue of everybody in one query; with `ended`, also what has left it recently."""
        mark = _mark()
        text = await self._queue(parse.queue_format(mark), ended=ended)
        with _whole("squeue"):
            # Ten thousand jobs take a quarter of a second: others go on meanwhile.
            return await asyncio.to_thread(parse.queued_jobs, text, mark, self._note)

    async def jobs_named(self, names: Sequence[str]) -> Mapping[str, Sequence[QueuedJob]]:
        """Jobs in the queue or recently ended by exact name; a name nobody has is absent.

        The name is asked back, as squeue's filter leaves only those that were asked for (in any
        case): no other user's text can appear in the answer. Up to 1000 names are one question.

        Raises:
            ValueError: a name has other characters than letters, digits, `.`, `_` and `-`.
        """
        found: dict[str, Sequence[QueuedJob]] = {}
        for some in _chunks(check_names(names)):
            mark = _mark()
            text = await self._queue(
                parse.queue_format(mark, named=True), f"--name={','.join(some)}", ended=True
            )
            with _whole("squeue"):
                found |= parse.named_jobs(text, mark, some, self._note)
        return found

    async def accounted(
        self, names: Sequence[str], *, since: datetime
    ) -> Mapping[str, Sequence[AccountedJob]]:
        """What accounting knows of jobs with these exact names, submitted since; oldest first.

        Up to 1000 names are one question. A job that waits and was never eligible (held, or with
        a dependency) is not in accounting's answer yet: it is in the queue. A submission that
        slurmctld refused is: FAILED, and never started.

        Raises:
            ValueError: a name has other characters than letters, digits, `.`, `_` and `-`.
        """
        found: dict[str, Sequence[AccountedJob]] = {}
        for some in _chunks(check_names(names)):
            mark = _mark()
            text = await self._ask(*_accounting_question(some, since, mark))
            with _whole("sacct"):
                rows = parse.accounted_jobs(text, mark, some, self._note)
            for name, jobs in rows.items():
                if recent := [job for job in jobs if submitted_since(job, since)]:
                    found[name] = recent
        return found

    async def _queue(self, fields: str, *options: str, ended: bool) -> str:
        states = ("--states=all",) if ended else ()
        return await self._ask(
            "squeue", "-a", "-h", "--local", "--noconvert", *states, *options, "-O", fields
        )

    async def _ask(self, *argv: str) -> str:
        answer = await self._run(*argv)
        if answer.status:
            raise _unavailable(argv[0], answer)
        return _text(answer.stdout)

    async def _run(self, *argv: str) -> Completed:
        try:
            return await run(
                (*self._before, *argv), timeout=self._timeout, limit=self._limit, env=self._env
            )
        except CommandError as error:
            raise ClusterUnavailable(str(error)) from error


def submitted_since(job: AccountedJob, since: datetime) -> bool:
    """Whether a job was submitted at that moment or later, to the second, as Slurm counts."""
    return job.submitted_at is not None and job.submitted_at >= since.replace(microsecond=0)


def _accounting_question(names: Sequence[str], since: datetime, mark: str) -> Sequence[str]:
    # Without --state, sacct passes over jobs that ended without ever being eligible (held, then
    # cancelled); with it, the end of the window must be said too. Its end lies in the future so
    # that clocks may differ.
    return (
        "sacct",
        "--allusers",
        "--allocations",
        "--duplicates",
        "--noheader",
        "--parsable",
        f"--delimiter={parse.accounting_delimiter(mark)}",
        f"--state={_STATES}",
        f"--starttime=uts{max(1, int(since.timestamp()))}",
        "--endtime=now+1day",
        f"--name={','.join(names)}",
        f"--format={','.join(parse.ACCOUNTED_FIELDS)}",
    )


def _mark() -> str:
    """What ends a row of one answer: not to be known when a job was submitted."""
    return secrets.token_hex(6)


def _chunks(names: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(names), _NAMES_AT_ONCE):
        yield names[start : start + _NAMES_AT_ONCE]


@contextlib.contextmanager
def _whole(command: str) -> Iterator[None]:
    """An answer that is cut short tells nothing: what it lacks would look like jobs that ended."""
    try:
        yield
    except parse.MalformedAnswerError as error:
        raise ClusterUnavailable(f"{command}: {error}") from error


def _unavailable(command: str, answer: Completed) -> ClusterUnavailable:
    """The command's last words, without what it puts in front of each line."""
    lines = [line.strip() for line in _text(answer.stderr).splitlines() if line.strip()]
    words = _PREFIX.sub("", lines[-1]) if lines else f"ended with status {answer.status}"
    return ClusterUnavailable(f"{command}: {words[:500]}")


def _text(output: bytes) -> str:
    return output.decode("utf-8", errors="replace")
