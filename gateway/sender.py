"""From row to Slurm: sends admitted jobs fairly, once each, and settles what a crash left open."""

import asyncio
from datetime import timedelta

import structlog

from gateway.clusters import Cluster
from gateway.jobs import HELD_WORDS, Failure, FailureKind, Job, JobFiles, State
from gateway.lines import Lines
from gateway.observation import claimant, unheard
from gateway.sessions.pool import SessionPool
from gateway.sessions.session import (
    NotCertified,
    SessionLost,
    SessionRefused,
    SessionUnavailable,
)
from gateway.sessions.user import User
from gateway.store import Store
from gateway.translator import Translator
from headgate.clock import Clock
from headgate.problems import Unavailable
from headgate.slurm.model import ClusterUnavailable, JobState

log = structlog.get_logger(__name__)

FIRST_RETRY = timedelta(seconds=1)
LAST_RETRY = timedelta(seconds=10)

_CANCELLED = Failure(FailureKind.CANCELLED_BY_USER, "The job was cancelled by its owner.")
_REFUSAL_KINDS = {"quota": FailureKind.QUOTA, "directory": FailureKind.STAGING}


class Sender:
    """Sends one cluster's jobs; a job's row says how far it has come."""

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
        self._lines = Lines(cluster.settings.senders, clock)
        self._delays: dict[str, timedelta] = {}
        self._unreached: dict[User, timedelta] = {}

    def offer(self, job: Job) -> None:
        """Put a job into its user's line."""
        self._lines.offer(_user(job), job.id)

    async def run(self) -> None:
        """Send for ever, as many jobs at once as the cluster's settings say."""
        async with asyncio.TaskGroup() as group:
            for _ in range(self._cluster.settings.senders):
                group.create_task(self._serve())

    async def sweep(self) -> None:
        """Offer what is due: after a restart all that was open, later what waits for a retry."""
        for due in await self._store.to_send(self._cluster.name, self._clock.now()):
            self._lines.offer(User(due.owner, self._cluster.name, due.account), due.id)
        self._lines.tick()

    async def _serve(self) -> None:
        """Serve one row after the other; nothing that happens to one of them ends this."""
        while True:
            user, row = await self._lines.next()
            again = False
            try:
                again = await self._step(row)
            except Unavailable as problem:
                log.warning("send_later", job=row, why=f"{problem}: {problem.__cause__}")
            except Exception:
                log.exception("send_failed", job=row)
            finally:
                self._lines.done(user, row)
            if again:
                self._lines.offer(user, row)

    async def _step(self, row: str) -> bool:
        """Take one job one step further; whether another step follows at once."""
        job = await self._store.job(row)
        if job is None or job.state.final:
            self._delays.pop(row, None)
            return False
        if job.native_id is not None:
            return await self._cancel(job, job.native_id) if job.cancel_requested else False
        if job.cancel_requested and await self._drop_unsent(job):
            return False
        if job.hold_requested and not job.cancel_requested and await self._hold(job):
            return False
        return await self._send(job)

    async def _hold(self, job: Job) -> bool:
        """Keep a job back; False if this attempt has begun: it may be in Slurm, which wins."""
        if job.state is State.HELD:
            return True
        delegated = self._translator.delegated(job.id, "status")
        try:
            async with self._pool.without_token(_user(job), delegated) as session:
                files = await session.files(job.id, job.directory)
        except SessionUnavailable as error:
            if isinstance(error, NotCertified) and error.final:
                await self._not_delegated(job, error)
                return True
            await self._unreachable(job, error, "to be held, once the login node answers")
            return True
        except (SessionLost, SessionRefused) as error:
            await self._later(job, f"to be held, once the login node answers: {error}")
            return True
        if files is not None and files.attempt >= job.attempt:
            return False
        changes = {"state": State.HELD, "status_message": HELD_WORDS, "retry_at": None}
        # A job that was released meanwhile is another revision: it is offered again.
        await self._store.update(job, job.changed(self._clock.now(), changes))
        return True

    async def _send(self, job: Job) -> bool:
        sealed = await self._store.sealed(job)
        delegated = self._translator.delegated(job.id, "submit")
        try:
            async with self._pool.without_token(_user(job), delegated) as session:
                submitted = await session.submit(sealed, job.attempt)
        except SessionUnavailable as error:
            if isinstance(error, NotCertified) and error.final:
                return await self._not_delegated(job, error)
            return await self._unreachable(job, error, "the login node does not take it")
        except SessionLost as error:
            # It may be in Slurm by now: the same attempt, said again, finds out.
            return await self._later(job, f"the login node went away: {error}")
        except SessionRefused as refusal:
            return await self._refused(job, refusal)
        return await self._sent(job, submitted.job_id, submitted.words)

    async def _sent(self, job: Job, native_id: int, words: str = "") -> bool:
        self._delays.pop(job.id, None)
        self._unreached.pop(_user(job), None)
        log.info("sent", job=job.id, native_id=native_id, account=job.account)
        message = words.strip()[:1000]
        changes = {
            "native_id": native_id,
            "state": State.QUEUED,
            "hold_requested": False,
            "status_message": message,
            "retry_at": None,
            "missing_since": None,
        }
        updated = await self._store.update(job, job.changed(self._clock.now(), changes))
        return job.cancel_requested or not updated

    async def _refused(self, job: Job, refusal: SessionRefused) -> bool:
        if refusal.code in {"away", "busy"}:
            return await self._later(job, f"Slurm does not answer: {refusal.words}")
        if refusal.code == "limit":
            return await self._later(job, f"a limit of the site is reached: {refusal.words}")
        if refusal.code in {"unsettled", "claimed"}:
            return await self._settle(job, refusal.state or JobFiles())
        kind = _REFUSAL_KINDS.get(refusal.code, FailureKind.POLICY)
        words = refusal.words.removeprefix("sbatch: error: ") or refusal.code
        log.info("refused_by_slurm", job=job.id, code=refusal.code, words=words)
        failure = Failure(kind, f"The cluster refused the job: {words}")
        await self._store.update(job, job.ended(State.FAILED, self._clock.now(), failure))
        return False

    async def _settle(self, job: Job, files: JobFiles) -> bool:
        """Find out by looking whether an attempt nobody heard of has reached Slurm."""
        going_on = await self._unless_unknown(job, claimant(files))
        if going_on is not None:
            return going_on
        now = self._clock.now()
        if files.claim is not None:
            await self._store.update(job, unheard(job, files, now))
            return False
        log.warning("submitted_again", job=job.id, attempt=job.attempt + 1)
        changes = {"attempt": job.attempt + 1, "missing_since": None, "retry_at": None}
        await self._store.update(job, job.changed(now, changes))
        return True

    async def _not_delegated(self, job: Job, error: NotCertified) -> bool:
        """End a job that nobody will be allowed to send, unless it has reached Slurm already."""
        going_on = await self._unless_unknown(job, None)
        if going_on is not None:
            return going_on
        now = self._clock.now()
        log.info("not_delegated", job=job.id, why=str(error))
        if job.cancel_requested:
            ended = job.ended(State.CANCELED, now, _CANCELLED)
        else:
            words = f"The job may not be sent any more: {error}"
            ended = job.ended(State.FAILED, now, Failure(FailureKind.POLICY, words))
        await self._store.update(job, ended)
        return False

    async def _unless_unknown(self, job: Job, native_id: int | None) -> bool | None:
        """See what an attempt nobody heard of has come to: whether another step follows at once.

        None: Slurm knows nothing of it, and has had the time that it has to settle.
        """
        try:
            native_id = native_id or await self._look(job)
        except ClusterUnavailable as error:
            return await self._later(job, f"an earlier submission cannot be settled: {error}")
        if native_id is not None:
            return await self._sent(job, native_id)
        now = self._clock.now()
        since = job.missing_since
        if since is None:
            changed = job.changed(now, {"missing_since": now})
            await self._store.update(job, changed)
            return await self._later(changed, "an earlier submission is being settled")
        if now - since < timedelta(seconds=self._cluster.settings.settle_seconds):
            return await self._later(job, "an earlier submission is being settled")
        return None

    async def _look(self, job: Job) -> int | None:
        """The id of the job that carries this row's marker and the user's uid, if there is one."""
        names = [job.marker]
        reader = self._cluster.reader
        queued = (await reader.jobs_named(names)).get(job.marker, ())
        accounted = (await reader.accounted(names, since=job.created_at)).get(job.marker, ())
        found = [row.job_id for row in queued if row.uid == job.uid]
        # A refused sbatch leaves a row in accounting too: failed, and never started.
        found += [
            row.job_id
            for row in accounted
            if row.uid == job.uid and not (row.state is JobState.FAILED and row.started_at is None)
        ]
        return max(found, default=None)

    async def _drop_unsent(self, job: Job) -> bool:
        """End a job that is to be cancelled and was never handed to anybody, nor ever will be."""
        delegated = self._translator.delegated(job.id, "cancel")
        try:
            async with self._pool.without_token(_user(job), delegated) as session:
                if not await session.withdraw(job.id, job.directory, job.attempt):
                    return False
        except SessionRefused as refusal:
            if refusal.code not in _REFUSAL_KINDS:
                await self._later(job, f"to be cancelled: {refusal}")
                return True
            # Nothing can be submitted from a directory that cannot be written.
        except SessionUnavailable as error:
            if isinstance(error, NotCertified) and error.final:
                await self._not_delegated(job, error)
                return True
            await self._unreachable(job, error, "to be cancelled once the login node answers")
            return True
        except SessionLost as error:
            await self._later(job, f"to be cancelled once the login node answers: {error}")
            return True
        now = self._clock.now()
        await self._store.update(job, job.ended(State.CANCELED, now, _CANCELLED))
        return True

    async def _cancel(self, job: Job, native_id: int) -> bool:
        delegated = self._translator.delegated(job.id, "cancel")
        try:
            async with self._pool.without_token(_user(job), delegated) as session:
                await session.cancel(job.id, native_id, job.directory)
        except SessionUnavailable as error:
            return await self._unreachable(job, error, "not cancelled yet")
        except (SessionLost, SessionRefused) as error:
            return await self._later(job, f"not cancelled yet: {error}")
        # The tracker sees it end; should Slurm forget the request, it is made again.
        retry_at = self._clock.now() + LAST_RETRY
        await self._store.update(job, job.changed(self._clock.now(), {"retry_at": retry_at}))
        return False

    async def _unreachable(self, job: Job, error: SessionUnavailable, why: str) -> bool:
        """What keeps one job of a user waiting keeps all of them: tried once, said to all."""
        if not isinstance(error, NotCertified):
            user = _user(job)
            delay = min(self._unreached.get(user, FIRST_RETRY / 2) * 2, LAST_RETRY)
            self._unreached[user] = delay
            self._lines.rest(user, delay.total_seconds())
            words = f"the login node does not take it: {error}"[:1000]
            await self._store.explain(job, words, self._clock.now())
        return await self._later(job, f"{why}: {error}")

    async def _later(self, job: Job, why: str) -> bool:
        """Leave a job `new`, say why, and come back to it."""
        delay = min(self._delays.get(job.id, FIRST_RETRY / 2) * 2, LAST_RETRY)
        self._delays[job.id] = delay
        now = self._clock.now()
        changes = {"status_message": why[:1000], "retry_at": now + delay}
        log.info("send_later", job=job.id, why=why[:300], seconds=delay.total_seconds())
        await self._store.update(job, job.changed(now, changes))
        return False


def _user(job: Job) -> User:
    return User(job.owner, job.cluster, job.account)
