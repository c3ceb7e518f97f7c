"""Attacks and mishaps by way of the issuer's documents: rotation, outages, misbehaviour."""

import asyncio
import gzip
from typing import Any

import pytest
from aiohttp import web
from joserfc import jwk

from headgate.clock import HeldClock
from headgate.discovery import KEYS_HARD_TTL_SECONDS, KEYS_TTL_SECONDS
from headgate.oidc import TokenVerifier
from headgate.problems import Problem, Unauthenticated, Unavailable

DISCOVERY = "/.well-known/openid-configuration"


async def test_keys_are_fetched_once(verifier: TokenVerifier, issuer: Any) -> None:
    """A hundred tokens, also at once, cost one fetch of each document."""
    await asyncio.gather(*(verifier.verify(issuer.token()) for _ in range(100)))
    assert issuer.asked == [DISCOVERY, "/jwk"]


async def test_rotation(verifier: TokenVerifier, issuer: Any, clock: HeldClock) -> None:
    """A new key is accepted after one refetch; the interval has to be over."""
    await verifier.verify(issuer.token())
    issuer.keys["new"] = jwk.RSAKey.generate_key(2048, {"kid": "new"})
    clock.advance(61)
    await verifier.verify(issuer.token(kid="new"))
    assert issuer.asked == [DISCOVERY, "/jwk"] * 2


async def test_unknown_names_are_no_amplifier(
    verifier: TokenVerifier, issuer: Any, clock: HeldClock
) -> None:
    """Any number of tokens with made-up key names cost at most one fetch an interval."""
    await verifier.verify(issuer.token())
    for turn in range(3):
        clock.advance(61)
        tokens = [issuer.token(header={"kid": f"{turn}-{number}"}) for number in range(50)]
        verifying = (verifier.verify(token) for token in tokens)
        ended = await asyncio.gather(*verifying, return_exceptions=True)
        assert all(isinstance(end, Unauthenticated) for end in ended)
        assert len(issuer.asked) == 2 * (turn + 2)


async def test_a_fetch_for_one_does_not_hold_up_the_others(
    verifier: TokenVerifier, issuer: Any, clock: HeldClock
) -> None:
    """While an unknown name makes us ask a slow issuer, good tokens are verified at once."""
    await verifier.verify(issuer.token())
    clock.advance(61)
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def slow(_: web.Request) -> web.Response:
        asked.set()
        await go_on.wait()
        return web.json_response(issuer.discovery)

    issuer.instead[DISCOVERY] = slow
    attacker = asyncio.create_task(verifier.verify(issuer.token(header={"kid": "made-up"})))
    await asked.wait()
    async with asyncio.timeout(1):
        assert await verifier.verify(issuer.token())
    go_on.set()
    with pytest.raises(Unauthenticated):
        await attacker


async def test_a_withdrawn_key(verifier: TokenVerifier, issuer: Any, clock: HeldClock) -> None:
    """A key that is no longer published stops working when the cache is renewed."""
    token = issuer.token(exp=int(clock.now().timestamp()) + 10**6)
    await verifier.verify(token)
    del issuer.keys["rsa"]
    await verifier.verify(token)
    clock.advance(KEYS_TTL_SECONDS + 1)
    with pytest.raises(Unauthenticated):
        await verifier.verify(token)


async def test_an_issuer_that_goes_away(
    verifier: TokenVerifier, issuer: Any, clock: HeldClock
) -> None:
    """The last good keys are used for a day, then nothing is accepted until it is back."""
    token = issuer.token(exp=int(clock.now().timestamp()) + 10**6)
    await verifier.verify(token)

    async def broken(_: web.Request) -> web.Response:
        return web.Response(status=500)

    issuer.instead[DISCOVERY] = broken
    clock.advance(KEYS_TTL_SECONDS + 1)
    await verifier.verify(token)
    clock.advance(KEYS_HARD_TTL_SECONDS)
    with pytest.raises(Unavailable):
        await verifier.verify(token)
    del issuer.instead[DISCOVERY]
    clock.advance(61)
    await verifier.verify(token)


async def test_an_issuer_that_is_down_at_start(
    verifier: TokenVerifier, issuer: Any, clock: HeldClock
) -> None:
    """503 with Retry-After, tried again soon, and no lasting harm."""

    async def broken(_: web.Request) -> web.Response:
        return web.Response(status=503)

    issuer.instead[DISCOVERY] = broken
    for _ in range(5):
        with pytest.raises(Unavailable) as caught:
            await verifier.verify(issuer.token())
        assert caught.value.retry_after
    assert len(issuer.asked) == 1
    del issuer.instead[DISCOVERY]
    clock.advance(2)
    await verifier.verify(issuer.token())


async def big(_: web.Request) -> web.Response:
    """Two megabytes of JSON."""
    return web.json_response({"keys": ["x" * 2_000_000]})


async def bomb(_: web.Request) -> web.Response:
    """A few kilobytes that unpack to a hundred megabytes."""
    body = gzip.compress(b'{"keys": ["' + b" " * 100_000_000)
    headers = {"Content-Encoding": "gzip", "Content-Type": "application/json"}
    return web.Response(body=body, headers=headers)


async def text(_: web.Request) -> web.Response:
    """Not JSON."""
    return web.Response(text="<html>")


async def listed(_: web.Request) -> web.Response:
    """JSON of another shape."""
    return web.json_response([1, 2, 3])


async def deep(_: web.Request) -> web.Response:
    """Deeply nested JSON."""
    return web.Response(text="[" * 500_000)


