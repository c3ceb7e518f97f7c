"""`headgate token`: a token for one's own programs, for services of the site alone."""

import msgspec
import pytest

from testbed.issuer.core import Issuer
from testbed.issuer.settings import IssuerSettings
from tests.service.cli.command_line import CommandLine
from tests.service.cli.fake_translator import FakeTranslator
from tests.service.cli.ssh_login import SETTINGS, login
from tests.service.client.fake_gateway import FakeGateway


@pytest.fixture
def settings() -> IssuerSettings:
    """The issuer's, for tests to change."""
    return SETTINGS


async def test_a_token_for_curl(logged_in: CommandLine, gateway: FakeGateway):
    """The login's token, alone on standard output; with --json what it says of itself."""
    done = (await logged_in("token")).checked()
    assert done.stdout.decode() == login(logged_in)["access_token"] + "\n"
    assert done.stderr == b""
    document = await logged_in.json("token")
    assert isinstance(document, dict)
    assert gateway.url in document["audiences"]
    assert document["expires_at"].endswith("Z")


async def test_a_terminal_is_warned(logged_in: CommandLine):
    """Where somebody may look on, the command says what that is."""
    shown = await logged_in.on_terminal("token")
    assert "Whoever reads this is you until it ends." in shown
    assert login(logged_in)["access_token"] in shown.replace("\r\n", "")


@pytest.mark.parametrize(
    "settings", [msgspec.structs.replace(SETTINGS, single_audience=True)], ids=["one audience"]
)
async def test_a_token_for_another_service_of_the_site(
    logged_in: CommandLine, translator: FakeTranslator, issuer: Issuer
):
    """It is exchanged where one token has one audience."""
    found = (await logged_in("token", "--audience", translator.url)).checked().stdout.decode()
    issued = issuer.tokens.find(found.strip())
    assert issued is not None
    assert issued.grant.audience == (translator.url,)


async def test_no_token_for_others(logged_in: CommandLine, issuer: Issuer, gateway: FakeGateway):
    """Another site's audience is refused, and a given token is for what it is for."""
    done = await logged_in("token", "--audience", "https://hpc.victim.example")
    assert (done.status, done.stdout) == (1, b"")
    words = " ".join(done.stderr.decode().split())
    assert f"https://hpc.victim.example is not known as a service of {gateway.url}" in words
    assert "asks for" not in words
    given = issuer.mint("alice", audience=(f"{gateway.url}/other",)).token
    done = await logged_in("token", "--audience", gateway.url, HEADGATE_TOKEN=given)
    assert (done.status, done.stdout) == (1, b"")
    assert f"There is no token for {gateway.url}" in done.stderr.decode()
    assert given not in done.stderr.decode()
