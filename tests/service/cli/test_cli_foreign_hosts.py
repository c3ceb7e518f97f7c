"""A site that claims another's hosts: login nodes, host keys, its identity on this machine."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from testbed.issuer.core import Issuer
from testbed.issuer.settings import IssuerSettings
from tests.service.cli.command_line import CommandLine
from tests.service.cli.fake_translator import FakeTranslator
from tests.service.cli.fake_translator import running as translator_running
from tests.service.cli.ssh_login import SETTINGS, Everything, browser
from tests.service.client.fake_gateway import FakeGateway, running

HOST = "login.victim.example"


@pytest.fixture
def settings() -> IssuerSettings:
    """The issuer's, for tests to change."""
    return SETTINGS


class Sites:
    """Two sites of one issuer; the victim is reached by another name, so that hosts differ."""

    def __init__(
        self,
        victim: FakeGateway,
        tokens: FakeTranslator,
        gateway: FakeGateway,
        evil: FakeTranslator,
    ) -> None:
        self.victim, self.tokens, self.gateway, self.evil = victim, tokens, gateway, evil


@pytest.fixture
async def sites(issuer: Issuer, translator: FakeTranslator) -> AsyncIterator[Sites]:
    """A victim at `localhost` and a hostile site at 127.0.0.1; both listen."""
    async with running() as victim, running() as hostile, translator_running(issuer) as evil:
        for gateway, tokens in ((victim, translator), (hostile, evil)):
            if gateway is victim:
                gateway.url = gateway.url.replace("127.0.0.1", "localhost")
                tokens.url = tokens.url.replace("127.0.0.1", "localhost")
            gateway.tokens = Everything()
            gateway.translator = tokens.url
            audiences = [gateway.url, tokens.url]
            client = {"issuer": issuer.url, "client_id": "headgate-cli", "audiences": audiences}
            gateway.issuers = [client]
            gateway.login_nodes = [{"host": HOST, "port": 22, "realm": "hpc"}]
        translator.known_hosts = translator.host_line("*.victim.example")
        evil.known_hosts = evil.host_line("*")
        yield Sites(victim, translator, hostile, evil)


@pytest.fixture
async def person(tmp_path: Path, sites: Sites) -> CommandLine:
    """Somebody who is logged in at both, at the hostile site last."""
    command = CommandLine(tmp_path, {"BROWSER": str(browser(tmp_path))})
    (await command("login", sites.victim.url, "--accept", "*.victim.example")).checked()
    (await command("login", sites.gateway.url)).checked()
    return command


def identity(person: CommandLine, gateway: FakeGateway) -> Path:
    """Where a site's identity is."""
    for path in (person.home / ".local/state/headgate/ssh").glob("*/identity.json"):
        if msgspec.json.decode(path.read_bytes())["site"]["url"] == gateway.url:
            return path.parent
    raise LookupError(gateway.url)


async def ssh(person: CommandLine, *arguments: str, **environ: str) -> dict[str, Any]:
    """What `headgate ssh` would do."""
    done = (await person("ssh", "--json", *arguments, **environ)).checked()
    found: dict[str, Any] = msgspec.json.decode(done.stdout)
    return found


async def test_a_login_says_what_it_leaves_out(person: CommandLine, sites: Sites):
    """Hosts that a site names and may not are named at the login, with the way to accept them."""
    said = (await person("login", sites.gateway.url)).checked().stderr.decode()
    assert f"names {HOST} as login nodes, not its own: left out" in said
    assert f"headgate login {sites.gateway.url} --accept {HOST}" in said


async def test_a_host_belongs_to_the_site_whose_it_is(person: CommandLine, sites: Sites):
    """`headgate ssh` takes the host's own site, though another names the host and was used last."""
    command = " ".join((await ssh(person, HOST))["command"])
    assert str(identity(person, sites.victim)) in command
    assert sites.evil.keys == []


async def test_a_host_that_only_a_stranger_names(person: CommandLine, sites: Sites):
    """It is refused; with --site it is the person's word, and the site vouches for nothing."""
    sites.gateway.login_nodes = [{"host": "github.com", "port": 443, "realm": "hpc"}]
    (await person("login", sites.gateway.url)).checked()
    done = await person("ssh", "github.com")
    assert done.status == 1
    assert "names github.com as a login node, but it is not the site's own" in done.stderr.decode()
    found = await ssh(person, "--site", sites.gateway.url, "github.com")
    assert found["port"] == 22
    assert "StrictHostKeyChecking=yes" not in found["command"]


async def test_keys_for_every_host_are_left_out(person: CommandLine, sites: Sites):
    """`@cert-authority *` and names of others are not kept, and it is said; revocations are."""
    revoked = sites.evil.host_line("*").replace("@cert-authority", "@revoked")
    own = sites.evil.host_line("[127.0.0.1]:2222,*.victim.example").replace("@cert-authority ", "")
    sites.evil.known_hosts = sites.evil.host_line("*") + revoked + own
    done = (await person("ssh-renew", "--site", sites.gateway.url)).checked()
    assert "publishes host keys for *, *.victim.example, which is not its own" in (
        done.stderr.decode()
    )
    kept = (identity(person, sites.gateway) / "known_hosts").read_text().splitlines()
    assert kept == [revoked.strip(), own.replace(",*.victim.example", "").strip()]


async def test_a_configuration_has_own_hosts_alone(person: CommandLine, sites: Sites):
    """What is written for ssh names no host of another's."""
    sites.gateway.login_nodes += [{"host": "127.0.0.1", "port": 22, "realm": "hpc"}]
    (await person("login", sites.gateway.url)).checked()
    done = (await person("ssh-config")).checked()
    assert "Match host 127.0.0.1 exec" in done.stdout.decode()
    assert HOST not in done.stdout.decode()
    assert f"names {HOST} as login nodes, not its own: left out" in done.stderr.decode()


async def test_an_identity_stays_its_sites(person: CommandLine, sites: Sites):
    """A directory is renewed with its own site, whatever $HEADGATE_SITE says; --site is refused."""
    (await person("ssh-renew", "--site", sites.victim.url)).checked()
    place = identity(person, sites.victim)
    before = (place / "known_hosts").read_text()
    (await person("ssh-renew", "--force", str(place), HEADGATE_SITE=sites.gateway.url)).checked()
    assert identity(person, sites.victim) == place
    assert (place / "known_hosts").read_text() == before
    assert len(sites.tokens.keys) == 2
    done = await person("ssh-renew", "--force", "--site", sites.gateway.url, str(place))
    assert done.status == 1
    assert f"That is {sites.victim.url}'s" in done.stderr.decode()
    assert sites.evil.keys == []


async def test_a_given_token_goes_to_its_own_site(
    person: CommandLine, sites: Sites, issuer: Issuer
):
    """A token for one site is not sent to another's translator because ssh went there."""
    (await person("ssh-renew", "--site", sites.gateway.url)).checked()
    token = issuer.mint("alice", audience=(sites.victim.url, sites.tokens.url)).token
    sites.evil.tokens.clear()
    given = {"HEADGATE_TOKEN": token, "HEADGATE_SITE": sites.victim.url}
    place = str(identity(person, sites.gateway))
    done = await person("ssh-renew", "--quiet", place, **given)
    assert done.status == 1
    assert f"is for {sites.victim.url}; it was not sent" in done.stderr.decode()
    assert token not in sites.evil.tokens
