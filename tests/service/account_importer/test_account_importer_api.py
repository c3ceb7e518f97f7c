"""The registry's HTTP face, asked by peers."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from joserfc import jwk

from account_importer.api import Registry, create_app
from account_importer.store import Store
from headgate.clock import HeldClock
from headgate.peers import HEADER, PeerSettings, PeerSigner, PeerVerifier
from headgate.service import ListenSettings, listening

KEYS = {name: jwk.OKPKey.generate_key("Ed25519") for name in ("gateway", "nosy", "stranger")}
AUDIENCE = "http://accounts"


@pytest.fixture
async def address(site: Any) -> AsyncIterator[str]:
    """The served registry's address."""
    peers = [
        PeerSettings(
            instance=name,
            keys=({k: str(v) for k, v in KEYS[name].as_dict(private=False).items()},),
            verbs=frozenset(verbs),
        )
        for name, verbs in (("gateway", ["registry.read"]), ("nosy", ["other"]))
    ]
    registry = Registry(
        store=site.store(),
        peers=PeerVerifier(peers=peers, audience=AUDIENCE, clock=site.clock),
        clock=site.clock,
        realm="r",
        how_to_ask="Ask the service desk.",
    )
    async with listening(create_app(registry), ListenSettings()) as address:
        yield address


async def ask(site: Any, address: str, user: str, **changes: str) -> tuple[int, dict[str, Any]]:
    """What the gateway hears about a user; `peer`, `realm` and others may be changed."""
    peer = changes.pop("peer", "gateway")
    signer = PeerSigner(instance=peer, key=KEYS[peer], clock=site.clock)
    sub = site.issuer.directory.user(user).id
    query = {"iss": site.issuer.url, "sub": sub, "realm": "r", **changes}
    async with site.session.get(
        address + "/v1/accounts", params=query, headers=signer.headers(AUDIENCE)
    ) as response:
        return response.status, await response.json(content_type=None)


async def test_an_account_from_unknown_over_pending_to_active_and_blocked(
    site: Any, address: str
) -> None:
    """Every state of an identity has its answer, and each change its version."""
    status, problem = await ask(site, address, "alice")
    assert (status, problem["code"]) == (404, "account_unknown")
    assert problem["how_to_ask"] == "Ask the service desk."
    await site.importer().pull()
    site.clock.advance(30)
    waits = []
    for step in ("plan", "approve", "apply"):
        status, problem = await ask(site, address, "alice")
        assert (status, problem["code"]) == (404, "account_pending")
        assert problem["requested_at"] == "2026-01-01T00:00:00Z"
        waits.append(problem["waiting_for"])
        found = await site.importer().plan()
        if step == "approve":
            await site.importer().approve(found.plan.digest, "ada")
    assert len(set(waits)) == 3
    await site.importer().apply()
    status, account = await ask(site, address, "alice")
    assert (status, account) == (
        200,
        {
            "iss": site.issuer.url,
            "sub": site.issuer.directory.user("alice").id,
            "realm": "r",
            "account": "alice",
            "uid": 20000,
            "gid": 20000,
            "home": "/home/alice",
            "state": "active",
            "version": 1,
        },
    )
    site.issuer.directory.change("alice", active=False)
    await site.importer().pull()
    status, account = await ask(site, address, "alice")
    assert (account["state"], account["reason"], account["version"]) == ("blocked", "inactive", 2)
    status, problem = await ask(site, address, "dave")
    assert (status, problem["code"]) == (404, "account_unknown")


async def test_a_refused_name_waits_for_a_decision(site: Any, address: str) -> None:
    """The person hears that the name is the matter, and not whose it is."""
    bob = site.issuer.directory.user("bob")
    site.machine.groups["bob"] = 500
    await site.settle()
    status, problem = await ask(site, address, bob.username)
    assert (status, problem["code"]) == (404, "account_pending")
    assert "decide about the account's name" in problem["waiting_for"]


