"""What a signed token claims: each claim is believed as far as it holds, or refused with words."""

from datetime import timedelta
from typing import Any

import pytest

from headgate.clock import HeldClock
from headgate.oidc import TokenVerifier
from headgate.problems import Problem
from tests.unit.headgate_oidc.token_requests import AUDIENCE, refused


async def test_two_clients(verifier: TokenVerifier, issuer: Any) -> None:
    """`client_id` and `azp` that contradict each other name nobody; equal ones do."""
    await refused(verifier, issuer.token(client_id="laptop", azp="orchestrator"), "two clients")
    assert (await verifier.verify(issuer.token(client_id="a", azp="a"))).client_id == "a"
    assert (await verifier.verify(issuer.token(azp="b"))).client_id == "b"


@pytest.mark.parametrize(
    ("age", "good"), [(0, True), (3660, True), (3661, False), (10**6, False), (None, False)]
)
async def test_the_age_of_tokens(
    make: Any, issuer: Any, clock: HeldClock, age: int | None, *, good: bool
) -> None:
    """A token older than the administrator wants is refused however long it would live."""
    verifier = make(max_token_age=3600)
    issued_at = None if age is None else int(clock.now().timestamp()) - age
    if good:
        assert await verifier.verify(issuer.token(iat=issued_at))
    else:
        await refused(verifier, issuer.token(iat=issued_at), "too old")


@pytest.mark.parametrize(
    "aud",
    [None, "", [], "https://other.example/", ["https://other.example/"], 1, {"a": AUDIENCE},
     AUDIENCE.rstrip("/"), AUDIENCE.upper(), f"{AUDIENCE} x", [[AUDIENCE]]],
)  # fmt: skip
async def test_audiences_of_others(verifier: TokenVerifier, issuer: Any, aud: Any) -> None:
    """A token for another service, or for none, is refused and told what to ask for."""
    await refused(verifier, issuer.token(aud=aud), "ask for the audience")


async def test_one_audience_of_several(verifier: TokenVerifier, issuer: Any) -> None:
    """A token for us among others is ours too."""
    assert await verifier.verify(issuer.token(aud=["https://other.example/", AUDIENCE]))


async def test_foreign_audiences_of_listed_clients(make: Any, issuer: Any) -> None:
    """A foreign or absent audience counts only together with a client listed for that issuer."""
    verifier = make(client_audiences={"orchestrator": ("https://other.example/", "")})
    for aud in ("https://other.example/", None):
        assert await verifier.verify(issuer.token(aud=aud, client_id="orchestrator"))
        await refused(verifier, issuer.token(aud=aud, client_id="somebody"))
        await refused(verifier, issuer.token(aud=aud))
    await refused(verifier, issuer.token(aud="https://third.example/", client_id="orchestrator"))


@pytest.mark.parametrize(
    "change",
    [
        lambda url: url.rstrip("/"),
        lambda url: url + "/",
        lambda url: url.replace("http://", "HTTP://"),
        lambda url: url.replace("http://", "http://user@"),
        lambda url: url + "#",
        lambda url: url + "?a=b",
        lambda url: url.replace("127.0.0.1", "127.0.0.\u0661"),
        lambda _: "https://i\u0430m.example/",
        lambda _: "https://IAM.example/",
        lambda _: None,
        lambda _: 1,
        lambda url: [url],
    ],
    ids=[
        "no-slash",
        "two-slashes",
        "scheme",
        "user",
        "fragment",
        "query",
        "digit",
        "idn-homograph",
        "host-case",
        "none",
        "number",
        "list",
    ],
)
async def test_issuers_that_look_alike(verifier: TokenVerifier, issuer: Any, change: Any) -> None:
    """The issuer is compared byte for byte, and nothing is asked of one that is not ours."""
    await refused(verifier, issuer.token(iss=change(issuer.url)), "not trusted")
    assert issuer.asked == []


async def test_nothing_is_fetched_for_a_stranger(
    verifier: TokenVerifier, issuer: Any, silent: str
) -> None:
    """An issuer that is not configured gets no request at all, whatever the token says."""
    await refused(verifier, issuer.token(iss=silent), "not trusted")
    await refused(verifier, issuer.token(iss=silent, header={"jku": f"{silent}jwk"}), "not trusted")


@pytest.mark.parametrize("sub", [None, "", 1, "s" * 256, "s" * 10_000, ["alice"], True])
async def test_subjects(verifier: TokenVerifier, issuer: Any, sub: Any) -> None:
    """A subject is a text of one to 255 characters (OpenID Connect Core, section 2)."""
    await refused(verifier, issuer.token(sub=sub), "subject")


