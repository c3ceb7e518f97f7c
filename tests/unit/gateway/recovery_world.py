"""A gateway whose cluster, sessions and translator do what a test says."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec

from gateway.clusters import Cluster
from gateway.inquiries import Inquiries
from gateway.jobs import FailureKind, Job, JobFiles, JobSpec, Sealed, State, Submitted
from gateway.runner.plain import PlainRuntime
from gateway.sender import Sender
from gateway.sessions.local import LocalSettings
from gateway.sessions.session import SessionUnavailable
from gateway.sessions.user import User
from gateway.settings import ClusterSettings
from gateway.store import Store
from gateway.tracker import Tracker
from headgate.clock import HeldClock
from headgate.identity import Identity
from headgate.slurm.model import AccountedJob, ClusterUnavailable, JobState, QueuedJob

SETTLE = 30.0


@dataclass
class FakeReader:
    """A cluster as the test says it is; `away` while it cannot be asked."""

    queue: list[QueuedJob] = field(default_factory=list)
    names: dict[int, str] = field(default_factory=dict)
    memory: dict[str, list[AccountedJob]] = field(default_factory=dict)
    away: bool = False

    async def jobs(self, *, ended: bool = False) -> Sequence[QueuedJob]:
        """The queue."""
        del ended
        self._answer()
        return self.queue

    async def jobs_named(self, names: Sequence[str]) -> Mapping[str, Sequence[QueuedJob]]:
        """Rows by name."""
        self._answer()
        found: dict[str, list[QueuedJob]] = {}
        for row in self.queue:
            if (name := self.names.get(row.job_id, "")) in names:
                found.setdefault(name, []).append(row)
        return found

    async def accounted(
        self, names: Sequence[str], *, since: datetime
    ) -> Mapping[str, Sequence[AccountedJob]]:
        """Accounting by name."""
        del since
        self._answer()
        return {name: self.memory[name] for name in names if name in self.memory}

    def _answer(self) -> None:
        if self.away:
            raise ClusterUnavailable("slurmctld is away")


@dataclass
class FakeSession:
    """A session that answers as the test says."""

    answers: dict[str, Any] = field(default_factory=dict)
    asked: list[tuple[str, ...]] = field(default_factory=list)

    async def submit(self, sealed: Sealed, attempt: int) -> Submitted:
        """As sbatch answers."""
        found: Submitted = await self._answer("submit", sealed.row, str(attempt))
        return found

    async def cancel(self, row: str, job_id: int, directory: str = "") -> None:
        """As scancel does."""
        assert directory.endswith(row)
        await self._answer("cancel", row, str(job_id))

    async def withdraw(self, row: str, directory: str, attempt: int) -> bool:
        """Forbid an attempt."""
        del directory
        found: bool = await self._answer("withdraw", row, str(attempt))
        return found

    async def files(self, row: str, directory: str) -> JobFiles | None:
        """The job's files."""
        del directory
        found: JobFiles | None = await self._answer("files", row)
        return found

    async def _answer(self, *words: str) -> Any:
        self.asked.append(words)
        answer = self.answers.get(words[0])
        if isinstance(answer, asyncio.Event):
            await answer.wait()
        if isinstance(answer, Exception):
            raise answer
        return answer


@dataclass
class FakePool:
    """Lends each account's session; `closed` is raised instead, if it is set."""

    sessions: dict[str, FakeSession] = field(default_factory=dict)
    closed: SessionUnavailable | None = None
    tried: int = 0

    @contextlib.asynccontextmanager
    async def without_token(self, user: User, delegated: object) -> AsyncIterator[FakeSession]:
        """The account's session."""
        del delegated
        self.tried += 1
        if self.closed is not None:
            raise self.closed
        yield self.sessions.setdefault(user.account, FakeSession())


class FakeTranslator:
    """Certifies nothing, as nobody connects."""

    def delegated(self, row: str, verb: str) -> tuple[str, str]:
        """A right."""
        return row, verb


