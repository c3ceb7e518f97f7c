"""What tests of tokens share: a refusal, and what an issuer answers when it is asked about one."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web

from headgate.clock import HeldClock
from headgate.oidc import TokenVerifier
from headgate.problems import Unauthenticated

AUDIENCE = "https://service.site.example/"
MFA = "https://refeds.org/profile/mfa"

Make = Callable[..., TokenVerifier]


@dataclass(slots=True)
class Asked:
    """What the issuer answers about each token, and what it was sent."""

    clock: HeldClock
    about: dict[str, Any] = field(default_factory=dict)
    userinfo: dict[str, tuple[int, Any]] = field(default_factory=dict)
    sent: list[tuple[str, str, str]] = field(default_factory=list)

    def has(self, token: str, **changes: Any) -> None:
        """Make a token active, with changes to its claims; None takes one away."""
        expires = int(self.clock.now().timestamp()) + 600
        usual = {"active": True, "sub": "alice", "aud": AUDIENCE, "exp": expires}
        merged = {**usual, **changes}
        self.about[token] = {k: v for k, v in merged.items() if v is not None}


async def refused(verifier: TokenVerifier, token: str, words: str = "", **more: Any) -> None:
    """Expect a refusal that says these words."""
    with pytest.raises(Unauthenticated, match=words or None):
        await verifier.verify(token, **more)


async def server_error(_: web.Request) -> web.StreamResponse:
    """A broken server."""
    return web.Response(status=500)


async def client_refused(_: web.Request) -> web.StreamResponse:
    """Our client's secret is wrong."""
    return web.json_response({"error": "invalid_client"}, status=401)


async def html(_: web.Request) -> web.StreamResponse:
    """Not JSON."""
    return web.Response(text="<html>", content_type="text/html")
