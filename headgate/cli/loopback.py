"""Where on this machine a browser brings the answer of a login (RFC 8252, section 7.3)."""

import asyncio
import contextlib
import hmac
import os
import secrets
from collections.abc import AsyncIterator, Mapping

from aiohttp import web

from headgate.cli.loopback_peers import Peer, whose

PATH = "/callback"
HOST = "127.0.0.1"
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>headgate</title></head>
<body><h1>headgate</h1><p>{words}</p></body></html>
"""
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'",
    "Referrer-Policy": "no-referrer",
}


class Loopback:
    """A listener for one answer: the one that carries `state`. Anything else changes nothing.

    The browser is started with `start`, an address here that leads to the login's page, once: what
    a program is started with is seen by everybody on the machine, and the page's own address is
    all that it takes to finish the login as somebody else. Other users are sent away.
    """

    def __init__(self, state: str) -> None:
        self._state = state
        self._answer: asyncio.Future[dict[str, str]] = asyncio.get_running_loop().create_future()
        self._begin = "/" + secrets.token_urlsafe(32)
        self._page = ""
        self._origin = ""

    @property
    def redirect_uri(self) -> str:
        """Where the issuer sends the browser back to."""
        return self._origin + PATH

    def start(self, page: str) -> str:
        """The address that leads to a page once."""
        self._page = page
        return self._origin + self._begin

    def listens(self, port: int) -> None:
        """Say on which port we are."""
        self._origin = f"http://{HOST}:{port}"

    async def answer(self, seconds: float) -> Mapping[str, str]:
        """The parameters of the redirect; raises TimeoutError."""
        async with asyncio.timeout(seconds):
            return await asyncio.shield(self._answer)

    async def lead(self, request: web.Request) -> web.Response:
        """What the browser is started with."""
        known = hmac.compare_digest(request.path.encode(), self._begin.encode())
        # Somebody who is not listed reads no answer here, or is no program of this system.
        ours = self._whose(request) in {Peer.OURS, Peer.UNTOLD}
        if not (ours and known):
            return _page("Open the page whose address the terminal shows.", 404)
        page, self._page = self._page, ""
        if not page:
            return _page("This was opened already; the terminal shows the page's address.", 410)
        return web.Response(status=303, headers={**_HEADERS, "Location": page})

    async def receive(self, request: web.Request) -> web.Response:
        """What the browser brings."""
        query = request.query
        once = len(set(query)) == len(query)
        known = hmac.compare_digest(query.get("state", "").encode(), self._state.encode())
        if not (once and known) or self._whose(request) is Peer.OTHERS:
            return _page("This is not the answer that headgate waits for.", 400)
        if self._answer.done():
            return _page("This answer was given already.", 409)
        self._answer.set_result(dict(query))
        done = "code" in query
        return _page(f"You are signed in{'' if done else ' nowhere'}; go back to the terminal.")

    def _whose(self, request: web.Request) -> Peer:
        """Who asks; nobody of ours asks by another address than the one that we gave out."""
        if f"http://{request.host}" != self._origin or request.transport is None:
            return Peer.OTHERS
        peer, ours = (request.transport.get_extra_info(n) for n in ("peername", "sockname"))
        return whose(peer[:2], ours[:2], os.geteuid())


@contextlib.asynccontextmanager
async def listening(state: str) -> AsyncIterator[Loopback]:
    """Listen on a free port of the loopback while the context is open."""
    loopback = Loopback(state)
    app = web.Application()
    app.router.add_get(PATH, loopback.receive, allow_head=False)
    app.router.add_get("/{begin}", loopback.lead, allow_head=False)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=2.0)
    await runner.setup()
    try:
        site = web.TCPSite(runner, HOST, 0)
        await site.start()
        loopback.listens(runner.addresses[0][1])
        yield loopback
    finally:
        await runner.cleanup()


def _page(words: str, status: int = 200) -> web.Response:
    return web.Response(
        text=_PAGE.format(words=words), status=status, content_type="text/html", headers=_HEADERS
    )