@pytest.mark.parametrize("path", [DISCOVERY, "/jwk"])
@pytest.mark.parametrize("answer", [big, bomb, text, listed, deep])
async def test_documents_that_are_none(
    verifier: TokenVerifier, issuer: Any, path: str, answer: Any
) -> None:
    """Too big, not JSON, of another shape: as if the issuer were away, never an error of ours."""
    issuer.instead[path] = answer
    with pytest.raises(Unavailable):
        await verifier.verify(issuer.token())


@pytest.mark.parametrize("path", [DISCOVERY, "/jwk"])
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirections_are_not_followed(
    verifier: TokenVerifier, issuer: Any, silent: str, path: str, status: int
) -> None:
    """An issuer's documents are where they are; nobody is sent anywhere."""

    async def away(_: web.Request) -> web.Response:
        return web.Response(status=status, headers={"Location": f"{silent}x"})

    issuer.instead[path] = away
    with pytest.raises(Unavailable):
        await verifier.verify(issuer.token())


async def test_a_document_that_never_ends(
    verifier: TokenVerifier, issuer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slow document is given up at the deadline."""
    import aiohttp  # noqa: PLC0415 - only here

    monkeypatch.setattr("headgate.discovery.FETCH_TIMEOUT", aiohttp.ClientTimeout(total=0.2))
    ended = asyncio.Event()

    async def drip(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"{")
        await ended.wait()
        return response

    issuer.instead[DISCOVERY] = drip
    async with asyncio.timeout(5):
        with pytest.raises(Unavailable):
            await verifier.verify(issuer.token())
    ended.set()


@pytest.mark.parametrize("named", ["https://other.example/", "", None, 1])
async def test_discovery_of_another_issuer(
    verifier: TokenVerifier, issuer: Any, named: Any
) -> None:
    """A discovery document that names another issuer is not believed."""
    issuer.discovery["issuer"] = named
    with pytest.raises(Unavailable):
        await verifier.verify(issuer.token())


@pytest.mark.parametrize(
    "scheme", ["elsewhere", "file:///etc/passwd", "http://169.254.169.254/", 1]
)
async def test_keys_from_elsewhere(
    verifier: TokenVerifier, issuer: Any, silent: str, scheme: Any
) -> None:
    """Keys are fetched from the issuer's own origin, and from nowhere else."""
    issuer.discovery["jwks_uri"] = f"{silent}jwk" if scheme == "elsewhere" else scheme
    with pytest.raises(Unavailable):
        await verifier.verify(issuer.token())


@pytest.mark.parametrize(
    "change",
    [{"use": "enc"}, {"alg": "RS512"}, {"alg": "PS256"}, {"key_ops": ["encrypt"]}],
)
async def test_keys_for_other_uses(
    verifier: TokenVerifier, issuer: Any, change: dict[str, Any]
) -> None:
    """A key published for encryption or for another algorithm verifies no token."""
    issuer.published = [{**issuer.keys["rsa"].as_dict(private=False), **change}]
    with pytest.raises(Unauthenticated):
        await verifier.verify(issuer.token())


async def test_small_rsa_keys(verifier: TokenVerifier, issuer: Any) -> None:
    """RSA-1024 is not believed even from a trusted issuer; its good keys are."""
    with pytest.warns(Warning, match="1024|2048"):
        issuer.keys["small"] = jwk.RSAKey.generate_key(1024, {"kid": "small"})
    with pytest.raises(Unauthenticated):
        await verifier.verify(issuer.token(kid="small"))
    assert await verifier.verify(issuer.token())


async def test_low_order_ed25519_keys(verifier: TokenVerifier, issuer: Any) -> None:
    """The neutral point as a key, under which one signature fits every message, fits none here."""
    low = {"kty": "OKP", "crv": "Ed25519", "kid": "low", "x": "AQ" + "A" * 41}
    issuer.published = [low]
    start = issuer.token(kid="okp", header={"kid": "low"}).rsplit(".", 1)[0]
    forged = "AQ" + "A" * 84
    with pytest.raises(Problem):
        await verifier.verify(f"{start}.{forged}")


@pytest.mark.parametrize(
    "document",
    [
        {"kty": "oct", "k": "AAAA", "kid": "x"},
        {"kty": "RSA", "kid": "x"},
        {"kty": "RSA", "n": "AA", "e": "AQAB", "kid": "x"},
        {"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA", "kid": "x"},
        {"kty": "OKP", "crv": "X25519", "x": "A" * 43, "kid": "x"},
        {"kty": "unheard-of", "kid": "x"},
        {"kty": ["RSA"]},
        {"kty": "RSA", "n": ["AA"], "e": "AQAB"},
        {},
        "text",
        None,
        1,
    ],
)
async def test_one_bad_key_spoils_no_other(
    verifier: TokenVerifier, issuer: Any, document: Any
) -> None:
    """A key we cannot use is left out; the issuer's others work."""
    issuer.published = [document, issuer.keys["rsa"].as_dict(private=False)]
    assert await verifier.verify(issuer.token())


async def test_a_token_without_a_key_name(verifier: TokenVerifier, issuer: Any) -> None:
    """Without `kid` the issuer's only key is meant; where it has several, none is guessed."""
    issuer.published = [issuer.keys["rsa"].as_dict(private=False)]
    assert await verifier.verify(issuer.token(kid=None))


async def test_a_token_without_a_key_name_among_several(
    verifier: TokenVerifier, issuer: Any
) -> None:
    """Keys are not tried one after the other."""
    with pytest.raises(Unauthenticated):
        await verifier.verify(issuer.token(kid=None))
