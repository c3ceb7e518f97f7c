"""What users may do with jobs: submit, look, cancel, read what was printed."""

import hashlib
import uuid
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import structlog

from gateway.asking import ask
from gateway.clusters import Cluster, Clusters
from gateway.in_flight import InFlight
from gateway.jobs import HELD_WORDS, Job, JobSpec, Sealed, State, check_spec, is_row
from gateway.registry import Registry
from gateway.removals import require_files
from gateway.runner.script import seal
from gateway.selection import Selection
from gateway.sessions.credentials import Certify
from gateway.sessions.pool import SessionPool
from gateway.sessions.session import PART, SessionRefused, UserSession
from gateway.sessions.user import User
from gateway.store import Request, Store
from gateway.translator import Translator
from headgate.clock import Clock
from headgate.identity import Principal
from headgate.problems import Conflict, NotFound, Unavailable
from headgate.registry import Account

log = structlog.get_logger(__name__)

FOLLOW_SECONDS = 1.0
"""How long after all was read a file that is followed is looked at again."""

Wake = Callable[[Job], None]
"""Tells the sender of a cluster that there is work."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a specification comes to on a cluster, for an account."""

    cluster: Cluster
    account: Account
    sealed: Sealed


class Jobs:
    """The use cases; the edge has verified the token, `token` is what it was."""

    def __init__(
        self,
        *,
        store: Store,
        clusters: Clusters,
        registry: Registry,
        translator: Translator,
        pool: SessionPool,
        clock: Clock,
        wake: Wake,
    ) -> None:
        self._store = store
        self._clusters = clusters
        self._registry = registry
        self._translator = translator
        self._pool = pool
        self._clock = clock
        self._wake = wake
        self._in_flight = InFlight()

    async def submit(
        self, principal: Principal, token: str, spec: JobSpec, key: str, body: bytes
    ) -> tuple[Job, bool]:
        """Admit a job: sealed first, then durable, then 201; a worker sends it.

        Returns the job and whether it is new: the same key and body give the same job again.

        Raises:
            Conflict: a request with this key goes on, and on: its answer is not known yet.
        """
        if not key:
            return await self._submit(principal, token, spec, None)
        request = Request(key, hashlib.sha256(body).hexdigest())
        async with self._in_flight.alone((principal.identity, key)):
            earlier = await self._store.earlier(principal.identity, request)
            if earlier is not None:
                return earlier, False
            return await self._submit(principal, token, spec, request)

    async def _submit(
        self, principal: Principal, token: str, spec: JobSpec, request: Request | None
    ) -> tuple[Job, bool]:
        plan = await self.plan(principal, spec)
        cluster, account, sealed = plan.cluster, plan.account, plan.sealed
        await self._translator.seal(sealed, cluster.settings.realm, token)
        now = self._clock.now()
        job = Job(
            id=sealed.row,
            owner=principal.identity,
            client_id=principal.client_id,
            groups=tuple(sorted(principal.groups)),
            cluster=cluster.name,
            realm=cluster.settings.realm,
            account=account.account,
            uid=account.uid,
            directory=sealed.directory,
            spec=spec,
            hold_requested=spec.attributes.hold,
            state=State.HELD if spec.attributes.hold else State.NEW,
            status_message=HELD_WORDS if spec.attributes.hold else "",
            created_at=now,
            updated_at=now,
        )
        admitted = await self._store.admit(job, sealed, request)
        if admitted.id == job.id:
            log.info("admitted", job=job.id, account=job.account, client_id=job.client_id)
            self._pool.offer(_user(job), self._translator.with_token(token, job.realm))
            if not job.hold_requested:
                self._wake(job)
        return admitted, admitted.id == job.id

    async def plan(self, principal: Principal, spec: JobSpec) -> Plan:
        """What would be sent for a specification; nothing is.

        Raises:
            Invalid, Unprocessable: it is no specification, or not one for here.
            Forbidden: the caller has no account. Unavailable: who would know is away.
        """
        check_spec(spec)
        cluster = self._clusters.choose(spec)
        account = await self._registry.active_account(principal.identity, cluster.settings.realm)
        await self._clusters.check(cluster, spec)
        row = str(uuid.uuid4())
        sealed = seal(
            row=row,
            uid=account.uid,
            spec=spec,
            directory=_directory(cluster, account, row),
            runtime=cluster.runtime,
            default_queue=cluster.settings.default_queue,
        )
        return Plan(cluster, account, sealed)

    async def job(self, principal: Principal, row: str) -> Job:
        """One of the caller's jobs; anybody else's does not exist for them."""
        job = await self._store.job(row, principal.identity) if is_row(row) else None
        if job is None:
            raise NotFound("There is no such job.", code="job_unknown")
        return job

    async def script(self, principal: Principal, row: str) -> str:
        """The batch script of one of the caller's jobs, as it was sealed."""
        return (await self._store.sealed(await self.job(principal, row))).script

    async def later(self, principal: Principal, row: str, *, seconds: float) -> Job:
        """One of the caller's jobs once its state is another one, or after that many seconds."""
        job = await self.job(principal, row)
        if not seconds:
            return job
        return await self._store.waiting.until_changed(
            job, seconds, lambda: self.job(principal, row)
        )

    async def page(
        self, principal: Principal, selection: Selection, *, limit: int, cursor: str
    ) -> tuple[list[Job], str]:
        """The caller's jobs, newest first, and the next page's cursor."""
        return await self._store.page(principal.identity, selection, limit=limit, cursor=cursor)

    async def cancel(self, principal: Principal, row: str) -> Job:
        """Ask for a job's end; asked again, or of a job that has ended, it changes nothing."""
        while True:
            job = await self.job(principal, row)
            after = job.changed(self._clock.now(), {"cancel_requested": True, "retry_at": None})
            if await self._store.update(job, after):
                self._wake(after)
                return after

    async def hold(self, principal: Principal, row: str) -> Job:
        """Keep a job from being sent, until it is released; again, it changes nothing.

        Raises:
            Conflict: it is in Slurm, or is ended or to be.
        """
        return await self._held(principal, row, {"hold_requested": True, "retry_at": None})

    async def release(self, principal: Principal, row: str) -> Job:
        """Let a job go that was held back; one that was not stays as it is. Raises as `hold`."""
        changes = {"hold_requested": False, "state": State.NEW, "status_message": ""}
        return await self._held(principal, row, {**changes, "retry_at": None})

    async def _held(self, principal: Principal, row: str, changes: Mapping[str, Any]) -> Job:
        while True:
            job = await self.job(principal, row)
            if job.state.final or job.cancel_requested:
                raise Conflict("The job has ended, or is about to.", code="job_ended")
            if job.native_id is not None:
                words = "The job is in the cluster's queue already: it can be cancelled, not held."
                raise Conflict(words, code="in_queue")
            if job.hold_requested == changes["hold_requested"]:
                return job
            after = job.changed(self._clock.now(), changes)
            if await self._store.update(job, after):
                self._wake(after)
                return after

    async def output(
        self,
        principal: Principal,
        token: str,
        row: str,
        *,
        file: str,
        offset: int,
        limit: int,
        follow: bool = False,
    ) -> AsyncGenerator[bytes]:
        """What a job has printed so far, read as its owner, part by part as it is taken.

        No session is held while the caller takes their time over a part. With `follow`, what it
        goes on to print comes too, until the job or the caller's token ends; an empty part says
        that there is nothing new.

        Raises:
            NotFound: nothing has been printed yet. Unavailable: the login node is away.
        """
        job = await self.job(principal, row)
        require_files(job)
        # A block must be felt here too: a kept session alone is no right to read.
        await self._registry.active_account(principal.identity, job.realm)
        certify = self._translator.with_token(token, job.realm)
        end = offset + limit
        while offset < end:
            asked = min(PART, end - offset)
            part = await self._part(job, certify, file, offset, asked, waiting=follow)
            if part:
                yield part
            offset += len(part)
            if len(part) == asked:
                continue
            if not follow or job.state.final or self._clock.now() >= principal.expires_at:
                return
            if not part:
                yield b""  # is anybody still there?
                await self._clock.sleep(FOLLOW_SECONDS)
            # What was printed before the end is read once more after it was seen.
            job = await self.job(principal, row)

    async def _part(
        self, job: Job, certify: Certify, file: str, offset: int, limit: int, *, waiting: bool
    ) -> bytes:
        """One part; a session that is lost meanwhile is replaced once.

        `waiting`: that nothing was printed yet is an empty part.
        """

        async def read(session: UserSession) -> bytes:
            chunks = session.read(job.id, job.directory, file, offset=offset, limit=limit)
            async with aclosing(chunks):
                return b"".join([chunk async for chunk in chunks])

        try:
            return await ask(self._pool, _user(job), certify, read)
        except SessionRefused as refusal:
            if refusal.code == "no_file" and waiting:
                return b""
            if refusal.code == "no_file":
                words = "The job has printed nothing yet."
                raise NotFound(words, code="no_output") from refusal
            raise Unavailable("The file cannot be read now.", retry_after=5) from refusal


def _directory(cluster: Cluster, account: Account, row: str) -> str:
    home = account.home or f"/home/{account.account}"
    return cluster.settings.directory.format(user=account.account, home=home, id=row)


def _user(job: Job) -> User:
    return User(job.owner, job.cluster, job.account)