@pytest.mark.parametrize("odd", ["\x00", "\x1b", "\n", "\x7f", "\x85"])
@pytest.mark.parametrize("around", ["{}erin", "er{}in", "erin{}"])
async def test_subjects_that_nobody_could_suspend(
    verifier: TokenVerifier, issuer: Any, odd: str, around: str
) -> None:
    """What no log, ledger and no order to suspend may hold signs in nowhere."""
    await refused(verifier, issuer.token(sub=around.format(odd)), "subject")


@pytest.mark.parametrize(
    "exp",
    [None, "soon", -1, 0, 1.5, True, [], 2**63, 1e300, -1e300, 253402300800, -(2**70), "99999"],
)  # fmt: skip
async def test_expiries(verifier: TokenVerifier, issuer: Any, exp: Any) -> None:
    """An expiry that is absent, past, no number or no moment is refused, never an error of ours."""
    await refused(verifier, issuer.token(exp=exp))


async def test_the_last_moment_there_is(verifier: TokenVerifier, issuer: Any) -> None:
    """The end of the calendar does not overflow."""
    assert await verifier.verify(issuer.token(exp=253402300799))


@pytest.mark.parametrize(("name", "offset", "good"), [
    ("exp", -59, True), ("exp", -60, False), ("exp", -61, False),
    ("nbf", 60, True), ("nbf", 61, False), ("iat", 60, True), ("iat", 61, False),
    ("nbf", -10**9, True),
])  # fmt: skip
async def test_clocks_may_differ_by_a_minute(
    verifier: TokenVerifier, issuer: Any, clock: HeldClock, name: str, offset: int, *, good: bool
) -> None:
    """Sixty seconds of skew, to the second."""
    token = issuer.token(**{name: int(clock.now().timestamp()) + offset})
    if good:
        assert await verifier.verify(token)
    else:
        await refused(verifier, token)


async def test_a_fractional_expiry(verifier: TokenVerifier, issuer: Any, clock: HeldClock) -> None:
    """NumericDate may be a fraction (RFC 7519, section 2): some issuers send one."""
    assert await verifier.verify(issuer.token(exp=clock.now().timestamp() + 1.5))


async def test_required_scopes(make: Any, issuer: Any) -> None:
    """A scope the administrator requires is named when it is missing; a part of it is not it."""
    verifier = make(required_scopes=("headgate.ssh",))
    assert await verifier.verify(issuer.token(scope="openid headgate.ssh"))
    with pytest.raises(Problem, match="scope headgate"):
        await verifier.verify(issuer.token(scope="headgate.ssh.x"))
    with pytest.raises(Problem, match="scope headgate"):
        await verifier.verify(issuer.token())


async def test_groups(verifier: TokenVerifier, issuer: Any) -> None:
    """WLCG's leading slash is dropped, IAM's groups are as they are; no text is split."""
    token = issuer.token(groups=["a", "b/c"], **{"wlcg.groups": ["/d", "/e/f"]})
    assert (await verifier.verify(token)).groups == {"a", "b/c", "d", "e/f"}


async def test_how_sure_the_issuer_is(
    verifier: TokenVerifier, issuer: Any, clock: HeldClock
) -> None:
    """The login's class and time, assurance and entitlements are read, one value or several."""
    now = int(clock.now().timestamp())
    token = issuer.token(
        acr="https://refeds.org/profile/mfa",
        auth_time=now - 30,
        eduperson_assurance="https://refeds.org/assurance",
        entitlements=["urn:a", "urn:b"],
        eduperson_entitlement=["urn:c"],
    )
    principal = await verifier.verify(token)
    assert principal.acr == "https://refeds.org/profile/mfa"
    assert principal.authenticated_at == clock.now() - timedelta(seconds=30)
    assert principal.assurance == {"https://refeds.org/assurance"}
    assert principal.entitlements == {"urn:a", "urn:b", "urn:c"}
    several = await verifier.verify(issuer.token(eduperson_assurance=["a", "b"]))
    assert several.assurance == {"a", "b"}


async def test_what_is_not_said_is_not_known(
    verifier: TokenVerifier, issuer: Any, clock: HeldClock
) -> None:
    """Without the claims, with other types, or with a login in the future, nothing is sure."""
    later = int(clock.now().timestamp()) + 61
    for claims in ({}, {"acr": ["a"], "auth_time": later, "eduperson_assurance": {"a": 1}}):
        principal = await verifier.verify(issuer.token(**claims))
        assert (principal.acr, principal.authenticated_at) == ("", None)
        assert principal.assurance == principal.entitlements == frozenset()


@pytest.mark.parametrize("groups", [1, {"a": 1}, [1, None, ["x"]], None, ""])
async def test_groups_that_are_none(verifier: TokenVerifier, issuer: Any, groups: Any) -> None:
    """What is no list of texts gives no group."""
    assert (await verifier.verify(issuer.token(groups=groups))).groups == frozenset()
