"""A listening issuer with four people, and a session to ask it."""

from collections.abc import AsyncIterator

import aiohttp
import pytest

from headgate.clock import HeldClock
from testbed.issuer.app import running
from testbed.issuer.core import Issuer
from testbed.issuer.directory import Client, User
from testbed.issuer.settings import IssuerSettings

SECRET = "control"
SETTINGS = IssuerSettings(
    state_dir="",
    users=(
        User(username="alice", email="alice@example.org", groups=("hpc", "gpu")),
        User(username="bob", groups=("hpc",)),
        User(username="carol", groups=("hpc",)),
        User(username="dave"),
    ),
    clients=(
        Client(client_id="cli"),
        Client(
            client_id="importer",
            secret="s3",
            grants=("client_credentials",),
            scopes=("scim:read", "profile"),
        ),
    ),
)


@pytest.fixture
def clock() -> HeldClock:
    """A clock the test moves."""
    return HeldClock()


@pytest.fixture
async def issuer(clock: HeldClock) -> AsyncIterator[Issuer]:
    """The issuer, listening."""
    async with running(SETTINGS, clock=clock, control_secret=SECRET) as issuer:
        yield issuer


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    """A client session."""
    async with aiohttp.ClientSession() as session:
        yield session
