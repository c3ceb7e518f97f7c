"""Directories of jobs that ended long ago: removed once, as their users, and said to be gone."""

import contextlib
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.cleaner import AGAIN_SECONDS, GOES, Cleaner
from gateway.clusters import Cluster
from gateway.jobs import Job, State
from gateway.removal_store import PAGE, Removals
from gateway.removals import Gone, require_files
from gateway.runner.plain import PlainRuntime
from gateway.sessions.session import (
    NodeAway,
    NotCertified,
    SessionDenied,
    SessionLost,
    SessionRefused,
)
from gateway.sessions.user import User
from gateway.settings import ClusterSettings
from gateway.v1.documents import job_document
from tests.unit.gateway.recovery_world import World

DAY = 86400.0


class Nodes:
    """Sessions that remove directories, or do what the test says."""

    def __init__(self) -> None:
        self.removed: list[str] = []
        self.rights: list[object] = []
        self.failures: dict[str, list[Exception]] = {}

    @contextlib.asynccontextmanager
    async def without_token(self, user: User, delegated: object) -> AsyncIterator[Any]:
        """A session of that user."""
        del user
        self.rights.append(delegated)
        yield self

    async def request(
        self, header: dict[str, Any], body: bytes = b"", *, expected: int = 0
    ) -> tuple[dict[str, Any], bytes]:
        """Remove it."""
        del body, expected
        assert header["op"] == "clean"
        if failures := self.failures.get(header["row"]):
            failure = failures[0] if len(failures) == 1 else failures.pop(0)
            if failure is not None:
                raise failure
        self.removed.append(header["directory"])
        return {"ok": True}, b""


class Translator:
    """Gives a right its name."""

    def delegated(self, row: str, verb: str) -> tuple[str, str]:
        """A right."""
        return verb, row


class Site:
    """One cluster that keeps files for a week."""

    def __init__(self, world: World, removals: Removals) -> None:
        self.world = world
        self.removals = removals
        self.nodes = Nodes()
        pool: Any = self.nodes
        translator: Any = Translator()
        reader: Any = None
        settings = ClusterSettings(name="c", realm="r", files_days=7)
        self.cleaner = Cleaner(
            cluster=Cluster(settings=settings, reader=reader, runtime=PlainRuntime()),
            removals=removals,
            pool=pool,
            translator=translator,
            clock=world.clock,
        )

    async def ended(self, number: int, days: float, state: State = State.COMPLETED) -> Job:
        """A job that ended so many days ago."""
        at = self.world.clock.now() - timedelta(days=days)
        return await self.world.job(number, state=state, ended_at=at)

    async def shown(self, job: Job) -> Job:
        """The job as it is now."""
        return await self.world.shown(job)


@pytest.fixture
async def site(world: World, tmp_path: Path) -> AsyncIterator[Site]:
    """A fresh one, on the world's own database."""
    removals = Removals(f"sqlite+aiosqlite:///{tmp_path}/gateway.db")
    yield Site(world, removals)
    await removals.close()


async def test_what_ended_long_ago_goes_and_nothing_else(site: Site):
    """By the end of the job, whatever the end was; running ones stay, however old."""
    old = [
        await site.ended(number, 8, state)
        for number, state in enumerate((State.COMPLETED, State.FAILED, State.CANCELED), start=1)
    ]
    await site.ended(4, 6.9)
    await site.world.job(5, state=State.ACTIVE, native_id=5)
    await site.cleaner.sweep()
    assert site.nodes.removed == [job.directory for job in old]
    assert site.nodes.rights == [("clean", job.id) for job in old]
    await site.cleaner.sweep()
    assert len(site.nodes.removed) == 3


async def test_it_is_said_when_files_will_go_and_when_they_went(site: Site):
    """`expires` before, the date after; the validator changes; reading is 410 with the date."""
    job = await site.ended(1, 6)
    assert job.ended_at is not None
    shown = job_document(await site.shown(job), 7)
    assert shown["expires"] == {"files": "2026-01-02T00:00:00Z"}
    assert "expires" not in job_document(await site.shown(job), None)
    require_files(job)
    site.world.clock.advance(2 * DAY)
    await site.cleaner.sweep()
    gone = await site.shown(job)
    assert gone.revision == job.revision + 1
    shown = job_document(gone, 7)
    assert (shown["files_removed_at"], "expires" in shown) == ("2026-01-03T00:00:00Z", False)
    with pytest.raises(Gone, match="2026-01-03") as caught:
        require_files(gone)
    assert caught.value.document()["status"] == 410
    assert caught.value.members == {"files_removed_at": "2026-01-03T00:00:00Z"}


