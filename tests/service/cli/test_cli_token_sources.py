"""Tokens of the field's other tools: a real oidc-agent, and the places of WLCG's discovery."""

import asyncio
import contextlib
import os
import re
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from testbed.issuer.core import Issuer
from testbed.waiting import until
from tests.service.cli.command_line import CommandLine
from tests.service.client.fake_gateway import FakeGateway


@pytest.fixture
def headgate(tmp_path: Path, gateway: FakeGateway, issuer: Issuer) -> CommandLine:
    """The command of somebody who never logged in; the gateway trusts the issuer."""
    gateway.issuers = [{"issuer": issuer.url, "client_id": "headgate-cli"}]
    return CommandLine(tmp_path, {"HEADGATE_SITE": gateway.url})


def issued_by(issuer: Issuer, gateway: FakeGateway) -> set[str]:
    """Make the gateway take the issuer's own tokens; those it saw."""

    class Live(set[str]):
        def __contains__(self, token: object) -> bool:
            known = issuer.tokens.find(str(token)) is not None
            self.add(str(token))
            return known

    gateway.tokens = Live()
    return gateway.tokens


@contextlib.asynccontextmanager
async def agent(home: Path, issuer: Issuer) -> AsyncIterator[Path]:
    """A running oidc-agent with an account `people` of alice's; its socket."""
    folder = home / "agent"
    folder.mkdir(mode=0o700)
    (home / ".oidc-agent").mkdir(mode=0o700)
    socket = folder / "socket"
    env = {"HOME": str(home), "PATH": os.environ["PATH"], "OIDC_SOCK": str(socket)}
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        "oidc-agent", "--console", "-a", str(socket), env=env, stdout=pipe, stderr=pipe
    )
    try:
        await until(socket.exists, seconds=30)
        async with asyncio.timeout(30):
            await _account(env, issuer)
        yield socket
    finally:
        process.terminate()
        await process.communicate()


async def _account(env: dict[str, str], issuer: Issuer) -> None:
    """What a person does once: `oidc-gen`, by device flow."""
    generate = await asyncio.create_subprocess_exec(
        *("oidc-gen", "--manual", "--issuer", issuer.url, "--client-id", "headgate-cli"),
        *("--client-secret", "", "--scope", "openid profile offline_access", "--flow=device"),
        *("--redirect-uri", "http://localhost:8080", "--pw-cmd=echo x", "--no-url-call"),
        *("--confirm-yes", "people"),
        env=env,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    assert generate.stdout is not None
    said = b""
    while not (found := re.search(rb"[A-Z]{4}-[A-Z]{4}", said)):
        said += (line := await generate.stdout.readline())
        assert line, said.decode()
    form = {"user_code": found[0].decode(), "username": "alice"}
    async with (
        aiohttp.ClientSession() as session,
        session.post(issuer.url + "device", data=form) as answer,
    ):
        assert answer.status == 200
    rest, _ = await generate.communicate()
    assert generate.returncode == 0, rest.decode()


@pytest.mark.site  # oidc-agent is a distribution's package
async def test_oidc_agent_gives_a_token_for_the_site(
    headgate: CommandLine, gateway: FakeGateway, issuer: Issuer
):
    """By its socket alone, for the site's issuer; or the account that was named."""
    seen = issued_by(issuer, gateway)
    async with agent(headgate.home, issuer) as socket:
        done = (await headgate("whoami", OIDC_SOCK=str(socket))).checked()
        assert re.search(r"token +oidc-agent", done.stdout.decode())
        named = {"OIDC_SOCK": str(socket), "OIDC_AGENT_ACCOUNT": "people"}
        (await headgate("whoami", **named)).checked()
        unknown = await headgate("whoami", **{**named, "OIDC_AGENT_ACCOUNT": "nobody"})
        assert unknown.status == 1
        assert "oidc-agent has no token for nobody" in unknown.stderr.decode()
    tokens = [issuer.tokens.find(token) for token in seen]
    assert gateway.url in {a for issued in tokens if issued for a in issued.grant.audience}


async def test_an_agent_that_is_gone_is_a_sentence(headgate: CommandLine, tmp_path: Path):
    """A stale OIDC_SOCK is named."""
    done = await headgate("whoami", OIDC_SOCK=str(tmp_path / "gone"))
    assert done.status == 1
    assert "oidc-agent at" in done.stderr.decode()
    assert "cannot be asked" in done.stderr.decode()


async def test_the_request_is_the_agents_own(
    headgate: CommandLine, gateway: FakeGateway, issuer: Issuer, tmp_path: Path
):
    """The IPC-API's fields, with the site's issuer; a slow answer in pieces is read whole."""
    asked = b""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        asked = await reader.read(65536)
        for piece in (b'{"status":"success","access_', b'token":"good","issuer":"x"}'):
            writer.write(piece)
            await writer.drain()
        await reader.read()
        writer.close()

    gateway.tokens = {"good"}
    server = await asyncio.start_unix_server(answer, str(tmp_path / "socket"))
    async with server:
        (await headgate("whoami", OIDC_SOCK=str(tmp_path / "socket"))).checked()
    assert b'"request":"access_token"' in asked
    assert f'"issuer":"{issuer.url}"'.encode() in asked
    assert b'"application_hint":"headgate"' in asked
    assert f'"audience":"{gateway.url}"'.encode() in asked


async def test_the_last_place_of_wlcg_discovery(
    headgate: CommandLine, gateway: FakeGateway, tmp_path: Path
):
    """$XDG_RUNTIME_DIR/bt_u<uid> is used, if nobody else could have written or read it."""
    path = tmp_path / f"bt_u{os.geteuid()}"
    path.write_text("good\n")
    path.chmod(0o600)
    (await headgate("whoami", XDG_RUNTIME_DIR=str(tmp_path))).checked()
    path.chmod(0o644)
    done = await headgate("whoami", XDG_RUNTIME_DIR=str(tmp_path))
    assert done.status == 1
    assert "chmod 600" in done.stderr.decode()
    gateway.tokens = {"first"}
    first = {"BEARER_TOKEN": "first", "XDG_RUNTIME_DIR": str(tmp_path)}
    (await headgate("whoami", **first)).checked()
