"""A database put back from a backup: nobody is let in again because it does not know better."""

import asyncio
import contextlib
import json
import sqlite3
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from headgate.command import Completed, run
from tests.service.token_translator.denial_world import (
    IMPORTER,
    WHY,
    certificate,
    held,
    lift,
    more,
    problem,
)

DIGEST = "ab" * 32


async def terminal(folder: Path, verb: str, *options: str) -> Completed:
    """`headgate-tokens` on the host."""
    argv = (sys.executable, "-m", "token_translator", verb, "--config", f"{folder}/tokens.toml")
    return await run((*argv, *options), timeout=60)


async def ledger(signer: Any) -> str:
    """The whole ledger, as the signer's administrator prints it."""
    argv = (sys.executable, "-m", "token_translator.signer", "ledger", "search", "--json")
    done = await run((*argv, "--config", str(signer.config)), timeout=60)
    return done.checked().stdout.decode()


async def told(signer: Any, *events: str) -> list[Any]:
    """The ledger's notes, once these events are among them."""
    async with asyncio.timeout(20):
        while True:
            lines = [json.loads(line) for line in (await ledger(signer)).splitlines()]
            notes = [line for line in lines if line["kind"] == "noted"]
            if set(events) <= {note["event"] for note in notes}:
                return notes


def save(folder: Path) -> Path:
    """A backup of the database, as its own tool makes one."""
    copy = folder / f"backup-{uuid4()}.sqlite"
    with (
        contextlib.closing(sqlite3.connect(folder / "tokens.sqlite")) as source,
        contextlib.closing(sqlite3.connect(copy)) as target,
    ):
        source.backup(target)
    return copy


def put_back(folder: Path, copy: Path) -> None:
    """The backup over the database, whether the service runs or not."""
    with (
        contextlib.closing(sqlite3.connect(copy)) as source,
        contextlib.closing(sqlite3.connect(folder / "tokens.sqlite")) as target,
    ):
        source.backup(target)


@pytest.fixture
def world(
    start: Any, issuer: Any, registry: Any, make_signer: Callable[..., Any]
) -> Callable[[], contextlib.AbstractAsyncContextManager[Any]]:
    """Starts the translator again and again on the same files; erin has an account."""
    registry.has("erin", "erin")
    own = make_signer(per_minute=100000)

    @contextlib.asynccontextmanager
    async def begin() -> AsyncIterator[Any]:
        async with start(more(issuer), own=own) as one:
            yield one

    return begin


async def seal(site: Any) -> tuple[str, Any]:
    """A row of erin's and the answer."""
    row = str(uuid4())
    body = {"row": row, "digest": DIGEST, "realm": "site1"}
    return row, await site.post(
        "/v1/seals", body, token=site.issuer.token("erin"), peer=site.peer()
    )


async def test_nothing_is_signed_on_yesterdays_database(
    world: Any, folder: Path, key_line: str
) -> None:
    """Not for whom it has forgotten to hold nor for anybody, until an administrator has looked."""
    async with world() as site:
        row, sealed = await seal(site)
        assert sealed.status == 201
        assert (await certificate(site, key_line)).status == 201
        backup = save(folder)
        await held(site)
        bearer = {"Authorization": f"Bearer {site.issuer.token('erin')}"}
        assert (await site.client.delete(f"/v1/delegations/{row}", headers=bearer)).status == 204
        stop = ("stop-service", "gateway", "--reason", "its key was seen elsewhere")
        assert (await terminal(folder, *stop)).status == 0
        await told(site.signer, "hold_placed", "delegation_ended", "service_stopped")
    put_back(folder, backup)
    async with world() as site:
        for sub in ("erin", "alice"):
            await problem(await certificate(site, key_line, sub), 503, "database_restored")
        await problem((await seal(site))[1], 503, "database_restored")
        delegated = {"row": row, "verb": "submit", "public_key": key_line}
        answer = await site.post("/v1/delegated-certificates", delegated, peer=site.peer())
        await problem(answer, 503, "database_restored")
        ready = await site.client.get("/readyz?verbose")
        assert (ready.status, "headgate-tokens reconcile" in await ready.text()) == (503, True)
        # To deny is always possible, and does not make it any younger.
        for _ in range(3):
            await held(site, sub="bob")
            await lift(site, (await held(site, sub="bob"))["id"])
    async with world() as site:
        await problem(await certificate(site, key_line), 503, "database_restored")
        looked = await terminal(folder, "reconcile")
        assert (looked.status, b"went back" in looked.stdout) == (1, True), looked
        whole = await ledger(site.signer)
        for piece in ("", "\n".join(whole.splitlines()[:3]), whole.splitlines()[-1]):
            (folder / "ledger.json").write_text(piece)
            wrong = ("reconcile", "--ledger", f"{folder}/ledger.json", "--accept")
            refused = await terminal(folder, *wrong)
            assert (refused.status, b"it must have the numbers" in refused.stderr) == (78, True)
        (folder / "ledger.json").write_text(whole)
        done = await terminal(folder, "reconcile", "--ledger", f"{folder}/ledger.json", "--accept")
        assert done.status == 0, done
        assert b"1 hold, 1 delegation, 1 service" in done.stdout
        async with asyncio.timeout(10):
            while (await certificate(site, key_line, "alice")).status != 201:
                pass
        told_why = await problem(await certificate(site, key_line), 403, "suspended")
        assert told_why["detail"] == f"You are suspended here: {WHY} (by the service importer)."
        answer = await site.post("/v1/delegated-certificates", delegated, peer=site.peer())
        await problem(answer, 403, "service_stopped")
        assert (await terminal(folder, "start-service", "gateway")).status == 0
        answer = await site.post("/v1/delegated-certificates", delegated, peer=site.peer())
        assert (await answer.json())["code"] in {"delegation_ended", "suspended"}
        assert (await terminal(folder, "reconcile")).stdout.startswith(b"whole")
        await told(site.signer, "restore_accepted")


async def test_a_database_that_is_put_back_under_a_running_service(
    world: Any, folder: Path, key_line: str
) -> None:
    """It is noticed within two seconds, also where nothing but a delegation was forgotten."""
    async with world() as site:
        row, _ = await seal(site)
        backup = save(folder)
        bearer = {"Authorization": f"Bearer {site.issuer.token('erin')}"}
        assert (await site.client.delete(f"/v1/delegations/{row}", headers=bearer)).status == 204
        await told(site.signer, "delegation_ended")
        put_back(folder, backup)
        async with asyncio.timeout(2):
            while (await certificate(site, key_line)).status != 503:
                pass
        await problem(await certificate(site, key_line), 503, "database_restored")


async def test_an_empty_database_is_an_old_one(
    world: Any, folder: Path, key_line: str, empty_database: Path
) -> None:
    """Somebody who makes the database anew finds nobody suspended, and nobody let in."""
    async with world() as site:
        await held(site, IMPORTER)
        await told(site.signer, "hold_placed")
    put_back(folder, empty_database)
    async with world() as site:
        await problem(await certificate(site, key_line), 503, "database_restored")
        listening = await site.client.get("/v1/krl")
        assert listening.status == 200
