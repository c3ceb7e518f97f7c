"""Authorization code with PKCE, rotation, exchange and step-up, as a client of IAM sees them."""

import base64
import hashlib
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import msgspec
import pytest
from yarl import URL

from headgate.clock import HeldClock
from headgate.oidc import IssuerSettings, TokenVerifier
from testbed.issuer.app import running
from testbed.issuer.authorize import CODE_GRANT
from testbed.issuer.core import Issuer
from testbed.issuer.directory import Client, User
from testbed.issuer.settings import IssuerSettings as Settings
from testbed.issuer.sign_in import MULTI, SINGLE
from testbed.issuer.token_endpoint import ACCESS_TOKEN, DEVICE_GRANT, EXCHANGE_GRANT

VERIFIER = "v" * 43
CHALLENGE = base64.urlsafe_b64encode(hashlib.sha256(VERIFIER.encode()).digest()).decode()
BACK = "http://127.0.0.1:4711/callback"
SETTINGS = Settings(
    state_dir="",
    users=(User(username="alice", groups=("hpc",)), User(username="bob")),
    clients=(
        Client(
            client_id="app",
            grants=(CODE_GRANT, DEVICE_GRANT, "refresh_token", EXCHANGE_GRANT),
            redirect_uris=("http://127.0.0.1/callback", "https://app.example.org/back"),
            reuse_refresh_tokens=False,
        ),
        Client(client_id="device"),
    ),
)


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    """A browser: it keeps cookies of an address without a name, too."""
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session:
        yield session


@pytest.fixture
async def issuer(clock: HeldClock) -> AsyncIterator[Issuer]:
    """The issuer with a client for browsers, listening."""
    async with running(SETTINGS, clock=clock) as listening:
        yield listening


def asked(**changes: str) -> dict[str, str]:
    """A good authorization request, with these changes."""
    return {
        "response_type": "code",
        "client_id": "app",
        "redirect_uri": BACK,
        "scope": "openid profile offline_access",
        "state": "s",
        "nonce": "n",
        "audience": "here there",
        "code_challenge": CHALLENGE.rstrip("="),
        "code_challenge_method": "S256",
        **changes,
    }


async def sign_in(
    session: aiohttp.ClientSession, issuer: Issuer, request: dict[str, str], **form: str
) -> tuple[int, dict[str, str]]:
    """Post the page's form as alice; the status and what the redirect carries."""
    body = {**request, "username": "alice", **form}
    async with session.post(issuer.url + "authorize", data=body, allow_redirects=False) as response:
        place = URL(response.headers.get("Location", ""))
        return response.status, dict(place.query)


async def token(
    session: aiohttp.ClientSession, issuer: Issuer, **form: str
) -> tuple[int, dict[str, Any]]:
    """Ask the token endpoint as the app."""
    async with session.post(issuer.url + "token", data={"client_id": "app", **form}) as response:
        return response.status, await response.json()


async def redeem(
    session: aiohttp.ClientSession, issuer: Issuer, code: str, /, **changes: str
) -> tuple[int, dict[str, Any]]:
    """Turn a code into tokens, with these changes."""
    form = {"redirect_uri": BACK, "code_verifier": VERIFIER, "code": code, **changes}
    return await token(session, issuer, grant_type=CODE_GRANT, **form)


async def test_a_code_becomes_tokens_that_our_services_accept(
    issuer: Issuer, session: aiohttp.ClientSession, clock: HeldClock
):
    """The page names the client; the redirect has state and issuer; the ID token has the nonce."""
    async with session.get(URL(issuer.url + "authorize").with_query(asked())) as page:
        assert "app wants to act for you" in await page.text()
    status, answer = await sign_in(session, issuer, asked())
    assert (status, answer["state"], answer["iss"]) == (302, "s", issuer.url)
    status, made = await redeem(session, issuer, answer["code"])
    assert status == 200
    trusted = [IssuerSettings(url=issuer.url)]
    verifier = TokenVerifier(issuers=trusted, audience="here", session=session, clock=clock)
    principal = await verifier.verify(made["access_token"])
    assert principal.audience == {"here", "there"}
    identity = issuer.tokens.keys.verify(made["id_token"])
    assert identity is not None
    assert (identity["aud"], identity["nonce"], identity["acr"]) == ("app", "n", SINGLE)
    assert identity["auth_time"] == int(clock.now().timestamp())


