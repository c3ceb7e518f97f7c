"""What every test gets, and the real site that all of one process who need one share."""

import itertools
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import pytest
import structlog

from testbed.launch import site as running_site
from testbed.postgresql import Postgresql
from testbed.postgresql import postgresql as running_postgresql
from testbed.site import Site

LocalUser = Callable[..., Awaitable[str]]


@pytest.fixture(autouse=True)
def own_process() -> Iterator[None]:
    """Undo what commands under test set for their process: the log's stream, and the umask."""
    mask = os.umask(0o022)
    os.umask(mask)
    yield
    os.umask(mask)
    structlog.reset_defaults()


@pytest.fixture(scope="session")
async def site() -> AsyncIterator[Site]:
    """A whole site; it fails with the reason where one cannot be (no root, no packages)."""
    async with running_site() as running:
        yield running


@pytest.fixture(scope="session")
def local_user(site: Site) -> LocalUser:
    """Makes accounts by hand, at the upper end of the importer's range."""
    uids = itertools.count(29_000)

    async def make(*, shell: str = "/bin/bash") -> str:
        uid = next(uids)
        name = f"local{uid}"
        argv = ("useradd", "--create-home", "--uid", str(uid), "--shell", shell, "-p", "*", name)
        (await site.exec(argv)).checked()
        return name

    return make


@pytest.fixture(scope="session")
async def user(local_user: LocalUser) -> str:
    """One account made by hand, for tests that need just anybody."""
    return await local_user()


@pytest.fixture(scope="session")
async def postgresql() -> AsyncIterator[Postgresql]:
    """A PostgreSQL server, of which a test takes a database of its own; it fails without one."""
    async with running_postgresql() as server:
        yield server
