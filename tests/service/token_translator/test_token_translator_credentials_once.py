"""A service's credential is good for one request, whichever replica it comes to."""

import asyncio
from pathlib import Path
from typing import Any
from uuid import uuid4

from aiohttp.test_utils import TestClient, TestServer

from headgate.clock import SystemClock
from headgate.settings import load
from token_translator.assembly import assembled
from token_translator.settings import Settings


async def ask(client: Any, site: Any, headers: dict[str, str]) -> tuple[int, str]:
    """Seal a row with that credential; the status and the code."""
    body = {"row": str(uuid4()), "digest": "ab" * 32, "realm": "site1"}
    bearer = {"Authorization": f"Bearer {site.issuer.token()}"}
    answer = await client.post("/v1/seals", json=body, headers={**bearer, **headers})
    return answer.status, (await answer.json()).get("code", "")


async def test_not_by_another_replica_nor_after_a_restart(site: Any, folder: Path) -> None:
    """Replicas share one database, and so does the process that comes after."""
    settings = load(folder / "tokens.toml", Settings)
    first, second = site.peer(), site.peer()
    async with (
        assembled(settings, SystemClock()) as app,
        TestClient(TestServer(app)) as replica,
    ):
        assert await ask(site.client, site, first) == (201, "")
        assert await ask(replica, site, first) == (401, "peer")
        at_once = await asyncio.gather(
            *(ask(client, site, second) for client in (site.client, replica))
        )
        assert sorted(at_once) == [(201, ""), (401, "peer")]
    async with (
        assembled(settings, SystemClock()) as app,
        TestClient(TestServer(app)) as later,
    ):
        assert await ask(later, site, first) == (401, "peer")
        assert await ask(later, site, site.peer()) == (201, "")