@pytest.mark.parametrize(
    "changes",
    [
        {"code_verifier": "w" * 43},
        {"code_verifier": ""},
        {"redirect_uri": "http://127.0.0.1:4712/callback"},
        {"client_id": "device"},
        {"code": "another"},
    ],
)
async def test_a_code_is_good_for_its_own_client_and_verifier_only(
    issuer: Issuer, session: aiohttp.ClientSession, changes: dict[str, str]
):
    """A stolen code is of no use without the verifier, from elsewhere, or by another client."""
    _, answer = await sign_in(session, issuer, asked())
    status, _ = await redeem(session, issuer, answer["code"], **changes)
    assert status == 400
    assert (await redeem(session, issuer, answer["code"]))[0] == 200


async def test_a_code_is_spent_once_and_soon(
    issuer: Issuer, session: aiohttp.ClientSession, clock: HeldClock
):
    """A second use ends what came of the first (RFC 6749, 4.1.2); a late one gives nothing."""
    _, answer = await sign_in(session, issuer, asked())
    _, made = await redeem(session, issuer, answer["code"])
    assert (await redeem(session, issuer, answer["code"]))[1] == {"error": "invalid_grant"}
    assert made["refresh_token"] not in issuer.refresh
    assert issuer.tokens.find(made["access_token"]) is None
    _, late = await sign_in(session, issuer, asked())
    clock.advance(61)
    assert (await redeem(session, issuer, late["code"]))[1] == {"error": "invalid_grant"}


@pytest.mark.parametrize(
    "changes",
    [
        {"code_challenge_method": "plain"},
        {"code_challenge_method": ""},
        {"code_challenge": ""},
        {"code_challenge": "short"},
    ],
)
async def test_only_s256_will_do(
    issuer: Issuer, session: aiohttp.ClientSession, changes: dict[str, str]
):
    """Without PKCE, or with its plain method, there is no code."""
    status, answer = await sign_in(session, issuer, asked(**changes))
    assert (status, answer["error"], answer["state"]) == (302, "invalid_request", "s")
    assert "code" not in answer


@pytest.mark.parametrize(
    ("redirect_uri", "good"),
    [
        ("http://127.0.0.1:1/callback", True),
        ("http://127.0.0.1:65535/callback", True),
        ("https://app.example.org/back", True),
        ("https://app.example.org:8443/back", False),
        ("http://127.0.0.1:1/other", False),
        ("https://127.0.0.1:1/callback", False),
        ("http://localhost:1/callback", False),
        ("http://127.0.0.1.evil.example/callback", False),
        ("http://evil@127.0.0.1:1/callback", False),
        ("http://127.0.0.1:x/callback", False),
        ("", False),
    ],
)
async def test_any_port_of_the_loopback_and_nothing_else(
    issuer: Issuer, session: aiohttp.ClientSession, redirect_uri: str, *, good: bool
):
    """RFC 8252, section 7.3: the port of a loopback redirect is free, all else is exact."""
    status, _ = await sign_in(session, issuer, asked(redirect_uri=redirect_uri))
    assert status == (302 if good else 400)


async def test_a_person_may_say_no(issuer: Issuer, session: aiohttp.ClientSession):
    """Denial reaches the client; an unknown or suspended person gets the page again."""
    assert (await sign_in(session, issuer, asked(), decision="deny"))[1]["error"] == "access_denied"
    assert (await sign_in(session, issuer, asked(), username="nobody"))[0] == 400
    issuer.directory.change("alice", active=False)
    assert (await sign_in(session, issuer, asked()))[0] == 403


async def test_a_refresh_token_rotates(issuer: Issuer, session: aiohttp.ClientSession):
    """Each use gives another one and ends the last; how the person signed in stays known."""
    _, answer = await sign_in(session, issuer, asked())
    _, made = await redeem(session, issuer, answer["code"])
    form = {"grant_type": "refresh_token", "refresh_token": made["refresh_token"]}
    status, renewed = await token(session, issuer, **form)
    assert status == 200
    assert renewed["refresh_token"] != made["refresh_token"]
    claims = issuer.tokens.keys.verify(renewed["access_token"])
    assert claims is not None
    assert claims["acr"] == SINGLE
    assert (await token(session, issuer, **form))[1] == {"error": "invalid_grant"}
    form["refresh_token"] = renewed["refresh_token"]
    assert (await token(session, issuer, **form))[0] == 200


