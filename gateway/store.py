"""Where jobs are kept: the few questions that the gateway asks its database."""

import base64
import contextlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from gateway.jobs import Job, Sealed, State, is_row
from gateway.selection import Selection
from gateway.tables import (
    Moment,
    columns,
    idempotency_keys,
    job_labels,
    job_of,
    jobs,
    labels_of,
    microseconds,
    moment_of,
    sealed_columns,
    sealed_jobs,
)
from gateway.waiting import Waiting
from headgate.identity import Identity
from headgate.problems import Fault, Invalid, Unavailable, Unprocessable
from headgate.settings import SettingsError

BUSY_SECONDS = 10
"""How long SQLite waits for somebody else's lock."""
_FINAL = [state.value for state in State if state.final]


@dataclass(frozen=True, slots=True)
class Request:
    """What makes two submissions the same one: the caller's key and the digest of the body."""

    key: str
    body_sha256: str


@dataclass(frozen=True, slots=True)
class Due:
    """A job that waits for the sender: no more of it than puts it into its user's line."""

    id: str
    owner: Identity
    account: str


@dataclass(frozen=True, slots=True)
class Count:
    """How many jobs of a cluster are in a state, and how many of them Slurm has not got yet."""

    cluster: str
    state: State
    jobs: int
    to_send: int


