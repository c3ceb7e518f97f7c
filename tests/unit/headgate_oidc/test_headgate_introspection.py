"""Opaque tokens: asked of one issuer, and what it answered is kept for a short while."""

import asyncio
import base64
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from headgate.clock import HeldClock
from headgate.identity import Identity
from headgate.introspection import AWAY_SECONDS, INACTIVE_SECONDS, MAX_ANSWERS, STRIPES
from headgate.oidc import IssuerSettings, check_issuers
from headgate.problems import Unauthenticated, Unavailable
from headgate.settings import SettingsError
from tests.unit.headgate_oidc.token_requests import (
    AUDIENCE,
    MFA,
    Asked,
    Make,
    client_refused,
    html,
    refused,
    server_error,
)

DISCOVERY = "/.well-known/openid-configuration"


async def test_an_opaque_token(opaque: Make, asked: Asked, issuer: Any, clock: HeldClock) -> None:
    """An active token becomes a principal as a JWT would; our client authenticates itself."""
    asked.has(
        "opaque",
        iss=issuer.url,
        client_id="cli",
        scope="a b",
        groups=["/hpc"],
        acr=MFA,
        auth_time=int(clock.now().timestamp()),
        token_type="bearer",
        jti="j",
    )
    principal = await opaque().verify("opaque")
    assert principal.identity == Identity(issuer.url, "alice")
    assert (principal.client_id, principal.token_id, principal.acr) == ("cli", "j", MFA)
    assert (principal.groups, principal.scopes) == ({"hpc"}, {"a", "b"})
    assert principal.authenticated_at == clock.now()
    ((_, token, authorization),) = asked.sent
    assert token == "opaque"
    name, _, secret = base64.b64decode(authorization.removeprefix("Basic ")).partition(b":")
    assert (name, secret) == (b"head%20gate", b"s3cret%3A%2F%C3%BC")


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        pytest.param({"active": False}, "not valid", id="active false"),
        pytest.param({"active": None}, "not valid", id="active missing"),
        pytest.param({"active": "true"}, "not valid", id="active a string"),
        pytest.param({"active": 1}, "not valid", id="active a number"),
        pytest.param({"sub": None}, "subject", id="missing sub"),
        pytest.param({"sub": ""}, "subject", id="empty sub"),
        pytest.param({"sub": 7}, "subject", id="sub a number"),
        pytest.param({"iss": "https://other.example/"}, "not trusted", id="other iss"),
        pytest.param({"iss": ["x"]}, "not trusted", id="iss a list"),
        pytest.param({"exp": None}, "no expiry", id="exp missing"),
        pytest.param({"exp": "1999999999"}, "not a number", id="exp a string"),
        pytest.param({"exp": 2**63}, "out of range", id="exp too large"),
        pytest.param({"exp": 1.5}, "expired", id="exp past"),
        pytest.param({"nbf": 2**33}, "not valid yet", id="nbf in the future"),
        pytest.param({"iat": 2**33}, "not valid yet", id="iat in the future"),
        pytest.param({"aud": "https://other.example/"}, "another service", id="other aud"),
        pytest.param({"aud": None}, "another service", id="missing aud"),
        pytest.param({"token_type": "refresh_token"}, "bearer", id="a refresh token"),
        pytest.param({"token_type": "DPoP"}, "bearer", id="a DPoP token"),
        pytest.param({"cnf": {"jkt": "x"}}, "bound to a key", id="bound to a key"),
        pytest.param({"typ": "Refresh"}, "not an access token", id="typ of a refresh token"),
        pytest.param({"client_id": "a", "azp": "b"}, "two clients", id="two clients"),
    ],
)
async def test_answers_that_are_no(
    opaque: Make, asked: Asked, answer: dict[str, Any], words: str
) -> None:
    """Whatever is not an active, unexpired bearer token of this issuer for us is a 401."""
    asked.has("opaque", **answer)
    await refused(opaque(), "opaque", words)


