"""The embedded site, which needs no root, with everybody's account."""

from collections.abc import AsyncIterator, Callable

import aiohttp
import pytest

from testbed.caller import Caller
from testbed.embedded import EmbeddedSite, embedded


@pytest.fixture(scope="session")
async def site() -> AsyncIterator[EmbeddedSite]:
    """One embedded site for all tests of this folder."""
    async with embedded(quick=True) as running:
        await running.import_accounts()
        yield running


@pytest.fixture(scope="session")
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    """One HTTP session for all."""
    async with aiohttp.ClientSession() as opened:
        yield opened


MakeCaller = Callable[[str], Caller]


@pytest.fixture(scope="session")
def as_bearer(site: EmbeddedSite, session: aiohttp.ClientSession) -> MakeCaller:
    """Makes a caller for a token."""
    return lambda token: Caller(session, site.addresses.gateway, token)


@pytest.fixture(scope="session")
async def alice(site: EmbeddedSite, as_bearer: MakeCaller) -> Caller:
    """Alice, with a good token."""
    return as_bearer(await site.token("alice"))


@pytest.fixture(scope="session")
async def bob(site: EmbeddedSite, as_bearer: MakeCaller) -> Caller:
    """Bob, with a good token."""
    return as_bearer(await site.token("bob"))