class Store:
    """The gateway's database. Each method is one transaction, and raises `Unavailable`."""

    def __init__(self, url: str) -> None:
        self._engine = create_engine(url)
        self.waiting = Waiting()

    async def close(self) -> None:
        """Let go of the database."""
        await self._engine.dispose()

    async def ready(self) -> str:
        """An empty string if the database answers and is of this release, else what is wrong."""
        try:
            async with self._reading() as connection:
                await connection.execute(sa.select(jobs.c.id).limit(1))
        except Unavailable as problem:
            return f"database: {problem.__cause__}"
        return ""

    async def revision(self) -> str:
        """The revision of the tables, empty where there are none; no file is made to find out."""
        url = self._engine.url
        if _is_sqlite(url) and url.database and not Path(url.database).exists():  # noqa: ASYNC240 - once, at start
            return ""
        async with self._reading() as connection:
            if not await connection.run_sync(lambda c: sa.inspect(c).has_table("alembic_version")):
                return ""
            query = sa.text("SELECT version_num FROM alembic_version")
            return str((await connection.execute(query)).scalar() or "")

    async def earlier(self, owner: Identity, request: Request) -> Job | None:
        """The job of an earlier request with this key.

        Raises:
            Unprocessable: the key was used for another body.
        """
        async with self._reading() as connection:
            return await _earlier(connection, owner, request)

    async def admit(self, job: Job, sealed: Sealed, request: Request | None) -> Job:
        """Make a job durable; the earlier one if its key came in at the same time."""
        try:
            async with self._writing() as connection:
                await connection.execute(jobs.insert().values(columns(job)))
                await connection.execute(sealed_jobs.insert().values(sealed_columns(sealed)))
                if labels := labels_of(job):
                    await connection.execute(job_labels.insert(), labels)
                if request is not None:
                    await connection.execute(
                        idempotency_keys.insert().values(
                            iss=job.owner.iss,
                            sub=job.owner.sub,
                            key=request.key,
                            body_sha256=request.body_sha256,
                            job=job.id,
                        )
                    )
        except IntegrityError:
            earlier = await self.earlier(job.owner, request) if request is not None else None
            if earlier is None:
                raise
            return earlier
        return job

    async def job(self, row: str, owner: Identity | None = None) -> Job | None:
        """One job; with `owner`, only if it is theirs."""
        query = sa.select(jobs).where(jobs.c.id == row)
        if owner is not None:
            query = query.where(jobs.c.iss == owner.iss, jobs.c.sub == owner.sub)
        found = await self._rows(query)
        return found[0] if found else None

    async def page(
        self, owner: Identity, selection: Selection, *, limit: int, cursor: str
    ) -> tuple[list[Job], str]:
        """An owner's jobs, newest first, and the cursor of the next page (empty: none).

        Raises:
            Invalid: the cursor is not one of ours.
        """
        query = (
            _selected(selection)
            .where(jobs.c.iss == owner.iss, jobs.c.sub == owner.sub)
            .order_by(jobs.c.created_at.desc(), jobs.c.id.desc())
            .limit(limit + 1)
        )
        if cursor:
            query = query.where(
                sa.tuple_(jobs.c.created_at, jobs.c.id)
                < sa.tuple_(*_read_cursor(cursor), types=[Moment(), sa.String()])
            )
        found = await self._rows(query)
        more = len(found) > limit
        return found[:limit], _cursor(found[limit - 1]) if more else ""

    async def to_send(self, cluster: str, now: datetime) -> list[Due]:
        """Jobs that are to be handed to Slurm, or to be cancelled there, by now; oldest first."""
        query = (
            _open(sa.select(jobs.c.id, jobs.c.iss, jobs.c.sub, jobs.c.account), cluster)
            .where(sa.or_(jobs.c.native_id.is_(None), jobs.c.cancel_requested))
            .where(sa.or_(jobs.c.retry_at.is_(None), jobs.c.retry_at <= now))
            # What is held already stays so; what is to be held is looked at first.
            .where(
                sa.or_(
                    jobs.c.state != State.HELD.value,
                    jobs.c.native_id.is_not(None),
                    jobs.c.cancel_requested,
                )
            )
        )
        async with self._reading() as connection:
            found = (await connection.execute(query)).all()
        return [Due(row, Identity(iss, sub), account) for row, iss, sub, account in found]

    async def counts(self) -> list[Count]:
        """How many jobs there are, by cluster and state; a state without any is there, too."""
        unsent = sa.and_(jobs.c.state == State.NEW.value, jobs.c.native_id.is_(None))
        query = sa.select(
            jobs.c.cluster, jobs.c.state, sa.func.count(), sa.func.count(sa.case((unsent, 1)))
        ).group_by(jobs.c.cluster, jobs.c.state)
        async with self._reading() as connection:
            found = (await connection.execute(query)).all()
        by_state = {(cluster, State(state)): (n, left) for cluster, state, n, left in found}
        return [
            Count(cluster, state, *by_state.get((cluster, state), (0, 0)))
            for cluster in dict.fromkeys(cluster for cluster, *_ in found)
            for state in State
        ]

    async def in_slurm(self, cluster: str) -> list[Job]:
        """Jobs that Slurm has taken and that have not ended, oldest first."""
        query = _open(sa.select(jobs), cluster).where(jobs.c.native_id.is_not(None))
        return await self._rows(query)

    async def sealed(self, job: Job) -> Sealed:
        """What was sealed for a job."""
        query = sa.select(sealed_jobs).where(sealed_jobs.c.row == job.id)
        async with self._reading() as connection:
            row = (await connection.execute(query)).mappings().one()
        return Sealed(
            row=job.id,
            uid=job.uid,
            script=row["script"],
            sbatch_args=msgspec.json.decode(row["sbatch_args"], type=tuple[str, ...]),
            directory=job.directory,
            environment=row["environment"],
        )

    async def update(self, before: Job, after: Job) -> bool:
        """Replace a revision by the next; False if somebody else was faster: look again."""
        if after is before:
            return True
        query = (
            jobs.update()
            .where(jobs.c.id == before.id, jobs.c.revision == before.revision)
            .values(columns(after))
        )
        async with self._writing() as connection:
            updated = bool((await connection.execute(query)).rowcount)
            if updated and before.spec.environment and not after.spec.environment:
                sealed = sealed_jobs.update().where(sealed_jobs.c.row == before.id)
                await connection.execute(sealed.values(environment=""))
        if updated and after.state is not before.state:
            self.waiting.changed(after.id)
        return updated

    async def explain(self, job: Job, why: str, now: datetime) -> None:
        """Say why they wait to all of a user's jobs that wait as this one does."""
        query = (
            jobs.update()
            .where(jobs.c.cluster == job.cluster, jobs.c.account == job.account)
            .where(jobs.c.iss == job.owner.iss, jobs.c.sub == job.owner.sub)
            .where(jobs.c.state == State.NEW.value, jobs.c.native_id.is_(None))
            .where(jobs.c.id != job.id, jobs.c.status_message != why)
            .values(status_message=why, updated_at=now, revision=jobs.c.revision + 1)
        )
        async with self._writing() as connection:
            await connection.execute(query)

    @contextlib.asynccontextmanager
    async def _reading(self) -> AsyncIterator[AsyncConnection]:
        with _answering():
            async with self._engine.connect() as connection:
                yield connection

    @contextlib.asynccontextmanager
    async def _writing(self) -> AsyncIterator[AsyncConnection]:
        with _answering():
            async with self._engine.begin() as connection:
                yield connection

    async def _rows(self, query: sa.Select[Any]) -> list[Job]:
        async with self._reading() as connection:
            return [job_of(row) for row in (await connection.execute(query)).mappings()]


