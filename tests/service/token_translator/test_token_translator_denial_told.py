"""A denial reaches everybody: services, other replicas, a signer that was away, the terminal."""

import asyncio
import contextlib
import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from headgate.client import TokenTranslator
from headgate.identity import Identity
from tests.service.token_translator.denial_world import (
    IMPORTER,
    WHY,
    certificate,
    following,
    held,
    lift,
    more,
    problem,
    revoked,
    until_revoked,
)


@pytest.fixture
async def site(start: Any, issuer: Any, registry: Any) -> AsyncIterator[Any]:
    """A translator with administrators, an importer and one more service; erin has an account."""
    registry.has("erin", "erin")
    async with start(more(issuer)) as one:
        yield one


async def test_services_hear_it_on_the_feed(site: Any):
    """Who is held already, who is held now, and who may act again."""
    erin = Identity(site.issuer.url, "erin")
    first = await held(site)
    async with following(site) as service:
        assert await service.denied() == "erin"
        await held(site, sub="alice", realm="site1")
        assert await service.denied() == "alice"
        assert service.feed.denial(erin, "site1") == f"{WHY} (by the service importer)"
        await lift(site, first["id"])
        await held(site, sub="bob")
        assert await service.denied() == "bob"
        assert service.feed.denial(erin, "site1") is None


async def test_another_replica_tells_it_within_half_a_second(
    start: Any, issuer: Any, registry: Any
):
    """A hold that one replica commits is on the feed of the other, and counts there at once."""
    registry.has("erin", "erin")
    async with (
        start(more(issuer)) as one,
        start(more(issuer)) as other,
        following(other) as service,
    ):
        await asyncio.wait_for(service.feed.until_current(), 5)
        document = await held(one)
        before = time.monotonic()
        assert await service.denied() == "erin"
        assert time.monotonic() - before < 0.5
        assert (await lift(other, document["id"])).status == 204


async def test_a_service_without_the_verb_hears_nothing(site: Any):
    """The feed says who is suspended: that is not for everybody."""
    headers = IMPORTER.signer.headers(site.url)
    await problem(await site.client.get("/v1/changes", headers=headers), 403, "peer_verb")
    await problem(await site.client.get("/v1/changes"), 401, "no_peer")


async def test_a_stopping_service_ends_its_streams(start: Any, issuer: Any):
    """Nobody waits for a listener: the service is gone long before its time to drain is up."""
    async with contextlib.AsyncExitStack() as stack:
        async with start(more(issuer)) as site:
            service = await stack.enter_async_context(following(site))
            await asyncio.wait_for(service.feed.until_current(), 5)
            before = time.monotonic()
        assert time.monotonic() - before < 5


async def test_a_signer_that_is_away_hears_of_it_later(
    start: Any, registry: Any, make_signer: Callable[..., Any], key_line: str, tmp_path: Path
):
    """The hold counts at once, the revocation is pending however often one asks, then done."""
    registry.has("erin", "erin")
    signer = await asyncio.to_thread(make_signer)
    async with start(IMPORTER.entry(), signer) as site:
        before = await (await certificate(site, key_line)).json()
        await asyncio.to_thread(signer.kill)
        for _ in range(2):
            assert (await held(site))["revocation"] == "pending"
        assert (await site.client.get("/v1/krl")).status == 503
        await asyncio.to_thread(signer.start)
        await problem(await certificate(site, key_line), 403, "suspended")
        await until_revoked(site, before["certificate"], tmp_path)


