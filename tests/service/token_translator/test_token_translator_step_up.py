"""Step-up from end to end (RFC 9470): the real service asks, `headgate` logs in as it wishes."""

import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from testbed.issuer.app import running as issuer_running
from testbed.issuer.core import Issuer
from testbed.issuer.sign_in import MULTI, SINGLE
from tests.service.cli.command_line import CommandLine
from tests.service.cli.ssh_login import SETTINGS, Everything, browser, login
from tests.service.client.fake_gateway import running as gateway_running
from tests.service.token_translator.service_files import AUDIENCE

RULE = """
[[issuers]]
url = "{issuer}"
[[rules]]
name = "with a second factor, and fresh"
acr = ["{acr}"]
max_auth_age = 600
"""


@dataclass
class World:
    """A person's machine, the testbed's issuer, and a translator that asks for much."""

    person: CommandLine
    issuer: Issuer
    tokens: Any
    gateway: str

    def signs_in(self, more: str) -> None:
        """What the person does in the browser from now on."""
        browser(self.person.home, more)

    def last(self) -> Any:
        """The issuer's record of the token that the person has now."""
        return self.issuer.tokens.find(login(self.person)["access_token"])


@pytest.fixture
async def world(start: Any, registry: Any, tmp_path: Path) -> AsyncIterator[World]:
    """Alice, logged in with one factor; the translator wants two, and a login of ten minutes."""
    async with issuer_running(SETTINGS) as issuer, gateway_running() as gateway:
        registry.has(issuer.directory.user("alice").id, "alice")
        async with start(RULE.format(issuer=issuer.url, acr=MULTI)) as site:
            gateway.tokens, gateway.translator = Everything(), site.url
            client = {"issuer": issuer.url, "client_id": "headgate-cli"}
            gateway.issuers = [{**client, "audiences": [gateway.url, AUDIENCE]}]
            gateway.login_nodes = [{"host": "127.0.0.1", "port": 22, "realm": "site1"}]
            home = tmp_path / "home"
            home.mkdir()
            person = CommandLine(home, {"BROWSER": str(browser(home))})
            (await person("login", gateway.url, "--accept", AUDIENCE)).checked()
            yield World(person, issuer, site, gateway.url)


async def test_without_a_terminal_the_next_command_is_named(world: World):
    """The refusal says what would do; that command makes the login, and then there is a key."""
    assert world.last().grant.acr == SINGLE
    done = await world.person("ssh-renew", "--json")
    problem = msgspec.json.decode(done.stderr)
    assert (done.status, problem["code"]) == (1, "insufficient_user_authentication")
    assert (problem["acr_values"], problem["max_age"]) == ([MULTI], 600)
    said = (await world.person("ssh-renew")).stderr.decode()
    advice = f"headgate login {world.gateway} --acr {MULTI} --max-age 600"
    assert f"Run: {advice}" in " ".join(said.split())
    world.signs_in("-d second_factor=yes")
    (await world.person(*advice.split()[1:])).checked()
    made = await world.person.json("ssh-renew")
    assert isinstance(made, dict)
    assert (made["account"], made["realm"]) == ("alice", "site1")
    assert world.last().grant.acr == MULTI


async def test_on_a_terminal_it_is_made_at_once(world: World):
    """The person reads why, signs in with a second factor, and the certificate is there."""
    world.signs_in("-d second_factor=yes")
    shown = await world.person.on_terminal("ssh-renew")
    assert "The site asks for a stronger login" in shown
    assert "SSH certificate for alice, until" in shown
    assert world.last().grant.acr == MULTI


async def test_an_old_login_is_made_fresh(world: World):
    """Strong enough and too long ago: the person signs in again, for `max_age`'s sake alone."""
    old = world.issuer.mint(
        "alice", audience=(world.gateway, AUDIENCE), acr=MULTI, auth_time=int(time.time()) - 3600
    )
    (path,) = (world.person.home / ".local/state/headgate/logins").glob("*.json")
    path.write_bytes(msgspec.json.encode({**login(world.person), "access_token": old.token}))
    world.signs_in("-d second_factor=yes")
    shown = await world.person.on_terminal("ssh-renew")
    assert "SSH certificate for alice, until" in shown
    assert world.last().grant.auth_time > time.time() - 600


async def test_who_cannot_is_left_with_what_they_had(world: World):
    """A sign-in that is too weak ends in a sentence; the login of before stays."""
    before = login(world.person)["access_token"]
    world.signs_in("-d decision=deny")
    shown = await world.person.on_terminal("ssh-renew")
    assert "denied" in shown
    assert "Traceback" not in shown
    assert login(world.person)["access_token"] == before
