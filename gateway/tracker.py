"""Watching: one query of the queue per cluster and interval, for the jobs of everybody."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

import msgspec
import structlog

from gateway.clusters import Cluster
from gateway.jobs import Failure, FailureKind, Job, State
from gateway.observation import ALREADY_STARTED, accounted, observed
from gateway.sessions.pool import SessionPool, User
from gateway.sessions.session import JobFiles, SessionLost, SessionRefused, SessionUnavailable
from gateway.store import Store
from gateway.translator import Translator
from headgate.clock import Clock
from headgate.slurm.model import ClusterUnavailable, QueuedJob

log = structlog.get_logger(__name__)

OWED_SECONDS = 30.0
"""How long a failed job waits for its own words before it ends without them."""


class Tracker:
    """Keeps the rows of one cluster in step with Slurm. `turn` is one interval's work."""

    def __init__(
        self,
        *,
        cluster: Cluster,
        store: Store,
        pool: SessionPool,
        translator: Translator,
        clock: Clock,
    ) -> None:
        self._cluster = cluster
        self._store = store
        self._pool = pool
        self._translator = translator
        self._clock = clock
        self._verified: dict[str, tuple[int, datetime | None]] = {}
        self._owed: dict[str, float] = {}
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
        else:
            self.fault = ""

    async def _turn(self) -> None:
        jobs = await self._store.in_slurm(self._cluster.name)
        if not jobs:
            return
        rows = {row.job_id: row for row in await self._cluster.reader.jobs(ended=True)}
        await self._verify(jobs, rows)
        missing = []
        for job in jobs:
            row = rows.get(job.native_id or 0)
            if row is None or self._verified.get(job.id) != _identity(row):
                missing.append(job)
            else:
                await self._advance(job, observed(job, row, self._clock.now()))
        await self._account(missing)

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

    async def _account(self, jobs: Sequence[Job]) -> None:
        """What has left the queue ends as accounting says; what nobody knows is settled."""
        if not jobs:
            return
        since = min(job.created_at for job in jobs)
        known = await self._cluster.reader.accounted([job.marker for job in jobs], since=since)
        for job in jobs:
            rows = [row for row in known.get(job.marker, ()) if row.uid == job.uid]
            mine = [row for row in rows if row.job_id == job.native_id]
            if mine and mine[-1].state.final:
                await self._advance(job, accounted(job, mine[-1], self._clock.now()))
            else:
                await self._missing(job)

    async def _missing(self, job: Job) -> None:
        """A job that queue and accounting do not know: after the controller has settled, decide."""
        now = self._clock.now()
        since = job.missing_since
        if since is None:
            await self._store.update(job, job.changed(now, {"missing_since": now}))
            return
        if now - since < timedelta(seconds=self._cluster.settings.settle_seconds):
            return
        try:
            files = await self._files(job)
        except (SessionUnavailable, SessionLost, SessionRefused) as error:
            log.info("settle_later", job=job.id, error=str(error))
            return
        if files is not None and files.exit is not None:
            await self._store.update(job, _by_exit(job, files.exit, now))
        elif files is not None and files.claim is not None:
            detail = "The job started, and the cluster does not know how it ended."
            failure = Failure(FailureKind.LOST, detail, retry=True)
            await self._store.update(job, job.ended(State.FAILED, now, failure))
        else:
            log.warning("forgotten_by_slurm", job=job.id, native_id=job.native_id)
            changes = {
                "native_id": None,
                "state": State.NEW,
                "attempt": job.attempt + 1,
                "missing_since": None,
                "retry_at": None,
                "status_message": "Slurm forgot the job before it started; it is sent again.",
            }
            await self._store.update(job, job.changed(now, changes))

    async def _advance(self, before: Job, after: Job) -> None:
        """Store the next revision; a payload's failure waits a little for its own words."""
        if after.failure is not None and after.failure.kind is FailureKind.PAYLOAD:
            words = await self._own_words(before, after)
            if words is None:
                return
            after = words
        if await self._store.update(before, after) and after.state.final:
            self._verified.pop(after.id, None)
            self._owed.pop(after.id, None)
            log.info("ended", job=after.id, state=after.state, exit_code=after.exit_code)

    async def _own_words(self, before: Job, after: Job) -> Job | None:
        """The end as the job's own files tell it; None: not known yet, ask again."""
        now = self._clock.monotonic()
        first = self._owed.setdefault(before.id, now)
        try:
            files = await self._files(before)
        except (SessionUnavailable, SessionLost, SessionRefused) as error:
            log.info("words_later", job=before.id, error=str(error))
            return after if now - first > OWED_SECONDS else None
        at = self._clock.now()
        if files is None:
            return after
        if after.exit_code == ALREADY_STARTED and files.claim:
            # Slurm started it twice and tells of the second start; the first one counts.
            if files.exit is not None:
                return _by_exit(before, files.exit, at)
            lost = Failure(FailureKind.LOST, "Slurm started the job twice and lost it.", retry=True)
            late = now - first > OWED_SECONDS
            return before.ended(State.FAILED, at, lost) if late else None
        if not files.failure:
            return after
        return msgspec.structs.replace(after, exit_code=None, failure=_told(files.failure))

    async def _files(self, job: Job) -> JobFiles | None:
        delegated = self._translator.delegated(job.id, "status")
        user = User(job.owner, job.cluster, job.account)
        async with self._pool.without_token(user, delegated) as session:
            return await session.files(job.id, job.directory)


def _identity(row: QueuedJob) -> tuple[int, datetime | None]:
    return row.job_id, row.submitted_at


def _told(text: str) -> Failure:
    """A failure as the batch script wrote it down: the kind, then whose words there are."""
    word, _, words = text.partition("\n")
    kind = FailureKind(word) if word in set(FailureKind) else FailureKind.PAYLOAD
    return Failure(kind, words.strip()[-1000:], retry=kind is FailureKind.IMAGE)


def _by_exit(job: Job, code: int, at: datetime) -> Job:
    """An end that only the job itself wrote down."""
    if code == 0:
        return job.ended(State.COMPLETED, at, None, {"exit_code": 0})
    failure = Failure(FailureKind.PAYLOAD, f"The payload ended with status {code}.")
    return job.ended(State.FAILED, at, failure, {"exit_code": code})
