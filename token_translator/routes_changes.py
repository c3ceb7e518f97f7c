"""What nodes and services keep asking for: the revocation list, and the feed of denials."""

import asyncio

import structlog
from aiohttp import web

from headgate import sse
from headgate.peers import HEADER
from token_translator.callers import Callers
from token_translator.changes import Feed
from token_translator.revocations import RevocationLists

log = structlog.get_logger(__name__)

WRITE_SECONDS = 10.0
VERSION = "Headgate-KRL-Version"
STATEMENT = "Headgate-KRL-Signed"
SIGNATURE = "Headgate-KRL-Signature"

CALLERS = web.AppKey("changes_callers", Callers)
FEED = web.AppKey("feed", Feed)
LISTS = web.AppKey("revocation_lists", RevocationLists)


def add(app: web.Application, callers: Callers, feed: Feed, lists: RevocationLists) -> None:
    """Add the routes to the application; it closes the feed when it shuts down."""
    app[CALLERS], app[FEED], app[LISTS] = callers, feed, lists
    app.router.add_get("/v1/changes", get_changes)
    app.router.add_get("/v1/krl", get_revocation_list)
    app.on_shutdown.append(_close)


async def _close(app: web.Application) -> None:
    app[FEED].close()


async def get_revocation_list(request: web.Request) -> web.Response:
    """The revocation list as sshd reads it, with the signer's word; 304 where the caller has it."""
    served = await request.app[LISTS].current()
    headers = {
        "ETag": f'"{served.etag}"',
        "Cache-Control": "no-cache",
        VERSION: str(served.version),
        STATEMENT: served.statement,
    }
    known = request.if_none_match or ()
    if any(tag.value in {served.etag, "*"} for tag in known):
        response = web.Response(status=304, headers=headers)
    else:
        response = web.Response(
            body=served.body, content_type="application/octet-stream", headers=headers
        )
    for signature in served.signatures:
        response.headers.add(SIGNATURE, signature)
    return response


async def get_changes(request: web.Request) -> web.StreamResponse:
    """The change feed as server-sent events, for services; see `headgate.changes`."""
    peer = await request.app[CALLERS].service(request.headers.get(HEADER, ""), "changes.read")
    async with request.app[FEED].listening(peer.instance) as parts:
        response = web.StreamResponse(
            headers={
                "Content-Type": sse.MEDIA_TYPE,
                "Cache-Control": "no-store",
                "X-Accel-Buffering": "no",  # nginx would hold it back otherwise
            }
        )
        try:
            await response.prepare(request)
            async for part in parts:
                async with asyncio.timeout(WRITE_SECONDS):
                    await response.write(part)
        except (ConnectionError, TimeoutError) as error:
            log.info("listener_gone", instance=peer.instance, why=repr(error))
        return response