async def test_exchange_gives_the_same_person_for_another_audience(
    issuer: Issuer, session: aiohttp.ClientSession
):
    """RFC 8693 as IAM has it: `act` names the client, `scope` is mandatory."""
    subject = issuer.mint("alice", client_id="app", audience=("here",)).token
    form = {
        "grant_type": EXCHANGE_GRANT,
        "subject_token": subject,
        "subject_token_type": ACCESS_TOKEN,
        "audience": "there",
        "scope": "openid profile",
    }
    status, made = await token(session, issuer, **form)
    assert (status, made["issued_token_type"]) == (200, ACCESS_TOKEN)
    claims = issuer.tokens.keys.verify(made["access_token"])
    assert claims is not None
    assert claims["sub"] == issuer.directory.user("alice").id
    assert (claims["aud"], claims["act"]) == ("there", {"sub": "app"})
    for wrong, error in (
        ({"scope": ""}, "invalid_request"),
        ({"subject_token": "x"}, "invalid_request"),
        ({"subject_token_type": "urn:x"}, "invalid_request"),
        ({"scope": "openid offline_access"}, "invalid_scope"),
        ({"scope": "scim:read"}, "invalid_scope"),
        ({"client_id": "device"}, "unauthorized_client"),
    ):
        assert (await token(session, issuer, **{**form, **wrong}))[1] == {"error": error}


async def test_step_up_is_honoured(
    issuer: Issuer, session: aiohttp.ClientSession, clock: HeldClock
):
    """Who is signed in goes through at once, unless more is asked: a factor, or freshness."""
    await sign_in(session, issuer, asked())

    async def again(**changes: str) -> tuple[int, dict[str, str]]:
        address = URL(issuer.url + "authorize").with_query(asked(**changes))
        async with session.get(address, allow_redirects=False) as response:
            return response.status, dict(URL(response.headers.get("Location", "")).query)

    clock.advance(100)
    assert (await again())[0] == 302
    assert (await again(max_age="100"))[0] == 302
    assert (await again(max_age="99"))[0] == 200
    assert (await again(prompt="login"))[0] == 200
    assert (await again(prompt="none", max_age="0"))[1]["error"] == "login_required"
    assert (await again(acr_values=MULTI))[0] == 200
    assert (await again(acr_values="urn:x"))[1]["error"] == "unmet_authentication_requirements"
    weak, _ = await sign_in(session, issuer, asked(acr_values=MULTI))
    assert weak == 403
    _, strong = await sign_in(session, issuer, asked(acr_values=MULTI), second_factor="yes")
    _, made = await redeem(session, issuer, strong["code"])
    claims = issuer.tokens.keys.verify(made["access_token"])
    assert claims is not None
    assert (claims["acr"], claims["auth_time"]) == (MULTI, int(clock.now().timestamp()))


async def test_the_device_page_asks_for_the_factor_too(
    issuer: Issuer, session: aiohttp.ClientSession
):
    """A device that wants more than a name gets it, or nothing."""
    form = {"client_id": "app", "scope": "openid", "acr_values": MULTI}
    async with session.post(issuer.url + "devicecode", data=form) as response:
        started = await response.json()
    page = {"user_code": started["user_code"], "username": "alice"}
    for more, status in (({}, 403), ({"second_factor": "yes"}, 200)):
        async with session.post(issuer.url + "device", data={**page, **more}) as response:
            assert response.status == status
    _, made = await token(
        session, issuer, grant_type=DEVICE_GRANT, device_code=started["device_code"]
    )
    claims = issuer.tokens.keys.verify(made["access_token"])
    assert claims is not None
    assert claims["acr"] == MULTI


async def test_an_issuer_of_one_audience(clock: HeldClock, session: aiohttp.ClientSession):
    """With `single_audience` only the first audience gets into a token, by every grant."""
    settings = msgspec.structs.replace(SETTINGS, single_audience=True)
    async with running(settings, clock=clock) as issuer:
        _, answer = await sign_in(session, issuer, asked())
        _, made = await redeem(session, issuer, answer["code"])
        claims = issuer.tokens.keys.verify(made["access_token"])
        assert claims is not None
        assert claims["aud"] == "here"
