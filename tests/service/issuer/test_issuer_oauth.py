"""The issuer's OAuth endpoints, seen as a client sees INDIGO IAM."""

import aiohttp
import pytest

from headgate.clock import HeldClock
from headgate.oidc import IssuerSettings, TokenVerifier
from headgate.problems import Unauthenticated
from testbed.issuer.core import Issuer
from testbed.issuer.token_endpoint import DEVICE_GRANT

IMPORTER = {"Authorization": aiohttp.encode_basic_auth("importer", "s3")}


def verifier(issuer: Issuer, session: aiohttp.ClientSession, clock: HeldClock) -> TokenVerifier:
    """The services' own verifier, trusting this issuer for the audience `here`."""
    trusted = [IssuerSettings(url=issuer.url)]
    return TokenVerifier(issuers=trusted, audience="here", session=session, clock=clock)


async def device(session: aiohttp.ClientSession, issuer: Issuer, **extra: str) -> dict[str, str]:
    """Start a device flow; the answer."""
    form = {"client_id": "cli", "scope": "openid profile offline_access", **extra}
    async with session.post(issuer.url + "devicecode", data=form) as response:
        assert response.status == 200
        started: dict[str, str] = await response.json()
        return started


async def poll(
    session: aiohttp.ClientSession, issuer: Issuer, code: str
) -> tuple[int, dict[str, str]]:
    """Ask once for the token of a device code."""
    form = {"client_id": "cli", "grant_type": DEVICE_GRANT, "device_code": code}
    async with session.post(issuer.url + "token", data=form) as response:
        return response.status, await response.json()


async def decide(
    session: aiohttp.ClientSession, issuer: Issuer, code: str, decision: str = "approve"
) -> int:
    """Fill in the page's form as alice."""
    form = {"user_code": code, "username": "alice", "decision": decision}
    async with session.post(issuer.url + "device", data=form) as response:
        return response.status


async def test_discovery_names_the_issuer_with_a_slash_and_the_scim_endpoint(
    issuer: Issuer, session: aiohttp.ClientSession
) -> None:
    """Discovery shows IAM's issuer spelling and only endpoints that exist."""
    async with session.get(issuer.url + ".well-known/openid-configuration") as response:
        document = await response.json()
    assert document["issuer"] == issuer.url
    assert issuer.url.endswith("/")
    assert document["scim_endpoint"] == issuer.url + "scim"


async def test_device_flow_gives_a_token_our_services_accept(
    issuer: Issuer, session: aiohttp.ClientSession, clock: HeldClock
) -> None:
    """A device asks, waits, a person approves, and the token names user, client and audience."""
    started = await device(session, issuer, audience="here there")
    assert await poll(session, issuer, started["device_code"]) == (
        400,
        {"error": "authorization_pending"},
    )
    assert (await poll(session, issuer, started["device_code"]))[1] == {"error": "slow_down"}
    assert await decide(session, issuer, started["user_code"].lower().replace("-", " ")) == 200
    status, answer = await poll(session, issuer, started["device_code"])
    assert status == 200
    principal = await verifier(issuer, session, clock).verify(answer["access_token"])
    assert principal.identity.sub == issuer.directory.user("alice").id
    assert principal.client_id == "cli"
    assert principal.audience == {"here", "there"}
    assert principal.groups == frozenset()  # IAM's default profile has none
    again = await poll(session, issuer, started["device_code"])
    assert again == (400, {"error": "invalid_grant"})


async def test_device_flow_refusals(
    issuer: Issuer, session: aiohttp.ClientSession, clock: HeldClock
) -> None:
    """A denied and an expired request say so with RFC 8628's words."""
    denied = await device(session, issuer)
    assert await decide(session, issuer, denied["user_code"], "deny") == 200
    assert (await poll(session, issuer, denied["device_code"]))[1] == {"error": "access_denied"}
    late = await device(session, issuer)
    clock.advance(601)
    assert await decide(session, issuer, late["user_code"]) == 400
    assert (await poll(session, issuer, late["device_code"]))[1] == {"error": "expired_token"}


