"""Removes the directories of jobs that ended long ago, as their users, under a sealed right."""

from datetime import datetime, timedelta

import structlog

from gateway.clusters import Cluster
from gateway.removal_store import PAGE, Removals
from gateway.removals import Expired
from gateway.sessions import files
from gateway.sessions.files import Place
from gateway.sessions.pool import SessionPool
from gateway.sessions.session import (
    NodeAway,
    NotCertified,
    SessionLost,
    SessionRefused,
    SessionUnavailable,
    UserSession,
)
from gateway.sessions.user import User
from gateway.translator import Translator
from headgate.clock import Clock
from headgate.problems import Unavailable

log = structlog.get_logger(__name__)

LOOK_SECONDS = 60.0
AGAIN_SECONDS = 3600.0
"""How long a job's files are left alone after they could not be removed."""
GOES = 30
"""How often one large directory is gone on with before others have their turn."""
_FOR_GOOD = frozenset({"directory", "system", "not_a_directory"})
"""Refusals that will be the same tomorrow: the user has made the place another's, or a link."""


class Cleaner:
    """Cleans one cluster. `sweep` is one look; one directory at a time, so that jobs come first."""

    def __init__(
        self,
        *,
        cluster: Cluster,
        removals: Removals,
        pool: SessionPool,
        translator: Translator,
        clock: Clock,
    ) -> None:
        self._cluster = cluster
        self._removals = removals
        self._pool = pool
        self._translator = translator
        self._clock = clock
        self._later: dict[str, float] = {}

    @property
    def interval(self) -> float:
        """Seconds between two looks."""
        days = self._cluster.settings.files_days or 1.0
        return max(1.0, min(LOOK_SECONDS, days * 8640.0))

    async def sweep(self) -> None:
        """Remove what is due; what cannot be removed now is left for later."""
        days = self._cluster.settings.files_days
        if days is None:
            return
        now = self._clock.monotonic()
        self._later = {row: at for row, at in self._later.items() if at > now}
        before = self._clock.now() - timedelta(days=days)
        try:
            await self._remove_all(before)
        except (Unavailable, NodeAway) as error:
            log.warning("clean_later", why=f"{error}: {error.__cause__}")

    async def _remove_all(self, before: datetime) -> None:
        last: Expired | None = None
        while True:
            page = await self._removals.due(self._cluster.name, ended_before=before, after=last)
            for last in page:
                if last.id not in self._later:
                    await self._remove(last)
            if len(page) < PAGE:
                return

    async def _remove(self, job: Expired) -> None:
        user = User(job.owner, self._cluster.name, job.account)
        delegated = self._translator.delegated(job.id, "clean")
        try:
            async with self._pool.without_token(user, delegated) as session:
                await _cleaned(session, Place(job.id, job.directory))
        except NodeAway:
            raise
        except NotCertified as error:
            await self._failed(job, str(error), for_good=error.final)
        except SessionRefused as refusal:
            await self._failed(job, str(refusal), for_good=refusal.code in _FOR_GOOD)
        except (SessionUnavailable, SessionLost) as error:
            await self._failed(job, str(error), for_good=False)
        else:
            await self._removals.settle(job.id, self._clock.now())
            log.info("files_removed", job=job.id, account=job.account)

    async def _failed(self, job: Expired, why: str, *, for_good: bool) -> None:
        log.warning("files_not_removed", job=job.id, why=why[:300], for_good=for_good)
        if for_good:
            await self._removals.settle(job.id, None)
        else:
            self._later[job.id] = self._clock.monotonic() + AGAIN_SECONDS


async def _cleaned(session: UserSession, place: Place) -> None:
    for last in range(GOES, 0, -1):
        try:
            return await files.clean(session, place)
        except SessionRefused as refusal:
            if refusal.code != "unfinished" or last == 1:
                raise
    return None
