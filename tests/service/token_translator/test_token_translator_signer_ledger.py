"""The ledger around the signer's process: revoking, searching, erasing, replicas."""

import asyncio
import contextlib
import json
from typing import Any

import pytest

from headgate.problems import Forbidden, Invalid, Unavailable
from testbed.postgresql import Postgresql
from testbed.waiting import until
from tests.service.token_translator.signer_requests import (
    ALICE,
    ISSUER,
    connected,
    listed,
    run,
    sign,
    subject,
    verified,
)
from token_translator.signer_client import SignerClient


async def found(signer: Any, *options: str) -> list[dict[str, Any]]:
    """What `ledger search` finds."""
    done = await run(signer, "ledger search", "--json", *options)
    assert not done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


async def test_revoking_over_the_wire(make_signer: Any) -> None:
    """By serial and by identity: written first, listed from then on, final."""
    signer = await asyncio.to_thread(make_signer)
    async with connected(signer) as client:
        serials = [(await sign(client, sub)).serial for sub in ("alice", "bob", "alice")]
        assert await client.revoked()
        by = "admin:https://iam.example/#carol"
        one = await client.revoke(reason="lost laptop", by=by, serials=(serials[1], 999))
        assert one.serials == (serials[1],)
        all_of_alice = await client.revoke(reason="suspended", by="peer:accounts", identity=ALICE)
        assert all_of_alice.serials == (serials[0], serials[2])
        now = await listed(client)
        assert now.serials == ((serials[0], serials[2]),)
        assert now.version == all_of_alice.version > one.version
        live = await client.live(ALICE)
        assert [(each.serial, each.revoked) for each in live] == [
            (serials[2], True),
            (serials[0], True),
        ]
        again = await sign(client)
        assert (await client.live(ALICE))[0].revoked is False
        assert again.serial > serials[2]
    entries = await found(signer, "--serial", str(serials[1]))
    assert [entry["kind"] for entry in entries] == ["issued", "revoked"]
    assert entries[1]["by"] == {"iss": ISSUER, "sub": "carol"}
    assert entries[1]["personal"]["reason"] == "lost laptop"


async def test_what_cannot_be_revoked(make_signer: Any) -> None:
    """An authority in use is refused; nonsense does not reach the signer."""
    signer = await asyncio.to_thread(make_signer)
    async with connected(signer) as client:
        known = json.loads((await run(signer, "authorities", "--json")).stdout.splitlines()[0])
        with pytest.raises(Forbidden, match="in use"):
            await client.revoke(reason="x", by="peer:x", authority=known["fingerprint"])
        for nonsense in (
            {"serials": (0,)},
            {"serials": (2**63,)},
            {"serials": tuple(range(1, 3000))},
            {"keys": ("MD5:aa",)},
            {"authority": "all"},
        ):
            with pytest.raises(Invalid):
                await client.revoke(reason="x", by="peer:x", **nonsense)
        assert (await listed(client)).version == 0


async def test_a_key_is_revoked(make_signer: Any) -> None:
    """A key's fingerprint is listed, and found again."""
    signer = await asyncio.to_thread(make_signer)
    name = "SHA256:" + "k" * 43
    async with connected(signer) as client:
        await client.revoke(reason="stolen", by="peer:tokens", keys=(name,))
        assert (await listed(client)).keys == (name,)
    assert [entry["keys"] for entry in await found(signer, "--key", name)] == [[name]]


async def test_refusals_by_policy(make_signer: Any) -> None:
    """What the policy refused is in the ledger, with its code."""
    signer = await asyncio.to_thread(make_signer)
    async with connected(signer) as client:
        await client.refuse(subject("mallory"), "no_rule")
    (entry,) = await found(signer, "--user", ISSUER, "mallory")
    assert (entry["kind"], entry["code"]) == ("refused", "no_rule")
    assert entry["personal"]["realm"] == "site1"