@pytest.mark.parametrize("aud", [f"https://x/ {AUDIENCE}", ["https://x/", AUDIENCE], AUDIENCE])
async def test_audiences_in_answers(opaque: Make, asked: Asked, aud: Any) -> None:
    """One audience, a list, or several joined by spaces as INDIGO IAM does."""
    asked.has("opaque", aud=aud)
    assert await opaque().verify("opaque")


async def test_a_fractional_expiry(opaque: Make, asked: Asked, clock: HeldClock) -> None:
    """Some servers send a float."""
    asked.has("opaque", exp=clock.now().timestamp() + 9.5)
    assert await opaque().verify("opaque")


async def test_an_answer_is_not_used_past_the_tokens_expiry(
    opaque: Make, asked: Asked, clock: HeldClock
) -> None:
    """An answer that is kept does not let an expired token live on."""
    asked.has("opaque", exp=int(clock.now().timestamp()) + 20)
    verifier = opaque(cache_seconds=300)
    await verifier.verify("opaque")
    clock.advance(81)  # with the minute that clocks may be apart
    await refused(verifier, "opaque", "expired")
    assert len(asked.sent) == 1


async def test_revoked_within_the_cache_ttl(opaque: Make, asked: Asked, clock: HeldClock) -> None:
    """A revoked token is refused as soon as its answer is old, and not a second later."""
    asked.has("opaque")
    verifier = opaque(cache_seconds=60)
    await verifier.verify("opaque")
    asked.about.clear()
    clock.advance(59)
    assert await verifier.verify("opaque")
    clock.advance(2)
    await refused(verifier, "opaque", "not valid")


async def test_nothing_is_kept_where_that_is_wanted(opaque: Make, asked: Asked) -> None:
    """With `cache_seconds = 0` every request asks anew."""
    asked.has("opaque")
    verifier = opaque(cache_seconds=0)
    await verifier.verify("opaque")
    asked.about.clear()
    await refused(verifier, "opaque")


async def test_a_token_that_becomes_active(opaque: Make, asked: Asked, clock: HeldClock) -> None:
    """That a token is not active is kept for seconds only."""
    verifier = opaque()
    for _ in range(3):
        await refused(verifier, "opaque")
    assert len(asked.sent) == 1
    asked.has("opaque")
    clock.advance(INACTIVE_SECONDS + 1)
    assert await verifier.verify("opaque")


async def test_many_at_once_ask_once(opaque: Make, asked: Asked) -> None:
    """A hundred requests with one token cost one question."""
    asked.has("opaque")
    verifier = opaque()
    await asyncio.gather(*(verifier.verify("opaque") for _ in range(100)))
    assert len(asked.sent) == 1


@pytest.mark.usefixtures("asked")
async def test_made_up_tokens_are_no_amplifier(opaque: Make, issuer: Any) -> None:
    """However many strangers' tokens come at once, few are asked about at a time."""
    now, most = 0, 0

    async def slow(request: web.Request) -> web.StreamResponse:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await request.post()
        now -= 1
        return web.json_response({"active": False})

    issuer.instead["/introspect"] = slow
    verifier = opaque()
    ended = await asyncio.gather(
        *(verifier.verify(f"made-up-{n}") for n in range(300)), return_exceptions=True
    )
    assert all(isinstance(end, Unauthenticated) for end in ended)
    assert most <= STRIPES


@pytest.mark.usefixtures("asked")
async def test_what_is_kept_is_bounded(opaque: Make) -> None:
    """Made-up tokens do not fill the memory."""
    verifier = opaque()
    (inquiry,) = verifier._inquiry.values()

    async def ask() -> tuple[None, float]:
        return None, 60.0

    for number in range(MAX_ANSWERS + 10):
        await inquiry._introspected.get(str(number), ask)
    assert len(inquiry._introspected._kept) == MAX_ANSWERS


async def listed(_: web.Request) -> web.StreamResponse:
    """JSON of another shape."""
    return web.json_response([{"active": True}])


async def huge(_: web.Request) -> web.StreamResponse:
    """Two megabytes."""
    return web.json_response({"active": True, "sub": "x" * 2_000_000})