async def test_a_node_that_is_away_ends_the_look_and_costs_nothing(site: Site):
    """The rest is not tried in vain; the next look removes all."""
    jobs = [await site.ended(number, 8) for number in (1, 2, 3)]
    site.nodes.failures[jobs[0].id] = [NodeAway("away")]
    await site.cleaner.sweep()
    assert len(site.nodes.rights) == 1
    del site.nodes.failures[jobs[0].id]
    await site.cleaner.sweep()
    assert len(site.nodes.removed) == 3


@pytest.mark.parametrize(
    "failure", [SessionLost("gone"), SessionDenied("held"), SessionRefused("op", "no clean")]
)
async def test_what_cannot_be_removed_now_is_left_for_later(site: Site, failure: Exception):
    """Others are removed meanwhile, and it is not tried again at once."""
    one, other = await site.ended(1, 9), await site.ended(2, 8)
    site.nodes.failures[one.id] = [failure]
    for _ in range(5):
        await site.cleaner.sweep()
    assert site.nodes.removed == [other.directory]
    assert len(site.nodes.rights) == 2
    del site.nodes.failures[one.id]
    site.world.clock.advance(AGAIN_SECONDS)
    await site.cleaner.sweep()
    assert site.nodes.removed == [other.directory, one.directory]


@pytest.mark.parametrize(
    "failure",
    [NotCertified("seal_expired", final=True), SessionRefused("directory", "could be changed")],
)
async def test_what_never_can_be_removed_is_not_tried_for_ever(site: Site, failure: Exception):
    """It is not said to be gone either."""
    job = await site.ended(1, 8)
    site.nodes.failures[job.id] = [failure]
    await site.cleaner.sweep()
    site.world.clock.advance(30 * DAY)
    await site.cleaner.sweep()
    assert len(site.nodes.rights) == 1
    assert (await site.shown(job)).files_removed_at is None


async def test_a_large_directory_takes_several_goes(site: Site):
    """What is unfinished is gone on with, up to a bound."""
    large, endless = await site.ended(1, 9), await site.ended(2, 8)
    unfinished = SessionRefused("unfinished", "")
    nothing: Any = None
    site.nodes.failures[large.id] = [*[unfinished] * (GOES - 1), nothing]
    site.nodes.failures[endless.id] = [unfinished]
    await site.cleaner.sweep()
    assert site.nodes.removed == [large.directory]


async def test_more_than_a_page_is_removed_in_one_look(site: Site):
    """In the order of their ends, failures in between notwithstanding."""
    jobs = [await site.ended(number, 8) for number in range(1, PAGE + 12)]
    site.nodes.failures[jobs[3].id] = [SessionLost("gone")]
    await site.cleaner.sweep()
    assert len(site.nodes.removed) == PAGE + 10


async def test_files_are_kept_for_ever_unless_the_site_says_otherwise(site: Site):
    """Without `files_days` nothing is removed."""
    await site.ended(1, 1000)
    cluster = site.cleaner._cluster
    cluster.settings = msgspec.structs.replace(cluster.settings, files_days=None)
    await site.cleaner.sweep()
    assert site.nodes.rights == []


async def test_a_database_that_is_away_is_no_bug(site: Site, tmp_path: Path):
    """The look ends; the next one may find it."""
    elsewhere = Removals(f"sqlite+aiosqlite:///{tmp_path}/empty.db")
    site.cleaner._removals = elsewhere
    await site.cleaner.sweep()
    await elsewhere.close()
    assert site.nodes.rights == []


def test_an_age_of_nothing_is_refused():
    """Zero would remove what a job has just written."""
    with pytest.raises(ValueError, match="files_days"):
        ClusterSettings(name="c", realm="r", files_days=0)
