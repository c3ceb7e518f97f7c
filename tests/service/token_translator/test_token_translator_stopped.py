"""A service that is stopped is stopped in the middle of things, too."""

import asyncio
import time
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.service.token_translator.denial_world import OTHER, following, more, problem
from tests.service.token_translator.test_token_translator_restored import terminal
from token_translator.signer_client import SignerClient

STOP = ("--reason", "its key was seen elsewhere")


async def test_its_feed_ends_within_two_seconds(start: Any, issuer: Any, folder: Path) -> None:
    """An open stream of a stopped service ends; another service's goes on; it may not come back."""
    async with start(more(issuer)) as site, following(site) as service:
        await asyncio.wait_for(service.feed.until_current(), 5)
        headers = OTHER.signer.headers(site.url)
        stream = await site.client.get("/v1/changes", headers=headers)
        assert stream.status == 200
        assert (await terminal(folder, "stop-service", "other", *STOP)).status == 0
        stopped_at = time.monotonic()
        async with asyncio.timeout(5):
            while await stream.content.readany():
                pass
        assert time.monotonic() - stopped_at < 2
        again = await site.client.get("/v1/changes", headers=OTHER.signer.headers(site.url))
        await problem(again, 403, "service_stopped")


async def test_others_feeds_go_on(start: Any, issuer: Any, folder: Path) -> None:
    """Stopping one service takes nothing from another."""
    async with start(more(issuer)) as site:
        stream = await site.client.get("/v1/changes", headers=OTHER.signer.headers(site.url))
        assert (await terminal(folder, "stop-service", "importer", *STOP)).status == 0
        heartbeats = 0
        async with asyncio.timeout(15):
            while heartbeats < 2:
                heartbeats += (await stream.content.readany()).count(b":")
        stream.close()


@pytest.mark.parametrize("profile", ["session", "sealed"])
async def test_what_was_under_way_is_not_handed_out(
    start: Any, folder: Path, key_line: str, monkeypatch: pytest.MonkeyPatch, profile: str
) -> None:
    """A certificate that was being signed while its service was stopped stays here."""
    sign = SignerClient.sign

    async def slowly(self: Any, *arguments: Any, **named: Any) -> Any:
        signed = await sign(self, *arguments, **named)
        assert (await terminal(folder, "stop-service", "gateway", *STOP)).status == 0
        return signed

    async with start() as site:
        token, row = site.issuer.token(), str(uuid4())
        seal = {"row": row, "digest": "ab" * 32, "realm": "site1"}
        assert (await site.post("/v1/seals", seal, token=token, peer=site.peer())).status == 201
        monkeypatch.setattr(SignerClient, "sign", slowly)
        if profile == "session":
            body = {"public_key": key_line, "profile": "session"}
            answer = await site.post("/v1/certificates", body, token=token, peer=site.peer())
        else:
            body = {"public_key": key_line, "row": row, "verb": "status"}
            answer = await site.post("/v1/delegated-certificates", body, peer=site.peer())
        await problem(answer, 403, "service_stopped")