async def test_refresh_follows_the_user(issuer: Issuer, session: aiohttp.ClientSession) -> None:
    """A refresh token gives new access tokens until its user is suspended."""
    started = await device(session, issuer)
    await decide(session, issuer, started["user_code"])
    _, answer = await poll(session, issuer, started["device_code"])
    form = {
        "client_id": "cli",
        "grant_type": "refresh_token",
        "refresh_token": answer["refresh_token"],
    }
    async with session.post(issuer.url + "token", data=form) as response:
        assert response.status == 200
        assert (await response.json())["access_token"] != answer["access_token"]
    issuer.directory.change("alice", active=False)
    async with session.post(issuer.url + "token", data=form) as response:
        assert (await response.json()) == {"error": "invalid_grant"}


async def test_introspection_and_userinfo_carry_the_groups(
    issuer: Issuer, session: aiohttp.ClientSession
) -> None:
    """Groups come from introspection and userinfo, as with IAM's default profile."""
    token = issuer.mint("alice").token
    async with session.post(
        issuer.url + "introspect", data={"token": token}, headers=IMPORTER
    ) as response:
        seen = await response.json()
    assert seen["active"]
    assert seen["groups"] == ["hpc", "gpu"]
    assert seen["scope"] == "profile"  # the caller is not registered for the others
    headers = {"Authorization": f"Bearer {token}"}
    async with session.get(issuer.url + "userinfo", headers=headers) as response:
        about = await response.json()
    assert about["preferred_username"] == "alice"
    assert about["groups"] == ["hpc", "gpu"]
    async with session.post(issuer.url + "introspect", data={"token": token}) as response:
        assert response.status == 401


async def test_a_revoked_or_expired_token_is_inactive(
    issuer: Issuer, session: aiohttp.ClientSession, clock: HeldClock
) -> None:
    """Introspection knows revocation and expiry; only the token's own client can revoke."""
    token = issuer.mint("alice", client_id="cli").token
    for client, active in (("importer", True), ("cli", False)):
        form = {"token": token, "client_id": client, "client_secret": "s3" * (client != "cli")}
        async with session.post(issuer.url + "revoke", data=form) as response:
            assert response.status == 200
        assert (issuer.tokens.find(token) is not None) is active
    other = issuer.mint("bob").token
    clock.advance(3600)
    assert issuer.tokens.find(other) is None


async def test_rotation_keeps_old_tokens_valid_until_the_key_is_retired(
    issuer: Issuer, session: aiohttp.ClientSession, clock: HeldClock
) -> None:
    """Both keys are published after a rotation; a retired key's tokens are refused."""
    before = issuer.mint("alice", audience=("here",)).token
    old = issuer.tokens.keys.signing.kid
    issuer.tokens.keys.rotate()
    after = issuer.mint("alice", audience=("here",)).token
    ours = verifier(issuer, session, clock)
    assert (await ours.verify(before)).token_id != (await ours.verify(after)).token_id
    issuer.tokens.keys.retire(str(old))
    with pytest.raises(Unauthenticated):
        await verifier(issuer, session, clock).verify(before)


async def test_wlcg_profile_spells_groups_with_a_slash(
    issuer: Issuer, session: aiohttp.ClientSession, clock: HeldClock
) -> None:
    """A client that asks for the wlcg scope gets the WLCG profile."""
    token = issuer.mint("alice", scopes=("wlcg", "wlcg.groups"), audience=("here",)).token
    assert (issuer.tokens.keys.verify(token) or {})["wlcg.groups"] == ["/hpc", "/gpu"]
    assert (await verifier(issuer, session, clock).verify(token)).groups == {"hpc", "gpu"}


async def test_control_routes_ask_for_the_secret(
    issuer: Issuer, session: aiohttp.ClientSession
) -> None:
    """Nobody mints a token or changes a user without the control secret."""
    for header in ({}, {"Authorization": "Bearer wrong"}):
        async with session.post(
            issuer.url + "control/token", json={"user": "alice"}, headers=header
        ) as response:
            assert response.status == 401
