"""Certificates for a person: got, renewed, kept private, refused; by the command as a process."""

import asyncio
import stat
import sys
import time
from pathlib import Path

import msgspec
import pytest

from headgate.cli.ssh.wire import Certificate, blob
from headgate.command import run
from testbed.issuer.core import Fault, Issuer
from testbed.issuer.settings import IssuerSettings
from testbed.issuer.sign_in import MULTI
from tests.service.cli.command_line import CommandLine
from tests.service.cli.fake_translator import FakeTranslator
from tests.service.cli.ssh_login import SETTINGS, browser, directory, login
from tests.service.client.fake_gateway import FakeGateway


@pytest.fixture
def settings() -> IssuerSettings:
    """The issuer's, for tests to change."""
    return SETTINGS


@pytest.fixture
def headgate(logged_in: CommandLine) -> CommandLine:
    """The command of somebody who has just logged in, with a browser."""
    return logged_in


async def test_a_certificate_is_got_once(headgate: CommandLine, translator: FakeTranslator):
    """The key stays here, private; a second call changes nothing; --force makes another key."""
    first = await headgate.json("ssh-renew")
    assert isinstance(first, dict)
    assert (first["account"], first["realm"], first["key"]) == ("alice", "hpc", "file")
    for path in directory(headgate).iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(directory(headgate).stat().st_mode) == 0o700
    assert await headgate.json("ssh-renew") == first
    assert len(translator.keys) == 1
    assert "PRIVATE" not in translator.keys[0]
    (await headgate("ssh-renew", "--force")).checked()
    assert len(translator.keys) == 2
    assert translator.keys[0] != translator.keys[1]
    key = (directory(headgate) / "id_ed25519.pub").read_text().strip()
    assert key == translator.keys[1]


async def test_a_login_by_browser_as_json(headgate: CommandLine, gateway: FakeGateway):
    """Two lines: the page to open, and who one is."""
    done = (await headgate("login", gateway.url, "--json")).checked()
    first, last = (msgspec.json.decode(line) for line in done.stdout.splitlines())
    assert "code_challenge_method=S256" in first["authorization_uri"]
    assert last["me"]["account"] == "alice"
    assert done.stderr == b""


async def test_one_that_ends_soon_is_renewed(headgate: CommandLine, translator: FakeTranslator):
    """What ssh asks for gets a new certificate when the old one is nearly over, silently."""
    translator.lifetime = 10
    (await headgate("ssh-renew")).checked()
    translator.lifetime = 600
    quiet = await headgate("ssh-renew", "--quiet", str(directory(headgate)))
    assert (quiet.status, quiet.stdout, quiet.stderr) == (0, b"", b"")
    line = (directory(headgate) / "id_ed25519-cert.pub").read_bytes()
    assert Certificate(blob(line)).remaining(time.time()) > 500
    again = await headgate("ssh-renew", "--quiet", str(directory(headgate)))
    assert (again.status, len(translator.keys)) == (0, 2)


async def test_nothing_to_do_is_quick(headgate: CommandLine):
    """Where the certificate is good, ssh waits for little more than Python's own start."""
    (await headgate("ssh-renew")).checked()
    began = time.perf_counter()
    argv = (*headgate_program(), "ssh-renew", "--quiet", str(directory(headgate)))
    for _ in range(10):
        (await run(argv, timeout=10, env=headgate.env())).checked()
    ours = time.perf_counter() - began
    began = time.perf_counter()
    for _ in range(10):
        (await run((headgate_program()[0], "-c", ""), timeout=10, env=headgate.env())).checked()
    # A ratio: machines differ, and others work on this one. The whole command takes ten times it.
    assert ours < 4 * (time.perf_counter() - began)


def headgate_program() -> tuple[str, ...]:
    """The command as it is installed, without the tests' own switches."""
    return (sys.executable, "-m", "headgate.cli")


async def test_a_short_token_is_renewed_first(headgate: CommandLine, issuer: Issuer):
    """A certificate is got with a token that lives for a while, or it would end with it."""
    (path,) = (headgate.home / ".local/state/headgate/logins").glob("*.json")
    old = login(headgate)
    soon = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 300))
    path.write_bytes(msgspec.json.encode({**old, "expires_at": soon}))
    (await headgate("whoami")).checked()
    assert login(headgate)["access_token"] == old["access_token"]
    (await headgate("ssh-renew")).checked()
    assert login(headgate)["access_token"] != old["access_token"]
    assert login(headgate)["refresh_token"] != old["refresh_token"]
    assert old["refresh_token"] not in issuer.refresh


