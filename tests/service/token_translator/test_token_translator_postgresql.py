"""The HTTP service on PostgreSQL: away, it says so in a moment; back, all is well again."""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from aiohttp.test_utils import TestClient, TestServer

from headgate.clock import SystemClock
from headgate.settings import load
from testbed.postgresql import Postgresql
from tests.service.token_translator.denial_world import IMPORTER, OTHER, WHY, more
from tests.service.token_translator.test_token_translator_pam import PAM
from token_translator.assembly import assembled
from token_translator.database import open_async_database, upgrade
from token_translator.enrolments import PREFIX
from token_translator.settings import Settings
from token_translator.tables import CHANGE_HEAD, DENIAL_HEAD

pytestmark = pytest.mark.site

AHEAD = 10**8
Ask = Callable[[], Awaitable[Any]]


@pytest.fixture
async def shared(postgresql: Postgresql) -> str:
    """A migrated database."""
    url = await asyncio.to_thread(postgresql.create_database)
    engine = open_async_database(url)
    async with engine.begin() as connection:
        await connection.run_sync(upgrade, "seals")
        # Above what the signer has seen of the site's other database.
        await connection.execute(CHANGE_HEAD.update().values(version=AHEAD))
        counted = {"number": AHEAD, "told_changes": AHEAD, "told_denials": AHEAD}
        await connection.execute(DENIAL_HEAD.update().values(counted))
    await engine.dispose()
    return url


@pytest.fixture
async def site(start: Any, issuer: Any, make_signer: Any) -> AsyncIterator[Any]:
    """A translator with services, PAM and a signer of its own; its settings are the replicas'."""
    signer = await asyncio.to_thread(make_signer)
    async with start(more(issuer) + PAM, own=signer) as one:
        yield one


@contextlib.asynccontextmanager
async def replica(folder: Path, url: str) -> AsyncIterator[TestClient[Any, Any]]:
    """A translator of the site's settings, on that database."""
    text = (folder / "tokens.toml").read_text()
    path = folder / "shared.toml"
    path.write_text(text.replace(f"sqlite+aiosqlite:///{folder}/tokens.sqlite", url, 1))
    async with (
        assembled(load(path, Settings), SystemClock()) as app,
        TestClient(TestServer(app)) as client,
    ):
        yield client


def questions(site: Any, client: Any, key_line: str, row: str) -> dict[str, Ask]:
    """One of each kind that the database is needed for."""
    token = {"Authorization": f"Bearer {site.issuer.token()}"}
    enrolling = {"Authorization": f"Bearer {PREFIX}{'a' * 32}"}
    seal = {"row": row, "digest": "ab" * 32, "realm": "site1"}
    held = {"iss": site.issuer.url, "sub": "mallory", "reason": WHY}

    def peer(service: Any = None) -> dict[str, str]:
        return site.peer() if service is None else dict(service.signer.headers(site.url))

    def post(path: str, body: Any, headers: Callable[[], dict[str, str]]) -> Ask:
        return lambda: client.post(path, json=body, headers=headers())

    def get(path: str, headers: Callable[[], dict[str, str]]) -> Ask:
        return lambda: client.get(path, headers=headers())

    delegated = {"row": row, "verb": "status", "public_key": key_line}
    return {
        "certificate": post("/v1/certificates", {"public_key": key_line}, lambda: token),
        "seal": post("/v1/seals", seal, lambda: {**token, **peer()}),
        "delegated": post("/v1/delegated-certificates", delegated, peer),
        "delegations": get("/v1/delegations", lambda: token),
        "end": lambda: client.delete(f"/v1/delegations/{uuid4()}", headers=token),
        "hold": post("/v1/holds", held, lambda: peer(IMPORTER)),
        "holds": get("/v1/holds", lambda: peer(IMPORTER)),
        "lift": lambda: client.delete(f"/v1/holds/{uuid4()}", headers=peer(IMPORTER)),
        "changes": get("/v1/changes", lambda: peer(OTHER)),
        "revoke": post("/v1/revocations", {"serials": [9], "reason": WHY}, lambda: peer(OTHER)),
        "enrol": post("/v1/host-certificates", {"public_key": key_line}, lambda: enrolling),
        "password": post("/user/generate_otp", {"host": "login1.site.example"}, lambda: token),
        "verify": get("/verify_user?username=alice", lambda: token),
        "verify once": get(
            "/verify_user?username=alice", lambda: {"Authorization": f"Bearer {'A' * 26}"}
        ),
        "deploy": post("/user/deploy", {}, lambda: token),
        "ready": get("/readyz", dict),
    }