@pytest.mark.parametrize("answer", [server_error, client_refused, html, listed, huge])
async def test_an_issuer_that_does_not_answer(
    opaque: Make, asked: Asked, issuer: Any, clock: HeldClock, answer: Any
) -> None:
    """Neither yes nor no: 503 with Retry-After, and it is asked again soon."""
    good = issuer.instead["/introspect"]
    issuer.instead["/introspect"] = answer
    verifier = opaque()
    with pytest.raises(Unavailable) as caught:
        await verifier.verify("opaque")
    assert caught.value.retry_after
    issuer.instead["/introspect"] = good
    asked.has("opaque")
    clock.advance(AWAY_SECONDS + 1)
    assert await verifier.verify("opaque")


@pytest.mark.parametrize("status", [400, 404, 413, 431])
async def test_a_token_that_the_issuer_will_not_read(
    opaque: Make, asked: Asked, issuer: Any, status: int
) -> None:
    """It is refused, and whoever comes next is asked about as ever."""
    good = issuer.instead["/introspect"]

    async def refusing(_: web.Request) -> web.StreamResponse:
        return web.Response(status=status)

    issuer.instead["/introspect"] = refusing
    verifier = opaque()
    await refused(verifier, "poison", "not valid")
    issuer.instead["/introspect"] = good
    asked.has("opaque")
    assert await verifier.verify("opaque")


@pytest.mark.usefixtures("asked")
@pytest.mark.parametrize("status", [408, 429, 502])
async def test_an_issuer_that_has_too_much_to_do(opaque: Make, issuer: Any, status: int) -> None:
    """What says nothing about the token refuses nobody for good, and the issuer gets a rest."""
    times = 0

    async def busy(_: web.Request) -> web.StreamResponse:
        nonlocal times
        times += 1
        return web.Response(status=status)

    issuer.instead["/introspect"] = busy
    verifier = opaque()
    for token in ("opaque", "another"):
        with pytest.raises(Unavailable):
            await verifier.verify(token)
    assert times == 1