async def test_a_living_token_will_do_while_the_issuer_is_away(
    headgate: CommandLine, issuer: Issuer, translator: FakeTranslator
):
    """An outage of the issuer does not lock anybody out who still has a token."""
    (path,) = (headgate.home / ".local/state/headgate/logins").glob("*.json")
    soon = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 300))
    path.write_bytes(msgspec.json.encode({**login(headgate), "expires_at": soon}))
    issuer.faults.append(Fault("/token", status=503, times=5))
    (await headgate("ssh-renew")).checked()
    assert len(translator.keys) == 1


async def test_a_refusal_is_said_at_once(headgate: CommandLine, translator: FakeTranslator):
    """Who is suspended learns why, on one line of standard error."""
    translator.suspended = True
    done = await headgate("ssh-renew")
    assert done.status == 1
    assert "suspended: misuse" in done.stderr.decode()
    assert msgspec.json.decode((await headgate("ssh-renew", "--json")).stderr)["code"] == (
        "suspended"
    )


async def test_a_certificate_for_another_key_is_not_kept(
    headgate: CommandLine, translator: FakeTranslator
):
    """What the service sends back must be for the key that was sent."""
    translator.other_key = True
    done = await headgate("ssh-renew")
    assert done.status == 1
    assert "another key" in done.stderr.decode()
    assert not (directory(headgate) / "id_ed25519-cert.pub").exists()
    assert not (directory(headgate) / "id_ed25519").exists()


async def test_a_stronger_login_is_named_where_nobody_can_make_one(
    headgate: CommandLine, translator: FakeTranslator, gateway: FakeGateway
):
    """Without a terminal: the command that makes it, and no wait. That command then helps."""
    translator.acr = MULTI
    done = await headgate("ssh-renew")
    words = done.stderr.decode()
    assert done.status == 1
    assert "A second factor is needed here." in words
    advice = f"headgate login {gateway.url} --acr {MULTI}"
    assert advice in words
    browser(headgate.home, "-d second_factor=yes")
    (await headgate(*advice.split()[1:])).checked()
    (await headgate("ssh-renew")).checked()


async def test_a_stronger_login_is_made_at_once_on_a_terminal(
    headgate: CommandLine, translator: FakeTranslator
):
    """On a terminal the command says why, logs in again as strongly as asked, and goes on."""
    translator.acr = MULTI
    browser(headgate.home, "-d second_factor=yes")
    shown = await headgate.on_terminal("ssh-renew")
    assert "The site asks for a stronger login" in shown
    assert "SSH certificate for alice, until" in shown
    assert len(translator.keys) == 1


async def test_every_service_may_ask_for_more(headgate: CommandLine, translator: FakeTranslator):
    """Any service may ask for more; without a terminal the next step is said."""
    translator.acr = MULTI
    done = await headgate("delegations", "--json")
    problem = msgspec.json.decode(done.stderr)
    assert (done.status, problem["code"]) == (1, "insufficient_user_authentication")


@pytest.mark.parametrize(
    "settings", [msgspec.structs.replace(SETTINGS, single_audience=True)], ids=["one audience"]
)
async def test_an_issuer_of_one_audience(headgate: CommandLine, translator: FakeTranslator):
    """The token is exchanged for the service's own audience, once while that lives."""
    (await headgate("ssh-renew")).checked()
    (await headgate("ssh-renew", "--force")).checked()
    assert len(set(translator.tokens)) == 1
    kept = login(headgate)
    assert kept["access_token"] != translator.tokens[0]
    assert [token["audience"] for token in kept["exchanged"]] == [translator.url]
    (await headgate("whoami")).checked()
    assert login(headgate) == kept


async def test_no_token_goes_to_this_machine_for_a_site_elsewhere(tmp_path: Path):
    """A translator on the loopback of a remote site is whoever listens here: refused, unasked."""
    site = {
        "url": "https://hpc.example.org",
        "issuer": "https://iam.example.org/",
        "client_id": "x",
        "token_translator": "http://127.0.0.1:1",
        "login_nodes": [{"host": "login.example.org", "realm": "hpc"}],
    }
    config = tmp_path / ".config" / "headgate" / "sites.json"
    config.parent.mkdir(parents=True, mode=0o700)
    config.write_bytes(msgspec.json.encode({"default": site["url"], "sites": [site]}))
    config.chmod(0o600)
    done = await CommandLine(tmp_path)("ssh-renew", HEADGATE_TOKEN="t")
    assert done.status == 1
    assert "which is on this machine" in done.stderr.decode()


async def test_two_renewals_at_once_are_one(headgate: CommandLine, translator: FakeTranslator):
    """Many ssh that start together wait for one certificate."""
    (await headgate("ssh-renew")).checked()
    where = str(directory(headgate))
    (directory(headgate) / "id_ed25519-cert.pub").unlink()
    done = await asyncio.gather(*(headgate("ssh-renew", "--quiet", where) for _ in range(4)))
    assert [d.status for d in done] == [0, 0, 0, 0]
    assert len(translator.keys) == 2
