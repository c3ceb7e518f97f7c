"""An issuer that can misbehave, a socket that must stay silent, and a verifier on a held clock."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer, unused_port
from joserfc import jwk, jws

from headgate.clock import HeldClock
from headgate.introspection import IntrospectionSettings
from headgate.oidc import IssuerSettings, TokenVerifier
from tests.unit.headgate_oidc.token_requests import AUDIENCE, Asked, Make

SECRET = "s3cret:/ü"


def encode(data: bytes) -> str:
    """Base64url without padding."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


@dataclass(slots=True)
class Issuer:
    """What it publishes, what it was asked, and how it answers instead."""

    url: str
    clock: HeldClock
    keys: dict[str, Any] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    discovery: dict[str, Any] = field(default_factory=dict)
    instead: dict[str, Callable[[web.Request], Awaitable[web.StreamResponse]]] = field(
        default_factory=dict
    )
    published: list[dict[str, Any]] | None = None

    def claims(self, **changes: Any) -> dict[str, Any]:
        """Good claims with changes; None takes one away."""
        now = int(self.clock.now().timestamp())
        usual = {"iss": self.url, "sub": "alice", "aud": AUDIENCE, "exp": now + 600, "iat": now}
        return {k: v for k, v in {**usual, **changes}.items() if v is not None}

    def token(self, *, kid: str | None = "rsa", header: Any = None, **changes: Any) -> str:
        """A token signed by a key of this issuer."""
        key = self.keys[kid or "rsa"]
        alg = {"RSA": "RS256", "EC": "ES256", "OKP": "Ed25519"}[key.key_type]
        full = {"alg": alg, "typ": "at+jwt", **({"kid": kid} if kid else {}), **(header or {})}
        return self.sign(full, json.dumps(self.claims(**changes)).encode(), key)

    @staticmethod
    def sign(header: dict[str, Any], payload: bytes, key: Any) -> str:
        """Header and payload as they are, signed by what the header names."""
        start = f"{encode(json.dumps(header).encode())}.{encode(payload)}"
        model = jws.JWSRegistry.algorithms[header["alg"]]
        return f"{start}.{encode(model.sign(start.encode(), key))}"


@pytest.fixture
def clock() -> HeldClock:
    """A clock that stands still."""
    return HeldClock()


@pytest.fixture(scope="session")
def some_keys() -> dict[str, Any]:
    """One key of each type."""
    return {
        "rsa": jwk.RSAKey.generate_key(2048, {"kid": "rsa"}),
        "ec": jwk.ECKey.generate_key("P-256", {"kid": "ec"}),
        "okp": jwk.OKPKey.generate_key("Ed25519", {"kid": "okp"}),
    }


@pytest.fixture
async def issuer(clock: HeldClock, some_keys: dict[str, Any]) -> AsyncIterator[Issuer]:
    """A running issuer."""
    port = unused_port()
    one = Issuer(f"http://127.0.0.1:{port}/", clock, dict(some_keys))
    one.discovery = {"issuer": one.url, "jwks_uri": f"{one.url}jwk"}

    async def answer(request: web.Request) -> web.StreamResponse:
        one.asked.append(request.path)
        if request.path in one.instead:
            return await one.instead[request.path](request)
        if request.path == "/jwk":
            keys = [key.as_dict(private=False) for key in one.keys.values()]
            return web.json_response({"keys": keys if one.published is None else one.published})
        if request.path == "/.well-known/openid-configuration":
            return web.json_response(one.discovery)
        raise web.HTTPNotFound

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    server = TestServer(app, port=port)
    await server.start_server()
    yield one
    await server.close()


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    """An HTTP session."""
    async with aiohttp.ClientSession() as one:
        yield one


@pytest.fixture
def make(issuer: Issuer, session: aiohttp.ClientSession, clock: HeldClock) -> Make:
    """Makes verifiers that trust the issuer, with further settings of it."""

    def make_one(
        *, others: tuple[str, ...] = (), details: frozenset[Any] = frozenset(), **settings: Any
    ) -> TokenVerifier:
        settings.setdefault("algorithms", ("RS256", "ES256", "EdDSA", "Ed25519"))
        trusted = [IssuerSettings(url=issuer.url, **settings)]
        trusted += [IssuerSettings(url=url) for url in others]
        return TokenVerifier(
            issuers=trusted, audience=AUDIENCE, session=session, clock=clock, details=details
        )

    return make_one


@pytest.fixture
def verifier(make: Make) -> TokenVerifier:
    """A verifier that trusts the issuer."""
    return make()


@pytest.fixture
async def silent() -> AsyncIterator[str]:
    """The URL of a socket to which nobody may connect; checked at the end."""
    heard: asyncio.Queue[object] = asyncio.Queue()

    async def hear(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.put_nowait(writer.get_extra_info("peername"))
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(hear, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    yield f"http://127.0.0.1:{port}/"
    # One connection of our own: whoever came before it has been heard by now.
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    first = await heard.get()
    assert first == writer.get_extra_info("sockname"), "somebody was asked who must not be"
    writer.close()
    await writer.wait_closed()
    server.close()
    await server.wait_closed()


@pytest.fixture
async def asked(issuer: Any, clock: HeldClock) -> Asked:
    """The issuer with an introspection and a userinfo endpoint."""
    one = Asked(clock)
    issuer.discovery["introspection_endpoint"] = f"{issuer.url}introspect"
    issuer.discovery["userinfo_endpoint"] = f"{issuer.url}userinfo"

    async def introspect(request: web.Request) -> web.StreamResponse:
        form = await request.post()
        token = str(form["token"])
        one.sent.append(("introspect", token, request.headers.get("Authorization", "")))
        return web.json_response(one.about.get(token, {"active": False}))

    async def userinfo(request: web.Request) -> web.StreamResponse:
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        one.sent.append(("userinfo", token, request.method))
        status, document = one.userinfo.get(token, (401, {"error": "invalid_token"}))
        return web.json_response(document, status=status)

    issuer.instead["/introspect"] = introspect
    issuer.instead["/userinfo"] = userinfo
    return one


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, Any]:
    """The settings of our client at the issuer."""
    path = tmp_path / "secret"
    path.write_text(SECRET)
    path.chmod(0o600)
    return {"client_id": "head gate", "client_secret_file": str(path)}


@pytest.fixture
def opaque(make: Make, settings: dict[str, Any]) -> Make:
    """Makes verifiers that ask the issuer about opaque tokens."""

    def make_one(cache_seconds: float = 60, **more: Any) -> TokenVerifier:
        introspection = IntrospectionSettings(**settings, cache_seconds=cache_seconds)
        return make(introspection=introspection, **more)

    return make_one