async def test_the_commands(make_signer: Any) -> None:
    """Search by user, revoke, erase and retain on the host, while the signer runs."""
    signer = await asyncio.to_thread(make_signer)
    async with connected(signer) as client:
        first = (await sign(client)).serial
        await sign(client, "bob")
        (entry,) = await found(signer, "--user", ISSUER, "alice")
        assert (entry["serial"], entry["personal"]["account"]) == (first, "alice")
        erase = ("ledger erase", "--user", ISSUER, "alice")
        refused = await run(signer, *erase)
        assert refused.returncode == 1
        assert "neither expired nor been revoked" in refused.stdout
        revoke = ("revoke", "--user", ISSUER, "alice", "--reason", "left", "--json")
        done = await run(signer, *revoke)
        assert json.loads(done.stdout)["serials"] == [first]
        assert (await listed(client)).serials == ((first, first),)
        assert (await run(signer, *erase)).returncode == 0
        assert await found(signer, "--user", ISSUER, "alice") == []
        (again,) = (entry for entry in await found(signer) if entry["serial"] == first)
        assert again["personal"] is None
        assert (await sign(client, "alice")).serial > first
        retained = json.loads((await run(signer, "ledger retain", "--json")).stdout)
        assert retained["entries"] == 0
    lines = (await run(signer, "ledger search")).stdout
    assert f" issued {first} (erased) " in lines
    assert " erased - " in lines
    await verified(signer)


async def signing_until_killed(client: SignerClient, answered: list[int]) -> None:
    """Sign for ever; what was answered is noted."""
    while True:
        answered.append((await sign(client)).serial)


@pytest.mark.site  # postgresql
async def test_two_signers_on_one_database(make_signer: Any, postgresql: Postgresql) -> None:
    """Two replicas sign 1 000 at once and one is killed: serials are unique, the chain is whole."""
    urls = {
        name: f'"{await asyncio.to_thread(postgresql.create_database)}"'
        for name in ("ledger", "persons")
    }
    first = await asyncio.to_thread(make_signer, urls, per_minute=100000)
    keys = {name: f'["{first.folder}/{name}"]' for name in ("user_ca", "host_ca")} | {
        "index_key": f'"{first.folder}/index.key"'
    }
    own = {"position": f'"{first.folder}/second.position"'}
    second = await asyncio.to_thread(
        make_signer, {**urls, **keys, **own}, None, "second", per_minute=100000
    )
    async with connected(first) as one, connected(second) as two:
        both = [sign(client, f"user{n % 7}") for n in range(500) for client in (one, two)]
        answered = [answer.serial for answer in await asyncio.gather(*both)]
        assert len(set(answered)) == 1000
        tasks = [
            asyncio.create_task(signing_until_killed(client, answered))
            for client in (one, two)
            for _ in range(8)
        ]
        await until(lambda: len(answered) > 1200, seconds=60)
        await asyncio.to_thread(second.kill)
        reached = len(answered)
        await until(lambda: len(answered) > reached + 100, seconds=60)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.to_thread(second.start)
        answered.append((await sign(two)).serial)
    assert len(set(answered)) == len(answered)
    entries = await found(first)
    issued = {entry["serial"] for entry in entries if entry["kind"] == "issued"}
    assert set(answered) <= issued
    for signer in (first, second):
        assert (await verified(signer))["entries_until"] == len(entries)


@pytest.mark.site  # postgresql
async def test_a_database_that_goes_away(make_signer: Any, postgresql: Postgresql) -> None:
    """Without its database the signer refuses, and signs again once it is back."""
    urls = {
        name: f'"{await asyncio.to_thread(postgresql.create_database)}"'
        for name in ("ledger", "persons")
    }
    signer = await asyncio.to_thread(make_signer, urls)
    async with connected(signer) as client:
        first = (await sign(client)).serial
        await postgresql.kill()
        with pytest.raises(Unavailable):
            await sign(client)
        with pytest.raises(Unavailable):
            await client.revoked()
        await postgresql.start()
        last = 0
        for _ in range(5):  # connections that broke are noticed one by one
            with contextlib.suppress(Unavailable):
                last = (await sign(client)).serial
        assert last > first
    await verified(signer)
