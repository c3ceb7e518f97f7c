"""Answers that no honest site gives: each is a sentence and an exit status, never a traceback."""

import time

import pytest
from aiohttp import web

from testbed.issuer.settings import IssuerSettings
from tests.service.cli.command_line import CommandLine
from tests.service.cli.fake_translator import FakeTranslator
from tests.service.cli.ssh_login import SETTINGS, directory
from tests.service.client.fake_gateway import FakeGateway


@pytest.fixture
def settings() -> IssuerSettings:
    """The issuer's, for tests to change."""
    return SETTINGS


async def said(headgate: CommandLine, *arguments: str) -> str:
    """What a command says that fails."""
    done = await headgate(*arguments)
    assert done.status == 1
    words = done.stderr.decode()
    assert "Traceback" not in words
    return words


async def test_a_certificate_for_ever(logged_in: CommandLine, translator: FakeTranslator):
    """One that ends after all calendars is not kept; one that is there already hinders nothing."""
    (await logged_in("ssh-renew")).checked()
    translator.lifetime = 2**63 - int(time.time())
    translator.answered = "2099-01-01T00:00:00Z"
    assert "that never ends" in await said(logged_in, "ssh-renew", "--force")
    line = translator.certificates[-1]
    (directory(logged_in) / "id_ed25519-cert.pub").write_text(line)
    for command in (("whoami",), ("ssh-config", "--status"), ("logout",)):
        (await logged_in(*command)).checked()


@pytest.mark.parametrize("port", [0, -1, 65536, 10**12, 10**30])
async def test_a_login_node_at_no_port(headgate: CommandLine, gateway: FakeGateway, port: int):
    """A port that there is not makes the whole description unbelievable."""
    gateway.login_nodes = [{"host": "127.0.0.1", "port": port, "realm": "hpc"}]
    assert "not one of a headgate gateway" in await said(headgate, "ssh", "127.0.0.1")


@pytest.mark.parametrize("url", ["https://x:99999999", "https://[", "x", "https://"])
async def test_a_translator_at_no_address(headgate: CommandLine, gateway: FakeGateway, url: str):
    """What is no address is not the site's own."""
    gateway.translator = url
    assert "not its own" in await said(headgate, "ssh-renew")


@pytest.mark.parametrize(
    "answer", [b"[" * 100_000, b'{"a":' * 50_000, b'{"exit_code":1' + b"0" * 5000 + b"}"]
)
async def test_an_answer_of_absurd_depth_or_size(
    headgate: CommandLine, gateway: FakeGateway, answer: bytes
):
    """JSON nested beyond all measure, and numbers of five thousand digits."""

    async def nonsense(_: web.Request) -> web.Response:
        return web.Response(body=answer, content_type="application/json")

    gateway.answer = nonsense
    assert "makes no sense" in (words := await said(headgate, "whoami")) or "not one of" in words


async def test_dates_at_the_ends_of_the_calendar(headgate: CommandLine, gateway: FakeGateway):
    """They are shown as they are, wherever the person's clock is."""
    gateway.add_job(created_at="0001-01-01T00:00:00Z", started_at="0001-01-01T00:00:00Z")
    gateway.add_job(created_at="9999-12-31T23:59:59Z", ended_at="9999-12-31T23:59:59Z")
    for zone in ("America/Adak", "Asia/Tokyo"):
        shown = (await headgate("job", "list", TZ=zone)).checked().stdout.decode()
        assert "Traceback" not in shown


async def test_a_login_of_absurd_freshness(headgate: CommandLine, gateway: FakeGateway):
    """A challenge with a `max_age` of five thousand digits is a refusal like another."""

    async def refuse(_: web.Request) -> web.Response:
        challenge = f'Bearer error="insufficient_user_authentication", max_age="{"9" * 5000}"'
        return web.Response(status=401, headers={"WWW-Authenticate": challenge})

    gateway.answer = refuse
    assert "401" in await said(headgate, "whoami")
