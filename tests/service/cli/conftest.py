"""Fixtures: a fake gateway and translator, a real issuer, and the command between them."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from testbed.issuer.app import running as issuer_running
from testbed.issuer.core import Issuer
from testbed.issuer.directory import Client, User
from testbed.issuer.settings import IssuerSettings
from tests.service.cli.command_line import CommandLine
from tests.service.cli.fake_translator import FakeTranslator
from tests.service.cli.fake_translator import running as translator_running
from tests.service.cli.ssh_login import Everything, browser
from tests.service.client.fake_gateway import FakeGateway, running
from tests.service.client.hurried_clock import HurriedClock

SETTINGS = IssuerSettings(
    state_dir="",
    device_interval_seconds=1,
    device_code_seconds=60,
    users=(User(username="alice", groups=("hpc",)),),
    clients=(Client(client_id="headgate-cli"),),
)


@pytest.fixture
async def gateway() -> AsyncIterator[FakeGateway]:
    """A listening fake gateway."""
    async with running() as listening:
        yield listening


@pytest.fixture
def settings() -> IssuerSettings:
    """The issuer's, for tests to change."""
    return SETTINGS


@pytest.fixture
async def issuer(settings: IssuerSettings) -> AsyncIterator[Issuer]:
    """A listening issuer with the system's clock."""
    async with issuer_running(settings) as listening:
        yield listening


@pytest.fixture
async def translator(issuer: Issuer) -> AsyncIterator[FakeTranslator]:
    """A listening translator that trusts the issuer."""
    async with translator_running(issuer) as listening:
        yield listening


@pytest.fixture
def clock() -> HurriedClock:
    """A clock that hurries."""
    return HurriedClock()


@pytest.fixture
async def hurried_issuer(clock: HurriedClock) -> AsyncIterator[Issuer]:
    """A listening issuer that shares the clock of the test."""
    async with issuer_running(SETTINGS, clock=clock) as listening:
        yield listening


@pytest.fixture
def headgate(tmp_path: Path, gateway: FakeGateway) -> CommandLine:
    """The command, with a good token for the fake gateway."""
    environ = {"HEADGATE_SITE": gateway.url, "HEADGATE_TOKEN": "good"}
    return CommandLine(tmp_path, environ)


@pytest.fixture
async def logged_in(
    tmp_path: Path, gateway: FakeGateway, issuer: Issuer, translator: FakeTranslator
) -> CommandLine:
    """The command of somebody who has just logged in, with a browser."""
    gateway.tokens = Everything()
    gateway.audience = gateway.url
    gateway.translator = translator.url
    gateway.issuers = [
        {
            "issuer": issuer.url,
            "client_id": "headgate-cli",
            "audiences": [gateway.url, translator.url],
        }
    ]
    command = CommandLine(tmp_path, {"BROWSER": str(browser(tmp_path))})
    (await command("login", gateway.url, "--accept", "*.example.org")).checked()
    return command