@pytest.mark.usefixtures("asked")
async def test_an_issuer_that_is_slow(
    opaque: Make, issuer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer that does not come in time is none, and the next request fails fast."""
    import aiohttp  # noqa: PLC0415 - only here

    monkeypatch.setattr("headgate.introspection.FETCH_TIMEOUT", aiohttp.ClientTimeout(total=0.2))
    ended, times = asyncio.Event(), 0

    async def silence(_: web.Request) -> web.StreamResponse:
        nonlocal times
        times += 1
        await ended.wait()
        return web.json_response({"active": True})

    issuer.instead["/introspect"] = silence
    verifier = opaque()
    for token in ("opaque", "opaque", "another"):
        with pytest.raises(Unavailable):
            await verifier.verify(token)
    assert times == 1
    ended.set()


async def test_an_issuer_that_is_down_at_start(
    opaque: Make, asked: Asked, issuer: Any, clock: HeldClock
) -> None:
    """503 until its documents can be had, and no lasting harm."""
    issuer.instead[DISCOVERY] = server_error
    asked.has("opaque")
    verifier = opaque()
    with pytest.raises(Unavailable):
        await verifier.verify("opaque")
    del issuer.instead[DISCOVERY]
    clock.advance(2)
    assert await verifier.verify("opaque")


@pytest.mark.usefixtures("asked")
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirections_are_not_followed(
    opaque: Make, issuer: Any, silent: str, status: int
) -> None:
    """A token and our secret go where the issuer is, and are sent on to nobody."""

    async def away(_: web.Request) -> web.StreamResponse:
        return web.Response(status=status, headers={"Location": f"{silent}x"})

    issuer.instead["/introspect"] = away
    with pytest.raises(Unavailable):
        await opaque().verify("opaque")


@pytest.mark.usefixtures("asked")
@pytest.mark.parametrize("endpoint", ["elsewhere", "file:///etc/passwd", "", None, 7, "missing"])
async def test_endpoints_elsewhere(opaque: Make, issuer: Any, silent: str, endpoint: Any) -> None:
    """An endpoint that is not on the issuer's own origin is not used."""
    issuer.discovery["introspection_endpoint"] = (
        f"{silent}introspect" if endpoint == "elsewhere" else endpoint
    )
    if endpoint == "missing":
        del issuer.discovery["introspection_endpoint"]
    with pytest.raises(Unavailable):
        await opaque().verify("opaque")


async def test_opaque_tokens_go_to_one_issuer_only(
    opaque: Make, make: Make, asked: Asked, silent: str
) -> None:
    """Other trusted issuers are never shown one; without introspection nobody is."""
    verifier = opaque(others=(silent,))
    await refused(verifier, "opaque", "not valid")
    assert [token for _, token, _ in asked.sent] == ["opaque"]
    await refused(make(others=(silent,)), "opaque", "not a signed JWT")
    assert len(asked.sent) == 1


@pytest.mark.usefixtures("asked")
async def test_a_strangers_jwt_is_shown_to_nobody(opaque: Make, issuer: Any, silent: str) -> None:
    """A JWT of an issuer that is not configured is refused without a single request."""
    verifier = opaque()
    await refused(verifier, issuer.token(iss=silent), "not trusted")
    await refused(verifier, issuer.token(iss="https://stranger.example/"), "not trusted")
    assert issuer.asked == []


@pytest.mark.parametrize(
    "token",
    ["a.b.c", "a.b.c.d.e", "e30.e30.AAAA", "two words", "ü", "a\nb", "=", "", "x" * 20_000, "a=b"],
)
async def test_what_is_no_opaque_token(opaque: Make, asked: Asked, issuer: Any, token: str) -> None:
    """What no issuer could have given out, and what is a JWT of some sort, is not asked about."""
    await refused(opaque(), token)
    assert issuer.asked == asked.sent == []


async def test_a_forged_jwt_is_not_asked_about(opaque: Make, asked: Asked, issuer: Any) -> None:
    """Nothing is asked about a token of ours whose signature, audience or time is wrong."""
    verifier = opaque(details=frozenset({"groups"}))
    good = issuer.token()
    for token in (good[:-8] + "AAAAAAAA", issuer.token(aud="x"), issuer.token(exp=1)):
        await refused(verifier, token)
    assert asked.sent == []


def test_one_issuer_at_most_has_introspection(settings: dict[str, Any]) -> None:
    """An opaque token does not say whose it is: it must not be shown around."""
    from headgate.introspection import IntrospectionSettings  # noqa: PLC0415 - only here

    introspection = IntrospectionSettings(**settings)
    one, two = (
        IssuerSettings(url=url, introspection=introspection) for url in ("https://a/", "https://b/")
    )
    with pytest.raises(ValueError, match="only one"):
        check_issuers([one, two])
    with pytest.raises(ValueError, match="twice"):
        check_issuers([IssuerSettings(url="https://a/"), one])
    check_issuers([one, IssuerSettings(url="https://b/")])


def test_a_secret_that_everybody_can_read(opaque: Make, settings: dict[str, Any]) -> None:
    """The service does not start with a client secret that is none."""
    Path(settings["client_secret_file"]).chmod(0o644)
    with pytest.raises(SettingsError, match="0600"):
        opaque()


@pytest.mark.usefixtures("asked")
async def test_no_problem_and_no_log_repeats_a_token(
    opaque: Make, issuer: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither what the caller is told nor what is logged holds the token or our secret."""
    import structlog  # noqa: PLC0415 - only here

    for answer in (server_error, client_refused, html):
        issuer.instead["/introspect"] = answer
        with structlog.testing.capture_logs() as logs, pytest.raises(Unavailable) as caught:
            await opaque().verify("the-opaque-token")
        said = repr((caught.value.document(), repr(caught.value.__cause__), logs))
        assert "the-opaque-token" not in said
        assert "s3cret" not in said
    assert "the-opaque-token" not in "".join(capsys.readouterr())
