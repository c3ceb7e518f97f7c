"""What one person, or one stopped service, does to the others: nothing."""

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import aiohttp
import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from headgate.clock import SystemClock
from headgate.command import run
from headgate.identity import Identity
from headgate.registry import RegistryClient

PATH = "/v1/certificates"


async def test_one_person_does_not_use_up_the_signer(start: Any, key_line: str) -> None:
    """Beyond a pace nobody needs it is 429 for them, and for nobody else."""
    async with start(per_minute=2) as site:
        site.registry.has("bob", "bob")
        body, profile = {"public_key": key_line}, {"profile": "session"}
        token = site.issuer.token()
        for _ in range(2):
            assert (await site.post(PATH, body, token=token)).status == 201
        refused = await site.post(PATH, body, token=token)
        document = await refused.json()
        assert (refused.status, document["code"]) == (429, "person_rate")
        assert 0 < int(refused.headers["Retry-After"]) <= 60
        session = await site.post(PATH, {**body, **profile}, token=token, peer=site.peer())
        assert session.status == 429
        assert (await site.post(PATH, body, token=site.issuer.token("bob"))).status == 201


@pytest.mark.parametrize("path", ["/v1/seals", "/v1/delegated-certificates"])
async def test_a_body_that_began_before_the_stop_is_too_late(
    site: Any, folder: Path, key_line: str, path: str
) -> None:
    """A stopped service gets nothing by way of requests that it kept open."""
    row, going_on = str(uuid4()), asyncio.Event()
    seal = {"row": row, "digest": "ab" * 32, "realm": "site1"}
    token = site.issuer.token()
    assert (await site.post("/v1/seals", seal, token=token, peer=site.peer())).status == 201
    use = {"row": row, "verb": "submit", "public_key": key_line}
    content = msgspec.json.encode(seal if path == "/v1/seals" else use)

    async def slowly() -> AsyncIterator[bytes]:
        yield content[:5]
        await going_on.wait()
        yield content[5:]

    headers = {
        **site.peer(),
        "Authorization": f"Bearer {token}",
        "Content-Type": "application/json",
    }
    asked = asyncio.create_task(site.client.post(path, data=slowly(), headers=headers))
    verb = (sys.executable, "-m", "token_translator", "stop-service", "gateway", "--reason", "x")
    (await run((*verb, "--config", str(folder / "tokens.toml")), timeout=60)).checked()
    going_on.set()
    answer = await asked
    assert (answer.status, (await answer.json())["code"]) == (403, "service_stopped")


@pytest.mark.parametrize(
    ("account", "uid"), [("root", 0), ("toor", 0), ("root", 20001), ("A B", 7)]
)
async def test_an_account_that_nobody_may_be_opens_nothing(
    start: Any, key_line: str, account: str, uid: int
) -> None:
    """Whatever the registry says: no certificate, no seal, and no PAM login."""
    pam = """
[pam]
realm = "site1"
nodes = [{ name = "login1", addresses = ["127.0.0.1", "::1"] }]
"""
    async with start(pam) as site:
        site.registry.has("alice", account, uid=uid)
        token = site.issuer.token()
        answer = await site.post(PATH, {"public_key": key_line}, token=token)
        assert (answer.status, (await answer.json())["code"]) == (403, "account_unsuitable")
        told = await site.client.get(
            "/verify_user",
            params={"username": account},
            headers={"Authorization": f"Bearer {token}"},
        )
        assert (await told.json()).get("verified") is not True


async def test_a_registry_that_answers_in_pieces_is_understood() -> None:
    """An answer is read to its end, however it is cut on the way."""
    pieces = [
        b'{"account": "alice", "uid": 20000, "gid": 20000, ',
        b'"state": "active", "version": 1}',
    ]
    second = asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        response.content_type = "application/json"
        await response.prepare(request)
        await response.write(pieces[0])
        await asyncio.wait_for(second.wait(), 5)
        await response.write(pieces[1])
        return response

    app = web.Application()
    app.router.add_get("/v1/accounts", answer)
    async with TestServer(app) as server, aiohttp.ClientSession() as session:
        client = RegistryClient(
            url=str(server.make_url("")).rstrip("/"),
            timeout=5.0,
            session=session,
            headers=lambda _: {},
            clock=SystemClock(),
        )
        asked = asyncio.create_task(client.standing(Identity("https://iam/", "a"), "r"))
        await asyncio.sleep(0.05)  # the first piece alone has arrived
        second.set()
        assert (await asked).active_account().account == "alice"