async def status(ask: Ask) -> int:
    """How one is answered, within a bounded time."""
    answer = await asyncio.wait_for(ask(), 25)
    found: int = answer.status
    answer.close()
    return found


async def test_a_server_that_goes_away_and_comes_back(
    site: Any, postgresql: Postgresql, shared: str, folder: Path, key_line: str
) -> None:
    """503 for each question while it is away, never 500; and each as before when it is back."""
    async with replica(folder, shared) as client:
        asked = questions(site, client, key_line, str(uuid4()))
        before = {name: await status(ask) for name, ask in asked.items()}
        assert not {name: found for name, found in before.items() if found >= 500}
        await postgresql.kill()
        try:
            async with asyncio.timeout(5):  # who is held is known from memory for a moment
                while await status(asked["certificate"]) == 201:
                    pass
            away = {name: await status(ask) for name, ask in asked.items()}
            assert {name: found for name, found in away.items() if found != 503} == {}
            for open_to_all in ("/v1/ca", "/v1/krl", "/livez"):
                assert (await client.get(open_to_all)).status == 200
        finally:
            await postgresql.start()
        after: dict[str, int] = {}
        async with asyncio.timeout(20):
            while any(found >= 500 for found in after.values()) or not after:
                after = {name: await status(ask) for name, ask in asked.items()}
        again = {"seal": 200, "hold": 200, "lift": 404}
        assert {**after, **again} == {**before, **again}


@contextlib.contextmanager
def frozen(postgresql: Postgresql) -> Iterator[None]:
    """The server's processes stand still: connections are there, and nothing answers."""
    postmaster = postgresql.pid
    children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()
    processes = [postmaster, *map(int, children)]
    for one in processes:
        os.kill(one, signal.SIGSTOP)
    try:
        yield
    finally:
        for one in processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(one, signal.SIGCONT)


async def test_a_server_that_does_not_answer(
    site: Any, postgresql: Postgresql, shared: str, folder: Path, key_line: str
) -> None:
    """Nobody waits for it without end: 503 in some seconds, and well again once it answers."""
    async with replica(folder, shared) as client:
        asked = questions(site, client, key_line, str(uuid4()))
        before = {name: await status(ask) for name, ask in asked.items()}
        with frozen(postgresql):
            async with asyncio.timeout(30):
                while await status(asked["certificate"]) == 201:
                    pass
            answers = await asyncio.gather(*(status(ask) for ask in asked.values()))
            away = dict(zip(asked, answers, strict=True))
            assert {name: found for name, found in away.items() if found != 503} == {}
        after: dict[str, int] = {}
        async with asyncio.timeout(30):
            while any(found >= 500 for found in after.values()) or not after:
                after = {name: await status(ask) for name, ask in asked.items()}
        again = {"seal": 200, "hold": 200, "lift": 404}
        assert {**after, **again} == {**before, **again}


async def test_two_replicas_share_what_is_denied(
    site: Any, shared: str, folder: Path, key_line: str
) -> None:
    """A hold that one has written refuses at the other at once."""
    issuer = site.issuer
    async with replica(folder, shared) as one, replica(folder, shared) as other:
        body, token = {"public_key": key_line}, {"Authorization": f"Bearer {issuer.token()}"}
        assert (await other.post("/v1/certificates", json=body, headers=token)).status == 201
        hold = {"iss": issuer.url, "sub": "alice", "reason": WHY}
        headers = IMPORTER.signer.headers(site.url)
        assert (await one.post("/v1/holds", json=hold, headers=headers)).status == 201
        assert (await other.post("/v1/certificates", json=body, headers=token)).status == 403