async def test_an_end_date_passes_without_a_pull(site: Any, address: str) -> None:
    """A user whose endTime has come is blocked at that moment."""
    end = "2026-01-01T01:00:00+00:00"
    site.issuer.directory.change("alice", end_time=site.clock.now().fromisoformat(end))
    await site.settle()
    assert (await ask(site, address, "alice"))[1]["state"] == "active"
    site.clock.advance(3600)
    _, account = await ask(site, address, "alice")
    assert (account["state"], account["reason"]) == ("blocked", "expired")


async def test_only_peers_with_the_verb_are_answered(site: Any, address: str) -> None:
    """No header, an unknown service and one without the verb learn nothing."""
    await site.settle()
    async with site.session.get(address + "/v1/accounts") as response:
        assert response.status == 401
    status, problem = await ask(site, address, "alice", peer="stranger")
    assert (status, problem["code"]) == (401, "peer")
    status, problem = await ask(site, address, "alice", peer="nosy")
    assert (status, problem["code"]) == (403, "peer_verb")
    signer = PeerSigner(instance="gateway", key=KEYS["gateway"], clock=site.clock)
    headers = {HEADER: signer.headers(AUDIENCE)[HEADER]}
    for expected in (400, 401):  # the second time the header was used before
        async with site.session.get(address + "/v1/accounts", headers=headers) as response:
            assert response.status == expected


async def test_bad_questions_are_problems(site: Any, address: str) -> None:
    """Missing parameters are all named; another realm is not found."""
    status, problem = await ask(site, address, "alice", iss="", sub="")
    assert status == 400
    assert [error["pointer"] for error in problem["errors"]] == ["/iss", "/sub"]
    status, problem = await ask(site, address, "alice", realm="other")
    assert (status, problem["code"]) == (404, "realm_unknown")


async def test_health(site: Any, address: str) -> None:
    """Alive without dependencies; ready with its database."""
    for path in ("/livez", "/readyz?verbose"):
        async with site.session.get(address + path) as response:
            assert response.status == 200
    assert isinstance(site.session, aiohttp.ClientSession)


async def test_a_registry_without_its_database_says_when_to_come_back(
    session: aiohttp.ClientSession, clock: HeldClock, tmp_path: Path
) -> None:
    """A database that is away is 503 with Retry-After for peers, and not ready."""
    store = Store(f"sqlite+aiosqlite:///{tmp_path}/nowhere/accounts.db")
    key = {k: str(v) for k, v in KEYS["gateway"].as_dict(private=False).items()}
    peer = PeerSettings(instance="gateway", keys=(key,), verbs=frozenset({"registry.read"}))
    verifier = PeerVerifier(peers=[peer], audience=AUDIENCE, clock=clock)
    app = create_app(Registry(store, verifier, clock, "r", "Ask."))
    signer = PeerSigner(instance="gateway", key=KEYS["gateway"], clock=clock)
    query = {"iss": "i", "sub": "s", "realm": "r"}
    async with listening(app, ListenSettings()) as address:
        async with session.get(
            address + "/v1/accounts", params=query, headers=signer.headers(AUDIENCE)
        ) as response:
            assert (response.status, response.headers["Retry-After"]) == (503, "5")
        async with session.get(address + "/readyz") as response:
            assert response.status == 503
    await store.close()


async def test_whose_an_account_is(site: Any, address: str) -> None:
    """An account's name leads to the identity, for an administrator who has nothing else."""
    await site.settle()

    async def named(account: str, peer: str = "gateway", realm: str = "r") -> tuple[int, Any]:
        signer = PeerSigner(instance=peer, key=KEYS[peer], clock=site.clock)
        async with site.session.get(
            f"{address}/v1/accounts/by-name/{account}",
            params={"realm": realm},
            headers=signer.headers(AUDIENCE),
        ) as response:
            return response.status, await response.json(content_type=None)

    status, found = await named("alice")
    assert status == 200
    [account] = found["accounts"]
    assert (account["iss"], account["account"]) == (site.issuer.url, "alice")
    assert account["sub"] == site.issuer.directory.user("alice").id
    assert await named("nobody-here") == (200, {"accounts": []})
    assert (await named("alice", peer="nosy"))[0] == 403
    assert (await named("alice", realm="x"))[0] == 404
