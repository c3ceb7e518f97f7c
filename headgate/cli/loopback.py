"""Where on this machine a browser brings the answer of a login (RFC 8252, section 7.3)."""

import asyncio
import contextlib
import hmac
from collections.abc import AsyncIterator, Mapping

from aiohttp import web

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
    """A listener for one answer: the one that carries `state`. Anything else changes nothing."""

    def __init__(self, state: str) -> None:
        self._state = state
        self._answer: asyncio.Future[dict[str, str]] = asyncio.get_running_loop().create_future()
        self.redirect_uri = ""

    async def answer(self, seconds: float) -> Mapping[str, str]:
        """The parameters of the redirect; raises TimeoutError."""
        async with asyncio.timeout(seconds):
            return await asyncio.shield(self._answer)

    async def receive(self, request: web.Request) -> web.Response:
        """What the browser brings."""
        query = request.query
        ours = f"http://{request.host}{PATH}" == self.redirect_uri
        once = len(set(query)) == len(query)
        known = hmac.compare_digest(query.get("state", "").encode(), self._state.encode())
        if not (ours and once and known):
            return _page("This is not the answer that headgate waits for.", 400)
        if self._answer.done():
            return _page("This answer was given already.", 409)
        self._answer.set_result(dict(query))
        done = "code" in query
        return _page(f"You are signed in{'' if done else ' nowhere'}; go back to the terminal.")


@contextlib.asynccontextmanager
async def listening(state: str) -> AsyncIterator[Loopback]:
    """Listen on a free port of the loopback while the context is open."""
    loopback = Loopback(state)
    app = web.Application()
    app.router.add_get(PATH, loopback.receive)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=2.0)
    await runner.setup()
    try:
        site = web.TCPSite(runner, HOST, 0)
        await site.start()
        loopback.redirect_uri = f"http://{HOST}:{runner.addresses[0][1]}{PATH}"
        yield loopback
    finally:
        await runner.cleanup()


def _page(words: str, status: int = 200) -> web.Response:
    return web.Response(
        text=_PAGE.format(words=words), status=status, content_type="text/html", headers=_HEADERS
    )
