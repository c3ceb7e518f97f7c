"""Asking for the files of many jobs at a time, where one user's login must not stop the watch."""

import asyncio
from collections import defaultdict
from collections.abc import Container
from dataclasses import dataclass

import structlog

from gateway.jobs import Job, JobFiles
from gateway.sessions.credentials import Certify, IssuedCertificate
from gateway.sessions.pool import SessionPool
from gateway.sessions.session import SessionLost, SessionRefused, SessionUnavailable
from gateway.sessions.user import User
from gateway.translator import Translator

log = structlog.get_logger(__name__)

AT_ONCE = 8
"""Questions at a time for one user; others do not wait for them."""


@dataclass(frozen=True, slots=True)
class Found:
    """The files of a job; None: it has no directory."""

    files: JobFiles | None


class Inquiries:
    """Questions for jobs' own files; an answer is kept until it is taken."""

    def __init__(self, pool: SessionPool, translator: Translator) -> None:
        self._pool = pool
        self._translator = translator
        self._rooms: defaultdict[User, asyncio.Semaphore] = defaultdict(_room)
        self._asked: dict[str, asyncio.Task[JobFiles | None]] = {}

    def ask(self, job: Job, *, in_passing: bool = False) -> None:
        """Ask for a job's files, unless that is under way.

        `in_passing`: only by a session that is open already; without one it has none.
        """
        if job.id not in self._asked:
            look = self._in_passing(job) if in_passing else self._files(job)
            self._asked[job.id] = asyncio.create_task(look)

    def keep(self, rows: Container[str]) -> None:
        """Forget what was asked of other jobs: they have ended meanwhile."""
        for row in [row for row in self._asked if row not in rows]:
            self._asked.pop(row).cancel()

    async def settle(self, seconds: float) -> None:
        """Return when all questions are answered, after that many seconds at the latest."""
        if self._asked:
            await asyncio.wait(self._asked.values(), timeout=seconds)

    def take(self, job: Job) -> Found | None:
        """What was found; None while nothing is, or where nothing could be: ask again."""
        task = self._asked.get(job.id)
        if task is None or not task.done():
            return None
        del self._asked[job.id]
        try:
            return Found(task.result())
        except (SessionUnavailable, SessionLost, SessionRefused) as error:
            log.info("files_later", job=job.id, error=str(error))
            return None

    async def close(self) -> None:
        """Ask no more."""
        for task in self._asked.values():
            task.cancel()
        await asyncio.gather(*self._asked.values(), return_exceptions=True)

    async def _in_passing(self, job: Job) -> JobFiles | None:
        try:
            return await self._files(job, _nobody)
        except (SessionUnavailable, SessionLost, SessionRefused) as error:
            log.debug("files_not_seen", job=job.id, error=str(error))
            return None

    async def _files(self, job: Job, certify: Certify | None = None) -> JobFiles | None:
        delegated = certify or self._translator.delegated(job.id, "status")
        user = User(job.owner, job.cluster, job.account)
        async with self._rooms[user], self._pool.without_token(user, delegated) as session:
            return await session.files(job.id, job.directory)


async def _nobody(_: str) -> IssuedCertificate:
    """Certifies nothing: no login is worth what is asked for."""
    raise SessionUnavailable("no session is open")


def _room() -> asyncio.Semaphore:
    return asyncio.Semaphore(AT_ONCE)