class World:
    """One cluster with its sender, tracker and database."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.clock = HeldClock()
        self.reader = FakeReader()
        self.pool: Any = FakePool()
        translator: Any = FakeTranslator()
        reader: Any = self.reader
        settings = ClusterSettings(
            name="c", realm="r", settle_seconds=SETTLE, local=LocalSettings(path="/nowhere")
        )
        cluster = Cluster(settings=settings, reader=reader, runtime=PlainRuntime())
        self.cluster = cluster
        self.inquiries = Inquiries(self.pool, translator)
        self.tracker = Tracker(
            cluster=cluster, store=store, inquiries=self.inquiries, clock=self.clock
        )
        self.sender = Sender(
            cluster=cluster,
            store=store,
            pool=self.pool,
            translator=translator,
            clock=self.clock,
        )

    def session(self, account: str = "alice", **answers: Any) -> FakeSession:
        """An account's session, answering like this from now on."""
        found: FakeSession = self.pool.sessions.setdefault(account, FakeSession())
        found.answers |= answers
        return found

    async def job(self, number: int, account: str = "alice", **changes: Any) -> Job:
        """A job that was admitted."""
        row = f"6f3b6c1e-0000-4000-8000-{number:012}"
        job = Job(
            id=row,
            owner=Identity("https://iam/", account),
            client_id="",
            groups=(),
            cluster="c",
            realm="r",
            account=account,
            uid=1000,
            directory=f"/home/{account}/{row}",
            spec=JobSpec(executable="/bin/true"),
            created_at=self.clock.now(),
            updated_at=self.clock.now(),
        )
        job = msgspec.structs.replace(job, **changes)
        environment = "".join(f"{name}={value}\n" for name, value in job.spec.environment.items())
        await self.store.admit(job, Sealed(row, 1000, "", (), job.directory, environment), None)
        return job

    async def queued(self, number: int, account: str = "alice", **changes: Any) -> Job:
        """A job that Slurm has taken under that number."""
        taken = {"native_id": number, "state": State.QUEUED, **changes}
        return await self.job(number, account, **taken)

    def row(self, job: Job, state: JobState, **changes: Any) -> None:
        """Put a job into the queue."""
        number = job.native_id or 0
        fields: dict[str, Any] = {
            "job_id": number,
            "user": job.account,
            "uid": job.uid,
            "account": "",
            "partitions": ("main",),
            "state": state,
            "reason": "None",
            "cpus": 1,
            "nodes": 1,
            "node_list": "n1",
            "submitted_at": job.created_at,
            "started_at": job.created_at,
            "ended_at": None,
            "time_limit_minutes": None,
        }
        self.reader.queue.append(QueuedJob(**{**fields, **changes}))
        self.reader.names[number] = job.marker

    def remember(self, job: Job, state: JobState, **changes: Any) -> None:
        """Put a job into accounting."""
        fields: dict[str, Any] = {
            "job_id": job.native_id,
            "user": job.account,
            "uid": job.uid,
            "account": "",
            "partition": "main",
            "state": state,
            "exit_status": 0,
            "exit_signal": 0,
            "submitted_at": job.created_at,
            "started_at": job.created_at,
            "ended_at": job.created_at,
            "node_list": "n1",
        }
        self.reader.memory[job.marker] = [AccountedJob(**{**fields, **changes})]

    async def look(self, *, after: float = 0.0) -> None:
        """One turn of the tracker, that much later."""
        self.clock.advance(after)
        await self.tracker.turn()

    async def shown(self, job: Job) -> Job:
        """The job as it is now."""
        found = await self.store.job(job.id)
        assert found is not None
        return found

    @contextlib.asynccontextmanager
    async def sending(self) -> AsyncIterator[None]:
        """The sender at work."""
        task = asyncio.create_task(self.sender.run())
        try:
            yield
            assert not task.done()
        finally:
            task.cancel()
            await asyncio.wait([task])

    async def until(self, job: Job, **wanted: Any) -> Job:
        """The job once it is like this; the test's own time limit bounds the wait."""
        async with asyncio.timeout(5):
            while True:
                found = await self.shown(job)
                if all(getattr(found, name) == value for name, value in wanted.items()):
                    return found
                await self.sender.sweep()
                await asyncio.sleep(0.005)


async def seen(look: Callable[[], Awaitable[Job]], wanted: Callable[[Job], bool]) -> Job:
    """The job once it is as wanted: what changes it is under way in this loop."""
    async with asyncio.timeout(5):
        while not wanted(found := await look()):  # noqa: ASYNC110 - the database changes, no event
            await asyncio.sleep(0.005)
    return found


async def said(world: World, job: Job) -> Job:
    """The job once it says why it waits."""
    return await seen(lambda: world.shown(job), lambda found: bool(found.status_message))


def kind(job: Job) -> FailureKind | None:
    """Of which kind its end is."""
    return job.failure and job.failure.kind
