"""Whose certificate it is: that of the person whose token counts, and never somebody else's."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from headgate.cli.ssh.agent import Agent
from testbed.issuer.core import Issuer
from testbed.issuer.settings import IssuerSettings
from testbed.issuer.tokens import Grant
from tests.service.cli.command_line import CommandLine
from tests.service.cli.fake_translator import FakeTranslator
from tests.service.cli.ssh_login import SETTINGS, browser, directory
from tests.service.client.fake_gateway import FakeGateway

HOST = "login.example.org"


@pytest.fixture
def settings() -> IssuerSettings:
    """The issuer's, for tests to change."""
    return SETTINGS


@pytest.fixture
async def headgate(logged_in: CommandLine) -> CommandLine:
    """The command of alice, who has a login and a certificate."""
    (await logged_in("ssh-renew")).checked()
    return logged_in


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Path]:
    """A real ssh-agent."""
    path = tmp_path / "agent"
    with subprocess.Popen(["ssh-agent", "-D", "-a", str(path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield path
        process.terminate()


def token(issuer: Issuer, translator: FakeTranslator, name: str, lifetime: int = 3600) -> str:
    """A token of somebody, for the translator."""
    grant = Grant("headgate-cli", name, audience=(translator.url,))
    user = issuer.directory.user(name)
    return issuer.tokens.mint(grant, user, issuer=issuer.url, lifetime=lifetime).token


def quick(headgate: CommandLine) -> tuple[str, ...]:
    """What a stock ssh runs."""
    return ("ssh-renew", "--quiet", str(directory(headgate)))


def kept(headgate: CommandLine) -> str:
    """The account of the saved identity."""
    return str(msgspec.json.decode((directory(headgate) / "identity.json").read_bytes())["account"])


async def account(headgate: CommandLine, *arguments: str, **environ: str) -> str:
    """As whom `headgate ssh` would log in."""
    done = (await headgate("ssh", "--json", *arguments, HOST, **environ)).checked()
    return str(msgspec.json.decode(done.stdout)["account"])


async def test_a_given_token_is_the_one_that_counts(
    headgate: CommandLine, issuer: Issuer, translator: FakeTranslator, tmp_path: Path
):
    """A token of bob's in the variable or in a file logs in as bob; without it, as alice again."""
    bobs = token(issuer, translator, "bob")
    (tmp_path / "token").write_text(bobs)
    assert await account(headgate, HEADGATE_TOKEN=bobs) == "bob"
    assert await account(headgate) == "alice"
    assert await account(headgate, "--token-file", str(tmp_path / "token")) == "bob"
    assert await account(headgate) == "alice"
    assert len(set(translator.keys)) == len(translator.keys) == 5


async def test_plain_ssh_follows_a_given_token(
    headgate: CommandLine, issuer: Issuer, translator: FakeTranslator
):
    """What ssh runs gets bob's certificate with bob's token, and alice's with her login."""
    bobs = token(issuer, translator, "bob")
    done = await headgate(*quick(headgate), HEADGATE_TOKEN=bobs)
    assert (done.status, done.stderr, kept(headgate)) == (0, b"", "bob")
    done = await headgate(*quick(headgate))
    assert (done.status, done.stderr, kept(headgate)) == (0, b"", "alice")
    (await headgate(*quick(headgate))).checked()
    assert len(translator.keys) == 3


async def test_a_given_token_does_without_the_login(
    headgate: CommandLine, issuer: Issuer, translator: FakeTranslator
):
    """A damaged login is in nobody's way who brings a token."""
    (path,) = (headgate.home / ".local/state/headgate/logins").glob("*.json")
    path.write_bytes(b"{")
    bobs = token(issuer, translator, "bob")
    assert await account(headgate, HEADGATE_TOKEN=bobs) == "bob"


async def test_a_given_token_of_the_same_person_keeps_the_key(
    headgate: CommandLine, issuer: Issuer, translator: FakeTranslator
):
    """Another certificate is asked for, for the same key: an ssh that starts just now needs it."""
    alices = token(issuer, translator, "alice")
    assert await account(headgate, HEADGATE_TOKEN=alices) == "alice"
    assert len(translator.keys) == 2
    assert len(set(translator.keys)) == 1


@pytest.mark.parametrize("name", ["alice", "bob"])
async def test_a_refused_token_logs_nobody_in(
    headgate: CommandLine, issuer: Issuer, translator: FakeTranslator, name: str, agent: Path
):
    """An expired token ends in a failure that names it; no older key is left for ssh to offer."""
    headgate.environ["SSH_AUTH_SOCK"] = str(agent)
    (await headgate("ssh-renew", "--force")).checked()
    assert len(Agent(str(agent)).identities()) == 2
    expired = token(issuer, translator, name, lifetime=-60)
    for command in (("ssh", HOST), quick(headgate)):
        done = await headgate(*command, HEADGATE_TOKEN=expired)
        assert done.status == 1
        assert "The token came from $HEADGATE_TOKEN" in done.stderr.decode()
    assert done.stderr.count(b"\n") == 1
    assert Agent(str(agent)).identities() == {}
    assert not (directory(headgate) / "id_ed25519-cert.pub").exists()
    assert await account(headgate) == "alice"


async def test_what_other_tools_export_counts_without_a_login(
    headgate: CommandLine, issuer: Issuer, translator: FakeTranslator
):
    """Beside a login $BEARER_TOKEN is not looked at; without one it says who logs in."""
    where, bobs = quick(headgate), token(issuer, translator, "bob")
    (await headgate(*where, BEARER_TOKEN=bobs)).checked()
    assert kept(headgate) == "alice"
    (path,) = (headgate.home / ".local/state/headgate/logins").glob("*.json")
    path.unlink()
    (await headgate(*where, BEARER_TOKEN=bobs)).checked()
    assert kept(headgate) == "bob"
    (await headgate(*where)).checked()
    assert len(translator.keys) == 2


async def test_a_login_as_somebody_else_forgets_the_certificate(
    headgate: CommandLine, gateway: FakeGateway, agent: Path
):
    """`headgate login` as bob takes alice's key out of files and agent, and says so."""
    headgate.environ["SSH_AUTH_SOCK"] = str(agent)
    (await headgate("ssh-renew", "--force")).checked()
    (await headgate("ssh-config", "--write")).checked()
    same = (await headgate("login", gateway.url)).checked()
    assert b"Forgot" not in same.stderr
    assert len(Agent(str(agent)).identities()) == 2
    browser(headgate.home, username="bob")
    done = (await headgate("login", gateway.url)).checked()
    assert "Forgot the SSH certificate for alice here." in done.stderr.decode()
    assert "run: headgate ssh-config --write" in done.stderr.decode()
    assert Agent(str(agent)).identities() == {}
    left = {path.name for path in directory(headgate).iterdir()}
    assert left <= {"identity.json", "identity.json.lock", "known_hosts"}
    assert await account(headgate) == "bob"


async def test_a_certificate_of_nobody_known_is_renewed(
    headgate: CommandLine, translator: FakeTranslator
):
    """One of an older version does not say whose it is: the login's own is got first."""
    path = directory(headgate) / "identity.json"
    about = msgspec.json.decode(path.read_bytes())
    path.write_bytes(msgspec.json.encode({k: about[k] for k in ("site", "realm", "account")}))
    (await headgate(*quick(headgate))).checked()
    (await headgate(*quick(headgate))).checked()
    assert len(set(translator.keys)) == len(translator.keys) == 2


async def test_a_login_keeps_its_person_when_it_is_renewed(
    headgate: CommandLine, translator: FakeTranslator
):
    """A refresh is of the same person: the certificate stays."""
    (path,) = (headgate.home / ".local/state/headgate/logins").glob("*.json")
    before = msgspec.json.decode(path.read_bytes())
    path.write_bytes(msgspec.json.encode({**before, "expires_at": "2020-01-01T00:00:00Z"}))
    (await headgate("whoami")).checked()
    after = msgspec.json.decode(path.read_bytes())
    assert after["access_token"] != before["access_token"]
    assert after["person"] == before["person"]
    (await headgate(*quick(headgate))).checked()
    assert len(translator.keys) == 1