async def test_at_the_hosts_terminal(site: Any, key_line: str, folder: Path, tmp_path: Path):
    """Suspend, list, resume and revoke on the database itself; the running service obeys."""
    config = str(folder / "tokens.toml")

    async def run(*words: str) -> tuple[int, str]:
        argv = [sys.executable, "-m", "token_translator", words[0], "--config", config, *words[1:]]
        ended = await asyncio.to_thread(
            subprocess.run, argv, check=False, capture_output=True, text=True, timeout=60
        )
        return ended.returncode, ended.stdout + ended.stderr

    before = await (await certificate(site, key_line)).json()
    who = ("--iss", site.issuer.url, "--sub", "erin")
    async with following(site) as service:
        await asyncio.wait_for(service.feed.until_current(), 5)
        status, said = await run("suspend", *who, "--reason", "")
        assert (status, "reason:" in said) == (1, True), said
        status, said = await run("suspend", *who, "--reason", WHY)
        assert status == 0, said
        assert await service.denied() == "erin"
    await problem(await certificate(site, key_line), 403, "suspended")
    assert await revoked(site, before["certificate"], tmp_path)
    status, said = await run("holds", "--json")
    [found] = json.loads(said)["holds"]
    assert (found["sub"], found["owner"].partition(":")[0]) == ("erin", "local")
    imported = await held(site)
    status, said = await run("resume", imported["id"])
    assert (status, "peer:importer" in said) == (1, True), said
    assert (await run("resume", found["id"]))[0] == 0
    status, said = await run("resume", imported["id"], "--force")
    if os.geteuid() == 0:
        assert status == 0, said
    else:
        assert (status, "--force is for root" in said) == (78, True), said
        assert (await lift(site, imported["id"])).status == 204
    after = await (await certificate(site, key_line)).json()
    serial = ("revoke", "--serial", str(after["serial"]), "--reason", WHY)
    status, said = await run(*serial)
    assert (status, said.startswith("revoked, entry")) == (0, True), said
    status, said = await run(*serial)
    assert (status, "was revoked already" in said) == (0, True), said
    status, said = await run("revoke", "--serial", "999999", "--reason", WHY)
    assert (status, "nothing to revoke: " in said) == (1, True), said
    assert await revoked(site, after["certificate"], tmp_path)
    status, said = await run("suspend", "--iss", "https://x/", "--sub", "e", "--reason", WHY)
    assert (status, "iss:" in said) == (1, True), said


async def test_whoever_is_suspended_reads_whose_word_it_is(site: Any, key_line: str):
    """Reason and whose word, for anybody and for an administrator who wants to suspend others."""
    body = {"iss": site.issuer.url, "sub": "erin", "reason": WHY}
    ada = site.issuer.token("root-of-trust")
    assert (await site.post("/v1/holds", body, token=ada)).status == 201
    document = await problem(await certificate(site, key_line), 403, "suspended")
    assert document["detail"] == f"You are suspended here: {WHY} (by an administrator)."
    await held(site, sub="root-of-trust")
    document = await problem(await site.post("/v1/holds", body, token=ada), 403, "suspended")
    assert document["detail"] == f"You are suspended here: {WHY} (by the service importer)."


async def test_the_client_follows_the_list(site: Any, key_line: str):
    """What `headgate ssh` asks: the list travels when it has changed, and only then."""
    async with TokenTranslator(site.url) as client:
        before = await client.revocation_list()
        assert before is not None
        assert before.content.startswith(b"SSHKRL")
        assert await client.revocation_list(before.etag) is None
        assert (await certificate(site, key_line)).status == 201
        await held(site)
        after = await client.revocation_list(before.etag)
        assert after is not None
        assert after.etag != before.etag


async def test_no_certificate_slips_through(
    start: Any, issuer: Any, registry: Any, key_line: str, tmp_path: Path
):
    """At two replicas, at the very moment of the suspension: what is handed out is revoked."""
    registry.has("erin", "erin")
    under_way, signed = asyncio.Event(), itertools.count(1)

    async def ask(site: Any) -> list[str]:
        got = []
        async with asyncio.timeout(20):
            while (answer := await certificate(site, key_line)).status == 201:
                got.append((await answer.json())["certificate"])
                if next(signed) >= 40:
                    under_way.set()
        return got

    async with start(more(issuer)) as one, start(more(issuer)) as other:
        asking = [asyncio.create_task(ask(site)) for site in (one, other) for _ in range(4)]
        await asyncio.wait_for(under_way.wait(), 20)
        document = await held(one)
        assert document["revocation"] == "done"
        handed_out = [line for lines in await asyncio.gather(*asking) for line in lines]
        assert len(handed_out) >= 40
        krl = await (await one.client.get("/v1/krl")).read()
        assert await asyncio.to_thread(not_revoked, krl, handed_out, tmp_path) == []


def not_revoked(krl: bytes, lines: list[str], folder: Path) -> list[str]:
    """What ssh-keygen finds good of these certificates."""
    (folder / "krl").write_bytes(krl)
    files = [folder / f"cert{number}.pub" for number in range(len(lines))]
    for file, line in zip(files, lines, strict=True):
        file.write_text(line)
    argv = ["ssh-keygen", "-Q", "-f", str(folder / "krl"), *map(str, files)]
    ended = subprocess.run(argv, check=False, capture_output=True, text=True)
    said = ended.stdout.splitlines()
    assert len(said) == len(lines), ended.stderr
    return [line for line in said if not line.endswith("REVOKED")]
