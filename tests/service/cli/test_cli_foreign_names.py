"""A site that wants what is another's: tokens for it, its hosts, rights that nobody here needs."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from testbed.issuer.core import Issuer
from testbed.issuer.settings import IssuerSettings
from tests.service.cli.command_line import CommandLine
from tests.service.cli.fake_translator import FakeTranslator
from tests.service.cli.ssh_login import SETTINGS, Everything, browser
from tests.service.client.fake_gateway import FakeGateway, running

VICTIM = "https://hpc.victim.example"


@pytest.fixture
def settings() -> IssuerSettings:
    """The issuer's, for tests to change."""
    return SETTINGS


@pytest.fixture
async def hostile(issuer: Issuer, translator: FakeTranslator) -> AsyncIterator[FakeGateway]:
    """A gateway on this machine that is honest until a test changes it."""
    async with running() as gateway:
        gateway.tokens = Everything()
        gateway.translator = translator.url
        gateway.login_nodes = []
        gateway.issuers = [client(issuer, gateway.url, translator.url)]
        yield gateway


@pytest.fixture
def person(tmp_path: Path) -> CommandLine:
    """Somebody with a browser, who has no login."""
    return CommandLine(tmp_path, {"BROWSER": str(browser(tmp_path))})


def client(issuer: Issuer, *audiences: str, **more: Any) -> dict[str, Any]:
    """How a gateway names the issuer."""
    known = {"issuer": issuer.url, "client_id": "headgate-cli"}
    return {**known, "audiences": list(audiences), **more}


def asked_for(issuer: Issuer, gateway: FakeGateway) -> set[str]:
    """The audiences of all tokens that the gateway has seen."""
    seen = [issuer.tokens.find(token) for token in gateway.tokens]
    return {audience for issued in seen if issued for audience in issued.grant.audience}


async def refused(command: CommandLine, *arguments: str, **environ: str) -> str:
    """What a command says that fails."""
    done = await command(*arguments, **environ)
    assert done.status == 1
    assert "Traceback" not in done.stderr.decode()
    return " ".join(done.stderr.decode().split())


async def test_another_sites_audiences_are_not_asked_for(
    person: CommandLine, hostile: FakeGateway, issuer: Issuer
):
    """A site that wants tokens for another's services gets none; what it named is said."""
    hostile.issuers = [client(issuer, hostile.url, VICTIM)]
    words = await refused(person, "login", hostile.url)
    assert f"asks for tokens for {VICTIM}, which is not its own" in words
    assert f"headgate login {hostile.url} --accept {VICTIM}" in words
    assert not hostile.tokens
    assert not (person.home / ".config").exists()


async def test_two_audiences_in_one_word(person: CommandLine, hostile: FakeGateway, issuer: Issuer):
    """An audience with a space in it is two, and both are looked at."""
    hostile.issuers = [client(issuer, f"{hostile.url}/ {VICTIM}")]
    assert "is not its own" in await refused(person, "login", hostile.url)
    assert not hostile.tokens


async def test_what_the_person_accepts_is_asked_for_and_remembered(
    person: CommandLine, hostile: FakeGateway, issuer: Issuer
):
    """--accept lets a site speak for a name until the person logs out."""
    hostile.issuers = [client(issuer, hostile.url, VICTIM)]
    (await person("login", hostile.url, "--accept", VICTIM)).checked()
    assert VICTIM in asked_for(issuer, hostile)
    (await person("login", hostile.url)).checked()
    (await person("logout")).checked()
    assert "not its own" in await refused(person, "login", hostile.url)


async def test_a_gateway_under_another_name(
    person: CommandLine, hostile: FakeGateway, translator: FakeTranslator
):
    """RFC 9728: who calls itself another's name is not the one, at a login and ever after."""
    hostile.audience = translator.url
    assert f"calls itself {translator.url}" in await refused(person, "login", hostile.url)
    hostile.audience = hostile.url
    (await person("login", hostile.url)).checked()
    (config,) = person.home.glob(".config/headgate/sites.json")
    kept = config.read_bytes()
    config.write_bytes(
        kept.replace(b'"audience": "' + hostile.url.encode(), b'"audience": "' + VICTIM.encode())
    )
    hostile.tokens.clear()
    assert f"calls itself {VICTIM}" in await refused(person, "whoami")
    assert not hostile.tokens


async def test_oidc_agent_is_asked_for_the_site_alone(
    person: CommandLine, hostile: FakeGateway, tmp_path: Path
):
    """The agent is not asked for a token of another's name, nor for one without an audience."""
    asked: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.read(65536))
        writer.write(b'{"status":"success","access_token":"good"}')
        await writer.drain()
        writer.close()

    agent = {"OIDC_SOCK": str(tmp_path / "agent"), "HEADGATE_SITE": hostile.url}
    async with await asyncio.start_unix_server(answer, agent["OIDC_SOCK"]):
        hostile.audience = VICTIM
        assert "calls itself" in await refused(person, "whoami", **agent)
        assert asked == []
        hostile.audience = hostile.url
        (await person("whoami", **agent)).checked()
        assert f'"audience":"{hostile.url}"'.encode() in asked[0]


@pytest.mark.parametrize("given", [True, False], ids=["a given token", "a login"])
async def test_no_token_goes_to_a_translator_elsewhere(
    person: CommandLine, hostile: FakeGateway, issuer: Issuer, *, given: bool
):
    """A service that the gateway names beside its own host is not talked to, whatever the token."""
    hostile.translator = "https://tokens.victim.example"
    hostile.issuers = [client(issuer, hostile.url)]
    command = ("ssh-renew", "--site", hostile.url) if given else ("login", hostile.url)
    token = {"HEADGATE_TOKEN": "t"} if given else {}
    words = await refused(person, *command, **token)
    assert "for https://tokens.victim.example, which is not its own" in words


async def test_a_token_alone_can_accept(person: CommandLine, hostile: FakeGateway):
    """Where nobody logs in, $HEADGATE_ACCEPT says what --accept does."""
    hostile.translator = hostile.translator.replace("127.0.0.1", "localhost")
    given = {"HEADGATE_TOKEN": "t", "HEADGATE_SITE": hostile.url}
    assert "not its own" in await refused(person, "ssh-renew", **given)
    words = await refused(person, "ssh-renew", **given, HEADGATE_ACCEPT="localhost")
    assert "The token is not for this service." in words


async def test_rights_that_nobody_here_needs(
    person: CommandLine, hostile: FakeGateway, issuer: Issuer
):
    """A site that asks for rights elsewhere is refused; the person may ask for them."""
    scopes = ["openid", "offline_access", "storage.modify:/"]
    hostile.issuers = [client(issuer, hostile.url, scopes=scopes)]
    words = await refused(person, "login", hostile.url)
    assert "asks for the right to storage.modify:/, which headgate does not need" in words
    assert not hostile.tokens
    kept = person.home / ".config/headgate/sites.json"
    hostile.issuers = [client(issuer, hostile.url, scopes=["openid"])]
    (await person("login", hostile.url, "--scope", "email")).checked()
    (site,) = msgspec.json.decode(kept.read_bytes())["sites"]
    assert (site["scopes"], site["wished"]) == (["openid", "email"], ["email"])
