"""The simulated cluster at work: takes jobs, starts, limits and ends them, and writes it all down.

It behaves as slurmctld does, within the options that headgate uses. Memory is counted when jobs
are placed and not enforced; every job runs as the account that the cluster runs as.
"""

import asyncio
import os
import pwd
import signal
from collections.abc import Callable, Coroutine
from typing import Any

import structlog
from msgspec.structs import replace

from headgate.clock import Clock
from headgate.slurm.memory.cluster import Cluster
from headgate.slurm.memory.execution import Execution, Outcome, Submitted
from headgate.slurm.memory.jobs import Drain, Job, Request
from headgate.slurm.memory.journal import Journal, Line
from headgate.slurm.memory.launching import check_script, launch
from headgate.slurm.memory.protocol import Cancel, Change, DrainNode, Refused, Submit
from headgate.slurm.memory.requests import request as understood
from headgate.slurm.memory.site import Site
from headgate.slurm.model import JobState
from headgate.slurm.parse import expand

_log = structlog.get_logger("headgate.slurm.memory")


class Controller:
    """One simulated cluster. Call `resume` once, then the rest; `close` leaves the jobs running."""

    def __init__(self, site: Site, journal: Journal, execution: Execution, clock: Clock) -> None:
        self.cluster = Cluster(site)
        self._journal = journal
        self._execution = execution
        self._clock = clock
        self._uid = os.getuid()
        self._user = pwd.getpwuid(self._uid).pw_name
        self._tasks: dict[int, asyncio.Task[None]] = {}
        for line in journal.lines:
            self._replay(line)

    def now(self) -> float:
        """Epoch seconds."""
        return self._clock.now().timestamp()

    def resume(self) -> None:
        """Go on where the journal ends: watch what still runs, settle what has ended, start."""
        for job in list(self.cluster.running()):
            self._watch(job, self._adopt)
        self._schedule()

    async def close(self) -> None:
        """Stop watching; the jobs go on and the next cluster on this journal finds them."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._journal.close()

    async def kill_all(self) -> None:
        """End every job at once, and wait until none is left."""
        for job in list(self.cluster.jobs.values()):
            if not job.state.final:
                self._cancel(job)
                self._execution.signal(job.id, signal.SIGKILL)
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def submit(self, asked: Submit) -> tuple[Job, str]:
        """Take a job, or with `test-only` say when it would start; the words sbatch prints.

        Raises:
            Refused: in Slurm's words.
        """
        check_script(asked.script)
        wanted = self._possible(asked)
        job = Job(
            id=self.cluster.last_id + 1,
            user=self._user,
            uid=self._uid,
            request=wanted,
            partition=wanted.partitions[0],
            state=JobState.PENDING,
            reason="JobHeldUser" if wanted.held else "None",
            submitted_at=self.now(),
        )
        if "test-only" in asked.options:
            return job, self._estimate(job)
        submitted = Submitted(asked.arguments, asked.environment, asked.directory, asked.host)
        self._execution.keep(job.id, asked.script, submitted)
        self._save(job)
        self._schedule()
        return job, f"Submitted batch job {job.id}"

    def cancel(self, asked: Cancel) -> None:
        """End jobs, or send them a signal; what is not there or has ended is passed over."""
        for job in list(self.cluster.jobs.values()):
            chosen = job.id in asked.ids if asked.ids else asked.name is not None
            if not chosen or job.state.final or asked.name not in {None, job.request.name}:
                continue
            if asked.signal and job.shares:
                self._execution.signal(job.id, asked.signal)
            elif not asked.signal:
                self._cancel(job)
        self._schedule()

    def change(self, asked: Change) -> None:
        """Hold or release a job.

        Raises:
            Refused: there is no such job, or it is past that.
        """
        job = self.job(asked.id)
        if not job.state.pending:
            raise Refused("slurm_suspend error: Job is no longer pending execution")
        held = asked.verb == "hold"
        self._save(replace(job, request=replace(job.request, held=held)))
        self._schedule()

    def drain(self, asked: DrainNode) -> None:
        """Take nodes out of service, or back; running jobs go on.

        Raises:
            Refused: there is no such node.
        """
        names = expand(asked.nodes)
        if not set(names) <= self.cluster.machines.keys():
            raise Refused("slurm_update error: Invalid node name specified")
        for name in names:
            self._append(Line(drain=Drain(name, asked.drained, asked.reason)))
        self._schedule()

    def job(self, number: int) -> Job:
        """A job that is not older than MinJobAge.

        Raises:
            Refused: there is none of that id.
        """
        job = self.cluster.jobs.get(number)
        oldest = self.now() - self.cluster.site.min_job_age_seconds
        if job is None or (job.state.final and job.ended_at < oldest):
            raise Refused("slurm_load_jobs error: Invalid job id specified")
        return job

    def _possible(self, asked: Submit) -> Request:
        """The request, on as many nodes as it needs where it does not say how many."""
        for spread in range(1, len(self.cluster.machines) + 1):
            wanted = understood(asked.options, asked.directory, self.cluster.site, spread=spread)
            if self.cluster.possible(wanted):
                return wanted
        raise Refused("Batch job submission failed: Requested node configuration is not available")

    def _estimate(self, job: Job) -> str:
        starts, _ = Cluster.startable(_with(self.cluster, job))
        where = next((shares for found, _, shares in starts if found.id == job.id), ())
        nodes = ",".join(share.node for share in where) or "(unknown)"
        cpus = sum(share.cpus for share in where)
        when = self._clock.now().strftime("%Y-%m-%dT%H:%M:%S")
        return (
            f"Job {job.id} to start at {when} using {cpus} processors on nodes {nodes} "
            f"in partition {job.partition}"
        )

    def _cancel(self, job: Job) -> None:
        if job.ending:
            return
        ended = replace(job, ending=JobState.CANCELLED, cancelled_by_uid=self._uid)
        if job.shares:
            self._save(ended)
            self._end(job.id)
        else:
            self._save(replace(ended, state=JobState.CANCELLED, ended_at=self.now()))
            self._execution.forget(job.id)

    def _schedule(self) -> None:
        """Start what can start, and say of the rest why it waits."""
        starts, waits = self.cluster.startable()
        for number, reason in waits.items():
            job = self.cluster.jobs[number]
            if job.reason != reason:
                self._save(replace(job, reason=reason))
        for job, partition, shares in starts:
            started = replace(
                job,
                state=JobState.RUNNING,
                reason="",
                partition=partition,
                shares=shares,
                started_at=self.now(),
            )
            self._save(started)
            self._watch(started, self._run)

    def _watch(self, job: Job, how: Callable[[int], Coroutine[Any, Any, None]]) -> None:
        task = asyncio.create_task(how(job.id), name=f"job {job.id}")
        self._tasks[job.id] = task
        task.add_done_callback(lambda done: self._watched(job.id, done))

    def _watched(self, number: int, task: asyncio.Task[None]) -> None:
        if self._tasks.get(number) is task:
            del self._tasks[number]
        if not task.cancelled() and (error := task.exception()):
            _log.error("a job was lost sight of", job=number, exc_info=error)

    async def _run(self, number: int) -> None:
        job = self.cluster.jobs[number]
        try:
            await self._execution.start(
                number, launch(job, self._execution.submitted(number), self.cluster.site.cluster)
            )
        except OSError as error:
            _log.warning("a job could not be started", job=number, error=str(error))
            self._settle(number, None)
            return
        await self._follow(number)

    async def _adopt(self, number: int) -> None:
        """Go on with a job that the journal says has started."""
        if not self._execution.alive(number) and not self._execution.started(number):
            await self._run(number)  # the cluster died before the job's process was there
            return
        if self.cluster.jobs[number].ending:
            self._end(number)
        await self._follow(number)

    async def _follow(self, number: int) -> None:
        """Wait for a running job's end, and see to its time limit."""
        if self.cluster.jobs[number].ending:
            self._end(number)  # cancelled while it was being started
        limiter = asyncio.create_task(self._limit(number))
        try:
            outcome = await self._execution.ended(number)
        finally:
            limiter.cancel()
        self._settle(number, outcome)

    async def _limit(self, number: int) -> None:
        job = self.cluster.jobs[number]
        if job.request.time_limit_minutes is None:
            return
        length = job.request.time_limit_minutes * self.cluster.site.minute_seconds
        await self._clock.sleep(max(0.0, job.started_at + length - self.now()))
        job = self.cluster.jobs[number]
        if not job.ending:
            self._save(replace(job, ending=JobState.TIMEOUT, reason="TimeLimit"))
            self._end(number)

    def _end(self, number: int) -> None:
        """SIGTERM now and SIGKILL after KillWait (slurm.conf(5))."""
        self._execution.terminate(number)
        loop = asyncio.get_running_loop()
        loop.call_later(
            self.cluster.site.kill_wait_seconds,
            lambda: self._execution.signal(number, signal.SIGKILL),
        )

    def _settle(self, number: int, outcome: Outcome | None) -> None:
        """Write down how a job ended; a node's failure sends a requeueable one back."""
        job = self.cluster.jobs[number]
        state = job.ending or _state(outcome)
        if state is JobState.NODE_FAIL and job.request.requeue:
            self._requeue(job)
        else:
            self._save(
                replace(
                    job,
                    state=state,
                    reason=job.reason or _reason(state, outcome),
                    status=outcome.status if outcome else 0,
                    ended_at=outcome.ended_at if outcome else self.now(),
                )
            )
            self._execution.forget(number)
        self._schedule()

    def _requeue(self, job: Job) -> None:
        failed = replace(job, state=JobState.NODE_FAIL, ended_at=self.now())
        self._execution.clear(job.id)
        waiting = replace(
            job,
            state=JobState.PENDING,
            reason="",
            shares=(),
            started_at=0.0,
            submitted_at=self.now(),
            restarts=job.restarts + 1,
        )
        self._append(Line(gone=failed, job=waiting))

    def _save(self, job: Job) -> None:
        self._append(Line(job=job))

    def _append(self, line: Line) -> None:
        self._journal.append(line)
        self._replay(line)

    def _replay(self, line: Line) -> None:
        if line.job:
            self.cluster.jobs[line.job.id] = line.job
            self.cluster.last_id = max(self.cluster.last_id, line.job.id)
        if line.gone:
            self.cluster.gone.append(line.gone)
        if line.drain and (machine := self.cluster.machines.get(line.drain.node)):
            machine.drained, machine.reason = line.drain.drained, line.drain.reason


def _with(cluster: Cluster, job: Job) -> Cluster:
    """The cluster as it would be with one more job."""
    trial = Cluster(cluster.site, jobs={**cluster.jobs, job.id: job})
    for name, machine in trial.machines.items():
        machine.drained = cluster.machines[name].drained
    return trial


def _state(outcome: Outcome | None) -> JobState:
    if outcome is None:
        return JobState.NODE_FAIL
    return JobState.COMPLETED if outcome.status == 0 else JobState.FAILED


def _reason(state: JobState, outcome: Outcome | None) -> str:
    if state is not JobState.FAILED or outcome is None:
        return ""
    # Slurm says so of every script that a signal ended.
    return "JobLaunchFailure" if outcome.status & 0x7F else "NonZeroExitCode"
