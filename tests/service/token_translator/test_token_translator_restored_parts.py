"""What a database that was put back has lost, piece by piece: whose holds, which hosts."""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.service.token_translator.denial_world import (
    IMPORTER,
    OTHER,
    Service,
    certificate,
    held,
    lift,
    more,
    problem,
)
from tests.service.token_translator.test_token_translator_hosts import (
    HOSTS,
    ask,
    enrol,
    new_key,
    public,
    renewal,
    verb,
)
from tests.service.token_translator.test_token_translator_restored import (
    ledger,
    put_back,
    save,
    terminal,
    told,
)
from token_translator.keys import accept

PEOPLE = ("erin", "bob", "carol", "dora")


@dataclass(slots=True)
class World:
    """Starts the translator again and again, with a signer of its own."""

    own: Any
    begin: Callable[[], contextlib.AbstractAsyncContextManager[Any]]


@pytest.fixture
def world(start: Any, issuer: Any, registry: Any, make_signer: Callable[..., Any]) -> World:
    """Each of `PEOPLE` has an account, and hosts can be enrolled."""
    for sub in PEOPLE:
        registry.has(sub, sub)
    own = make_signer(hostnames='["*.site.example"]', per_minute=100000)
    return World(own, partial(start, HOSTS + more(issuer), own=own))


async def go_on(folder: Path, site: Any, *words: bytes) -> None:
    """Put back what the ledger says, and go on."""
    (folder / "ledger.json").write_text(await ledger(site.signer))
    done = await terminal(folder, "reconcile", "--ledger", f"{folder}/ledger.json", "--accept")
    assert done.status == 0, done
    for word in words:
        assert word in done.stdout, done.stdout.decode()


async def signs(site: Any, key_line: str) -> None:
    """Wait until the service has seen it."""
    async with asyncio.timeout(15):
        while (await certificate(site, key_line, "alice")).status != 201:
            pass


async def held_by(site: Any, by: Service, *people: str) -> dict[str, str]:
    """The ids of one service's holds on some people."""
    found = await asyncio.gather(*(held(site, by, sub=sub) for sub in people))
    return {sub: one["id"] for sub, one in zip(people, found, strict=True)}


async def test_each_hold_is_its_owners_again(world: World, folder: Path, key_line: str) -> None:
    """What one party lifted takes away no other's hold, before the restore or while one waits."""
    async with world.begin() as site:
        importers = await held_by(site, IMPORTER, "bob")
        backup = save(folder)
        others = await held_by(site, OTHER, "erin", "bob", "carol")
        importers |= await held_by(site, IMPORTER, "erin", "dora")
        for sub in ("erin", "dora"):
            assert (await lift(site, importers[sub], IMPORTER)).status == 204
        async with asyncio.timeout(20):
            while len(await told(world.own, "hold_lifted")) < 8:
                pass
    put_back(folder, backup)
    async with world.begin() as site:
        await problem(await certificate(site, key_line), 503, "database_restored")
        meanwhile = await held_by(site, IMPORTER, "carol")
        assert (await lift(site, meanwhile["carol"], IMPORTER)).status == 204
        await go_on(folder, site, b"put back: 3 holds")
        await signs(site, key_line)
        assert (await lift(site, importers["bob"], IMPORTER)).status == 204
        for sub in ("erin", "bob", "carol"):
            await problem(await certificate(site, key_line, sub), 403, "suspended")
            # By its own id, by its owner.
            assert (await lift(site, others[sub], OTHER)).status == 204
        for sub in PEOPLE:
            assert (await certificate(site, key_line, sub)).status == 201


async def test_an_old_database_is_seen_though_it_was_counted_on(
    world: World, folder: Path, key_line: str
) -> None:
    """A host that boots with a restored database: others are held before the signer is there."""
    async with world.begin() as site:
        backup = save(folder)
        await held(site, OTHER)
        await told(world.own, "hold_placed")
    put_back(folder, backup)
    world.own.stop()
    async with world.begin() as site:
        await held_by(site, IMPORTER, "bob", "carol", "dora")
        await asyncio.to_thread(world.own.start)
        await problem(await certificate(site, key_line, "alice"), 503, "database_restored")
        looked = await terminal(folder, "reconcile")
        assert (looked.status, b"went back" in looked.stdout) == (1, True), looked


async def test_hosts_of_a_restored_database(world: World, folder: Path, tmp_path: Path) -> None:
    """A token that was used is none any more, nor is an open one; who was forgotten stays so."""
    gone, mine, thief = (new_key(tmp_path / name) for name in ("gone", "mine", "thief"))
    async with world.begin() as site:
        first = await asyncio.to_thread(enrol, folder, "login1.site.example")
        assert (await ask(site, renewal(gone), first))[0] == 201
        used = await asyncio.to_thread(enrol, folder, "login2.site.example")
        backup = save(folder)
        assert (await ask(site, renewal(mine), used))[0] == 201
        fingerprint = accept(public(gone)).fingerprint
        await asyncio.to_thread(verb, folder, "forget-host", fingerprint)
        await told(world.own, "host_enrolled", "host_forgotten")
    put_back(folder, backup)
    async with world.begin() as site:
        for body, token in ((renewal(thief), used), (renewal(gone), None)):
            status, document = await ask(site, body, token)
            assert (status, document["code"]) == (503, "database_restored")
        needs = f"needs a new token: {accept(public(mine)).fingerprint}".encode()
        await go_on(folder, site, b"1 host", needs, f"forgotten host: {fingerprint}".encode())
        async with asyncio.timeout(15):
            while (await ask(site, renewal(gone)))[1]["code"] == "database_restored":
                pass
        assert (await ask(site, renewal(gone)))[1]["code"] == "host_unknown"
        assert (await ask(site, renewal(thief), used))[1]["code"] == "enrolment_unknown"
