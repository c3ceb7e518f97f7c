"""Groups and more that a token does not say: asked of its issuer, where a service needs them."""

from typing import Any

import pytest

from headgate.clock import HeldClock
from headgate.introspection import AWAY_SECONDS
from headgate.problems import Unavailable
from tests.unit.headgate_oidc.token_requests import MFA, Asked, Make, refused, server_error


async def test_groups_of_the_token(make: Make, asked: Asked, issuer: Any) -> None:
    """A token that says groups, though it be none, is believed; nobody is asked."""
    verifier = make(details=frozenset({"groups"}))
    for claims in ({"groups": ["a"]}, {"groups": []}, {"wlcg.groups": []}, {"entitlements": []}):
        await verifier.verify(issuer.token(**claims))
    assert asked.sent == []


async def test_groups_of_introspection(opaque: Make, asked: Asked, issuer: Any) -> None:
    """Where the token is silent its issuer's introspection is asked first, and only about that."""
    token = issuer.token(jti="of the token")
    asked.has(token, groups=["a"], acr=MFA, jti="of the answer", client_id="other")
    principal = await opaque(details=frozenset({"groups"})).verify(token)
    assert principal.groups == {"a"}
    assert (principal.token_id, principal.client_id, principal.acr) == ("of the token", "", "")
    assert [kind for kind, _, _ in asked.sent] == ["introspect"]


async def test_groups_of_userinfo(opaque: Make, make: Make, asked: Asked, issuer: Any) -> None:
    """Where introspection is silent too, or there is none, userinfo is asked."""
    token = issuer.token()
    asked.has(token)
    asked.userinfo[token] = (200, {"sub": "alice", "groups": ["a"], "email": "x"})
    for verifier in (make(details=frozenset({"groups"})), opaque(details=frozenset({"groups"}))):
        assert (await verifier.verify(token)).groups == {"a"}
    assert [kind for kind, _, _ in asked.sent] == ["userinfo", "introspect", "userinfo"]


async def test_groups_of_an_opaque_token(opaque: Make, asked: Asked) -> None:
    """Userinfo completes what introspection says of an opaque token."""
    asked.has("opaque", eduperson_assurance=["a"])
    asked.userinfo["opaque"] = (
        200,
        {"sub": "alice", "eduperson_entitlement": ["urn:x"], "eduperson_assurance": ["b"]},
    )
    principal = await opaque(details=frozenset({"groups", "assurance"})).verify("opaque")
    assert principal.entitlements == {"urn:x"}
    assert principal.assurance == {"a"}


async def test_nobody_is_asked_what_nobody_needs(make: Make, asked: Asked, issuer: Any) -> None:
    """A service whose rules look at no group costs the issuer no request."""
    await make().verify(issuer.token())
    assert asked.sent == []


async def test_groups_are_kept_no_longer_than_the_token_lives(
    make: Make, asked: Asked, issuer: Any, clock: HeldClock
) -> None:
    """One question per token and five minutes; an expired token is refused without one."""
    now = int(clock.now().timestamp())
    token, short = issuer.token(exp=now + 1000), issuer.token(exp=now + 100, jti="short")
    for one in (token, short):
        asked.userinfo[one] = (200, {"sub": "alice", "groups": ["a"]})
    verifier = make(details=frozenset({"groups"}))
    for one in (token, token, short):
        await verifier.verify(one)
    clock.advance(200)
    await refused(verifier, short, "expired")
    assert len(asked.sent) == 2
    clock.advance(101)
    asked.userinfo[token] = (200, {"sub": "alice", "groups": ["b"]})
    assert (await verifier.verify(token)).groups == {"b"}


@pytest.mark.parametrize("status", [401, 403])
async def test_tokens_that_userinfo_is_not_for(
    make: Make, asked: Asked, issuer: Any, status: int
) -> None:
    """A service's own token has no userinfo, and no groups by that."""
    token = issuer.token()
    asked.userinfo[token] = (status, {"error": "insufficient_scope"})
    assert (await make(details=frozenset({"groups"})).verify(token)).groups == frozenset()


async def test_userinfo_needs_the_scope_openid(make: Make, asked: Asked, issuer: Any) -> None:
    """A token that says its scopes, openid not among them, is not sent there in vain."""
    verifier = make(details=frozenset({"groups"}))
    await verifier.verify(issuer.token(scope="compute.read"))
    assert asked.sent == []
    await verifier.verify(issuer.token(scope="compute.read openid"))
    assert [kind for kind, _, _ in asked.sent] == ["userinfo"]


@pytest.mark.usefixtures("asked")
async def test_an_issuer_without_userinfo(make: Make, issuer: Any) -> None:
    """Where an issuer has no such endpoint a token without groups has none."""
    del issuer.discovery["userinfo_endpoint"]
    principal = await make(details=frozenset({"groups"})).verify(issuer.token())
    assert principal.groups == frozenset()


@pytest.mark.usefixtures("asked")
async def test_groups_that_cannot_be_asked_for(make: Make, issuer: Any, clock: HeldClock) -> None:
    """Unknown groups are not no groups, which could satisfy a wider rule: 503, asked again soon."""
    good = issuer.instead["/userinfo"]
    issuer.instead["/userinfo"] = server_error
    verifier = make(details=frozenset({"groups"}))
    token = issuer.token()
    with pytest.raises(Unavailable):
        await verifier.verify(token)
    assert await verifier.verify(issuer.token(groups=[]))
    issuer.instead["/userinfo"] = good
    clock.advance(AWAY_SECONDS + 1)
    assert await verifier.verify(token)


@pytest.mark.parametrize("sub", ["bob", None, ["alice"]])
async def test_userinfo_of_somebody_else(make: Make, asked: Asked, issuer: Any, sub: Any) -> None:
    """Another person's answer gives nobody groups (OpenID Connect Core, section 5.3.2)."""
    token = issuer.token()
    asked.userinfo[token] = (200, {"sub": sub, "groups": ["admins"]})
    await refused(make(details=frozenset({"groups"})), token, "somebody else")


async def test_introspection_of_somebody_else(opaque: Make, asked: Asked, issuer: Any) -> None:
    """An introspection that contradicts the signed token is believed in nothing."""
    token = issuer.token()
    asked.has(token, sub="bob", groups=["admins"])
    await refused(opaque(details=frozenset({"groups"})), token, "somebody else")


@pytest.mark.usefixtures("asked")
async def test_a_revoked_jwt(opaque: Make, issuer: Any) -> None:
    """A JWT that its issuer, once asked, calls inactive is refused, its signature aside."""
    await refused(opaque(details=frozenset({"groups"})), issuer.token(), "not valid")
