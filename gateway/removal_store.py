"""Which jobs' files are there still, and which were removed: columns of the jobs' table."""

import contextlib
from collections.abc import Iterator, Sequence
from datetime import datetime

import sqlalchemy as sa

from gateway.jobs import State
from gateway.removals import Expired
from gateway.store import create_engine
from gateway.tables import Moment, jobs
from headgate.identity import Identity
from headgate.problems import Unavailable

PAGE = 100


class Removals:
    """Each method is one transaction, and raises `Unavailable`."""

    def __init__(self, url: str) -> None:
        self._engine = create_engine(url)

    async def close(self) -> None:
        """Let go of the database."""
        await self._engine.dispose()

    async def due(
        self, cluster: str, *, ended_before: datetime, after: Expired | None = None
    ) -> Sequence[Expired]:
        """The next page of jobs that ended before a moment and whose files are there still."""
        query = (
            sa.select(jobs.c.id, jobs.c.iss, jobs.c.sub, jobs.c.account, jobs.c.directory)
            .add_columns(jobs.c.ended_at)
            .where(jobs.c.cluster == cluster, jobs.c.files_removed_at.is_(None))
            .where(jobs.c.files_kept.is_(None), jobs.c.ended_at < ended_before)
            .where(jobs.c.state.in_([state for state in State if state.final]))
            .order_by(jobs.c.ended_at, jobs.c.id)
            .limit(PAGE)
        )
        if after is not None:
            here = sa.tuple_(after.ended_at, after.id, types=[Moment(), sa.String()])
            query = query.where(sa.tuple_(jobs.c.ended_at, jobs.c.id) > here)
        with _answering():
            async with self._engine.connect() as connection:
                found = (await connection.execute(query)).all()
        return [
            Expired(row, Identity(iss, sub), account, directory, ended_at)
            for row, iss, sub, account, directory, ended_at in found
        ]

    async def settle(self, row: str, removed_at: datetime | None) -> None:
        """Write down when a job's files were removed; None: nobody here ever can."""
        values = {"files_removed_at": removed_at, "files_kept": removed_at is None or None}
        query = jobs.update().where(jobs.c.id == row)
        with _answering():
            async with self._engine.begin() as connection:
                await connection.execute(query.values(**values, revision=jobs.c.revision + 1))


@contextlib.contextmanager
def _answering() -> Iterator[None]:
    try:
        yield
    except (sa.exc.DBAPIError, sa.exc.TimeoutError, OSError) as error:
        raise Unavailable("The job database does not answer.", retry_after=5) from error