@contextlib.contextmanager
def _answering() -> Iterator[None]:
    """A database that is away, locked or out of room is no bug of ours, and may be back soon."""
    try:
        yield
    except (sa.exc.OperationalError, sa.exc.InterfaceError, sa.exc.TimeoutError, OSError) as error:
        raise Unavailable("The job database does not answer.", retry_after=5) from error


def create_engine(url: str) -> AsyncEngine:
    """An engine for `sqlite+aiosqlite:///…` (WAL, every commit on disk) or PostgreSQL.

    Raises:
        SettingsError: this is no such URL, its driver is not installed, or its folder is not there.
    """
    try:
        engine = create_async_engine(url)
    except (sa.exc.SQLAlchemyError, ImportError, ValueError) as error:
        # Its words may repeat the URL, and with it a password.
        raise SettingsError(f"database: no usable URL ({type(error).__name__})") from error
    if _is_sqlite(engine.url):
        _check_folder(Path(engine.url.database or "").parent)

        @event.listens_for(engine.sync_engine, "connect")
        def _pragmas(connection: Any, _: object) -> None:  # noqa: ANN401 - the driver's own type
            cursor = connection.cursor()
            busy = f"busy_timeout={BUSY_SECONDS * 1000}"
            # secure_delete: what is deleted is overwritten; it may have been a user's secret.
            for pragma in ("journal_mode=WAL", "synchronous=FULL", "secure_delete=ON", busy):
                cursor.execute(f"PRAGMA {pragma}")
            cursor.execute("PRAGMA foreign_keys=ON")
            cursor.close()

    return engine


def _is_sqlite(url: sa.URL) -> bool:
    return url.get_backend_name() == "sqlite"


def _check_folder(folder: Path) -> None:
    if not folder.is_dir():
        raise SettingsError(f"database: there is no folder {folder}")


def _selected(selection: Selection) -> sa.Select[Any]:
    query = sa.select(jobs)
    if selection.states:
        query = query.where(jobs.c.state.in_(selection.states))
    if selection.cluster is not None:
        query = query.where(jobs.c.cluster == selection.cluster)
    if selection.queue is not None:
        query = query.where(jobs.c.queue == selection.queue)
    if selection.created_after is not None:
        query = query.where(jobs.c.created_at > selection.created_after)
    if selection.created_before is not None:
        query = query.where(jobs.c.created_at < selection.created_before)
    if selection.ids is not None:
        query = query.where(jobs.c.id.in_(selection.ids))
    if selection.cancel_requested is not None:
        query = query.where(jobs.c.cancel_requested.is_(selection.cancel_requested))
    for name, value in selection.labels:
        label = sa.and_(job_labels.c.job == jobs.c.id, job_labels.c.name == name)
        asked = label if value is None else sa.and_(label, job_labels.c.value == value)
        query = query.where(sa.exists().where(asked))
    return query


def _open(query: sa.Select[Any], cluster: str) -> sa.Select[Any]:
    return query.where(jobs.c.cluster == cluster, jobs.c.state.not_in(_FINAL)).order_by(
        jobs.c.created_at
    )


async def _earlier(connection: AsyncConnection, owner: Identity, request: Request) -> Job | None:
    keys = idempotency_keys.c
    query = (
        sa.select(jobs, keys.body_sha256)
        .join(idempotency_keys, keys.job == jobs.c.id)
        .where(keys.iss == owner.iss, keys.sub == owner.sub, keys.key == request.key)
    )
    row = (await connection.execute(query)).mappings().first()
    if row is None:
        return None
    if row["body_sha256"] != request.body_sha256:
        raise Unprocessable(
            "This Idempotency-Key was used for another request; take a new one.",
            code="idempotency_key_reused",
        )
    return job_of(row)


def _cursor(job: Job) -> str:
    text = f"{microseconds(job.created_at)}:{job.id}"
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _read_cursor(cursor: str) -> tuple[datetime, str]:
    try:
        text = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode()
        moment, _, row = text.partition(":")
        if not is_row(row):
            raise ValueError("no id of a job")  # noqa: TRY301 - one answer for all that is wrong
        return moment_of(int(moment)), row
    except (ValueError, OverflowError) as error:
        faults = [Fault("/cursor", "Use the cursor of the page before.")]
        raise Invalid("The cursor is not valid.", code="invalid_cursor", faults=faults) from error
