"""Watching: one query of the queue per cluster and interval, for the jobs of everybody."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

import structlog

from gateway.clusters import Cluster
from gateway.inquiries import Found, Inquiries
from gateway.jobs import Failure, FailureKind, Job, JobFiles, State
from gateway.observation import (
    ALREADY_STARTED,
    accounted,
    has_words,
    in_own_words,
    observed,
    second_start,
    unexplained,
    unheard,
)
from gateway.store import Store
from headgate.clock import Clock
from headgate.problems import Unavailable
from headgate.slurm.model import ClusterUnavailable, QueuedJob

log = structlog.get_logger(__name__)

OWED_SECONDS = 30.0
"""How long an end waits for what accounting says of it."""
UNSEEN_SECONDS = 120.0
"""How long a failed job waits for its own words while no login node shows them."""
PATIENCE_SECONDS = 1.0
"""How long a turn waits for jobs' files; those that take longer do not hold up the others."""

_Change = tuple[Job, Job]
"""A job before and after."""


class Tracker:
    """Keeps the rows of one cluster in step with Slurm. `turn` is one interval's work."""

    def __init__(
        self,
        *,
        cluster: Cluster,
        store: Store,
        inquiries: Inquiries,
        clock: Clock,
    ) -> None:
        self._cluster = cluster
        self._store = store
        self._inquiries = inquiries
        self._clock = clock
        self._verified: dict[str, tuple[int, datetime | None]] = {}
        self._owed: dict[str, float] = {}
        self._steady_since: datetime | None = None
        self._looked_at: float | None = None
        self.fault = ""
        """Why the cluster could not be read at the last turn; empty: it could."""

    async def turn(self) -> None:
        """Look once; a cluster that cannot be asked changes nothing."""
        try:
            await self._turn()
        except ClusterUnavailable as error:
            if not self.fault:
                log.warning("cluster_away", cluster=self._cluster.name, error=str(error))
            self.fault = str(error)
            self._steady_since = None
        except Unavailable as problem:
            log.warning("watch_later", why=f"{problem}: {problem.__cause__}")
        else:
            self.fault = ""
            self._looked_at = self._clock.monotonic()
            self._steady_since = self._steady_since or self._clock.now()

    def age(self) -> float | None:
        """Seconds since what is known of the cluster was learnt; None: nothing is known yet."""
        return None if self._looked_at is None else self._clock.monotonic() - self._looked_at

    async def close(self) -> None:
        """Ask nobody any more."""
        await self._inquiries.close()

    async def _turn(self) -> None:
        jobs = await self._store.in_slurm(self._cluster.name)
        self._inquiries.keep({job.id for job in jobs})
        if not jobs:
            return
        rows = {row.job_id: row for row in await self._cluster.reader.jobs(ended=True)}
        await self._verify(jobs, rows)
        limits = {queue.name: queue.max_duration for queue in self._cluster.queues}
        failed: list[_Change] = []
        elsewhere: list[tuple[Job, Job | None]] = []
        for job in jobs:
            row = rows.get(job.native_id or 0)
            if row is None or self._verified.get(job.id) != _identity(row):
                elsewhere.append((job, None))
                continue
            after = observed(job, row, self._clock.now(), limits)
            if unexplained(job, row):
                elsewhere.append((job, after))
            elif has_words(after):
                failed.append((job, after))
            else:
                await self._store_change(job, after)
        try:
            missing = await self._account(elsewhere, failed)
        finally:
            # Whatever accounting says of others: what failed has its own words.
            await self._tell(failed)
        await self._settle(missing)

    async def _verify(self, jobs: Iterable[Job], rows: dict[int, QueuedJob]) -> None:
        """Ids are reused and anybody's: a row is ours if it carries our marker and the uid.

        Asked by name once for each job, and again when its submission time changes.
        """
        doubtful = {}
        for job in jobs:
            row = rows.get(job.native_id or 0)
            if row is None or row.uid != job.uid:
                self._verified.pop(job.id, None)
            elif self._verified.get(job.id) != _identity(row):
                doubtful[job.marker] = job
        if not doubtful:
            return
        named = await self._cluster.reader.jobs_named(list(doubtful))
        for marker, job in doubtful.items():
            self._verified.pop(job.id, None)
            for row in named.get(marker, ()):
                if row.job_id == job.native_id and row.uid == job.uid:
                    self._verified[job.id] = _identity(row)

    async def _account(
        self, elsewhere: Sequence[tuple[Job, Job | None]], failed: list[_Change]
    ) -> list[Job]:
        """What has left the queue ends as accounting says; returns what nobody knows.

        Beside a job may stand how it ended as far as the queue knows, for when accounting is late.
        """
        if not elsewhere:
            return []
        since = min(job.created_at for job, _ in elsewhere)
        markers = [job.marker for job, _ in elsewhere]
        known = await self._cluster.reader.accounted(markers, since=since)
        missing = []
        for job, so_far in elsewhere:
            rows = [row for row in known.get(job.marker, ()) if row.uid == job.uid]
            mine = [row for row in rows if row.job_id == job.native_id]
            if mine and mine[-1].state.final:
                after = accounted(job, mine[-1], self._clock.now())
            elif so_far is None:
                missing.append(job)
                continue
            elif self._owed_for(job) > OWED_SECONDS:
                after = so_far
            else:
                continue
            if has_words(after):
                failed.append((job, after))
            else:
                await self._store_change(job, after)
        return missing

    async def _settle(self, jobs: Sequence[Job]) -> None:
        """Jobs that queue and accounting do not know: after the cluster has settled, decide."""
        now = self._clock.now()
        overdue = []
        for job in jobs:
            if job.missing_since is None:
                await self._store.update(job, job.changed(now, {"missing_since": now}))
                continue
            # What was missing before the cluster went away has to be looked for again.
            since = max(job.missing_since, self._steady_since or now)
            if now - since >= timedelta(seconds=self._cluster.settings.settle_seconds):
                overdue.append(job)
        for job, found in await self._inquire(overdue):
            if found is not None:
                await self._decide(job, found.files)

    async def _decide(self, job: Job, files: JobFiles | None) -> None:
        now = self._clock.now()
        if files is not None and (files.claim is not None or files.exit is not None):
            await self._store_change(job, unheard(job, files, now))
            return
        log.warning("forgotten_by_slurm", job=job.id, native_id=job.native_id)
        if job.environment_names:
            words = "Slurm forgot the job, and the values of its environment are kept no longer."
            lost = Failure(FailureKind.LOST, words, retry=True)
            await self._store_change(job, job.ended(State.FAILED, now, lost))
            return
        changes = {
            "native_id": None,
            "state": State.NEW,
            "attempt": job.attempt + 1,
            "missing_since": None,
            "retry_at": None,
            "status_message": "Slurm forgot the job before it started; it is sent again.",
        }
        await self._store.update(job, job.changed(now, changes))

    async def _tell(self, failed: Sequence[_Change]) -> None:
        """A payload's failure waits a little for its own words; a good end is compared."""
        afters = {before.id: after for before, after in failed}
        for before, end in failed:
            # For a good end nobody logs in: sites have ten thousand of them in a night.
            self._inquiries.ask(before, in_passing=end.failure is None)
        for before, found in await self._inquire([before for before, _ in failed]):
            after: Job | None = afters[before.id]
            if found is None:
                patience = 0.0 if afters[before.id].failure is None else UNSEEN_SECONDS
                after = after if self._owed_for(before) > patience else None
            elif after is not None and found.files is not None:
                after = self._told(before, after, found.files)
            if after is not None:
                await self._store_change(before, after)

    def _told(self, before: Job, after: Job, files: JobFiles) -> Job | None:
        """The end as the job's own files tell it; None: not known yet, ask again."""
        waited = self._owed_for(before) > self._cluster.settings.settle_seconds
        if after.exit_code != ALREADY_STARTED or not files.claim:
            return in_own_words(before, after, files, self._clock.now(), waited=waited)
        # Slurm started it twice and tells of the second start; the first one counts.
        now = self._clock.now()
        known = second_start(before, after, files, now)
        if known is not None:
            return known
        if not waited:
            return None
        lost = Failure(FailureKind.LOST, "Slurm started the job twice and lost it.", retry=True)
        return before.ended(State.FAILED, now, lost)

    async def _inquire(self, jobs: Sequence[Job]) -> list[tuple[Job, Found | None]]:
        """The files of these jobs, as far as they are known soon; the rest at a later turn."""
        for job in jobs:
            self._inquiries.ask(job)
        await self._inquiries.settle(PATIENCE_SECONDS if jobs else 0)
        return [(job, self._inquiries.take(job)) for job in jobs]

    async def _store_change(self, before: Job, after: Job) -> None:
        if await self._store.update(before, after) and after.state.final:
            self._verified.pop(after.id, None)
            self._owed.pop(after.id, None)
            log.info("ended", job=after.id, state=after.state, exit_code=after.exit_code)

    def _owed_for(self, job: Job) -> float:
        """For how many seconds an end has waited for what is still to be known of it."""
        now = self._clock.monotonic()
        return now - self._owed.setdefault(job.id, now)


def _identity(row: QueuedJob) -> tuple[int, datetime | None]:
    return row.job_id, row.submitted_at
