"""The routes to the files of a job: list, download with Range, tar, upload, delete."""

import asyncio
import base64
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any
from urllib.parse import quote, unquote_to_bytes

import structlog
from aiohttp import web

from gateway.files import Files, Folder, not_a_file
from gateway.sessions.files import PAGE, Entry, Status
from headgate.clock import rfc3339
from headgate.identity import Principal
from headgate.problems import Fault, Invalid, NotFound, Problem, TooLarge, TooSlow
from headgate.web import BODY_SECONDS, json_response

log = structlog.get_logger(__name__)

TAR = "application/x-tar"
CHUNK = 256 * 1024
_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")

Authenticate = Callable[[web.Request], Awaitable[tuple[Principal, str]]]


class RangeNotSatisfiable(Problem):
    """None of the bytes that were asked for are there (RFC 9110, section 15.5.17)."""

    status = HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE
    default_code = "range_not_satisfiable"


class PreconditionFailed(Problem):
    """What is there is not what the caller thinks (RFC 9110, section 15.5.13)."""

    status = HTTPStatus.PRECONDITION_FAILED
    default_code = "precondition_failed"


@dataclass(frozen=True, slots=True)
class FileRoutes:
    """The handlers; `authenticate` makes a request's principal and token."""

    files: Files
    authenticate: Authenticate

    def add_to(self, app: web.Application) -> None:
        """Register them."""
        app.router.add_get("/v1/jobs/{id}/files", self.show)
        anything = r"/v1/jobs/{id}/files/{path:[\s\S]*}"  # newlines, too
        app.router.add_get(anything, self.show)
        app.router.add_put(anything, self.put)
        app.router.add_delete(anything, self.delete)

    async def show(self, request: web.Request) -> web.StreamResponse:
        """A file's bytes, a directory's entries, or all that is in it as a tar archive."""
        folder, path = await self._folder(request)
        status = await folder.stat(path)
        if status.type == "file":
            return await _download(request, folder, path, status)
        if status.type != "directory":
            raise not_a_file()
        if TAR in request.headers.get("Accept", ""):
            headers = {"Content-Type": TAR, **_attachment(_shown(path) or "files", ".tar")}
            return await _send(request, web.StreamResponse(headers=headers), folder.archive(path))
        limit, after = _page(request)
        entries, following = await folder.page(path, after=after, limit=limit)
        root = f"/v1/jobs/{request.match_info['id']}/files"
        document: dict[str, Any] = {
            "path": path,
            "entries": [_entry_document(root, path, entry) for entry in entries],
        }
        headers = {}
        if following:
            document["next"] = base64.urlsafe_b64encode(following.encode()).decode().rstrip("=")
            link = request.rel_url.update_query(cursor=document["next"])
            headers["Link"] = f'<{link}>; rel="next"'
        return json_response(document, headers=headers)

    async def put(self, request: web.Request) -> web.Response:
        """Bring a file: 201 where there was none, 204 where it took another's place."""
        folder, path = await self._folder(request)
        if (request.content_length or 0) > folder.max_upload_bytes:
            raise TooLarge(f"A file may have {folder.max_upload_bytes} bytes here.")
        before = await _there(folder, path)
        _check_conditions(request, before)
        status = await folder.write(path, _parts(request))
        created = HTTPStatus.CREATED if before is None else HTTPStatus.NO_CONTENT
        return web.Response(status=created, headers={"ETag": status.etag})

    async def delete(self, request: web.Request) -> web.Response:
        """Remove a file, or a directory with all that is in it."""
        folder, path = await self._folder(request)
        if "If-Match" in request.headers:
            _check_conditions(request, await _there(folder, path))
        await folder.delete(path)
        return web.Response(status=HTTPStatus.NO_CONTENT)

    async def _folder(self, request: web.Request) -> tuple[Folder, str]:
        principal, token = await self.authenticate(request)
        folder = await self.files.open(principal, token, request.match_info["id"])
        return folder, _path(request)


def _path(request: web.Request) -> str:
    """The path as it was sent: what it names need not be text, so nothing decodes it before us."""
    _, _, rest = request.raw_path.partition("?")[0].partition("/files")
    parts = [unquote_to_bytes(part) for part in rest.split("/") if part]
    if any(part in {b".", b".."} or b"/" in part or b"\0" in part for part in parts):
        raise Invalid("This is no path below a job's directory.", code="invalid_path")
    return "/".join(quote(part, safe="") for part in parts)


async def _there(folder: Folder, path: str) -> Status | None:

    try:
        return await folder.stat(path)
    except NotFound:
        return None


def _check_conditions(request: web.Request, status: Status | None) -> None:
    """If-Match and If-None-Match of a request that changes something (RFC 9110, section 13.1)."""
    match, none = (request.headers.get(name) for name in ("If-Match", "If-None-Match"))
    etag = None if status is None else status.etag
    if (match is not None and not _matches(match, etag)) or (
        none is not None and _matches(none, etag)
    ):
        raise PreconditionFailed("There is another file, or none, where one was expected.")


def _matches(header: str, etag: str | None) -> bool:
    listed = [word.strip() for word in header.split(",")]
    return etag is not None and ("*" in listed or etag in listed)


async def _download(
    request: web.Request, folder: Folder, path: str, status: Status
) -> web.StreamResponse:
    headers = {
        "ETag": status.etag,
        "Accept-Ranges": "bytes",
        "Last-Modified": datetime.fromtimestamp(status.mtime_ns // 10**9, UTC).strftime(
            "%a, %d %b %Y %H:%M:%S GMT"
        ),
    }
    none = request.headers.get("If-None-Match")
    if none is not None and _matches(none, status.etag):
        return web.Response(status=HTTPStatus.NOT_MODIFIED, headers=headers)
    first, length, partial = _range(request, status)
    headers |= {
        # A payload writes what it likes: no browser may take it for a page.
        "Content-Type": "application/octet-stream",
        "Content-Length": str(length),
        **_attachment(_shown(path)),
    }
    if partial:
        headers["Content-Range"] = f"bytes {first}-{first + length - 1}/{status.size}"
    response = web.StreamResponse(
        status=HTTPStatus.PARTIAL_CONTENT if partial else HTTPStatus.OK, headers=headers
    )
    parts = folder.read(path, inode=status.inode, offset=first, length=length)
    return await _send(request, response, parts)


def _range(request: web.Request, status: Status) -> tuple[int, int, bool]:
    """First byte, count, and whether that is a part; several ranges are answered with all."""
    size = status.size
    condition = request.headers.get("If-Range")
    found = _RANGE.fullmatch(request.headers.get("Range", ""))
    if found is None or found[0] == "bytes=-" or (condition and condition != status.etag):
        return 0, size, False
    if not found[1]:
        first, last = max(size - int(found[2]), 0), size - 1
    else:
        first = int(found[1])
        last = min(int(found[2]) if found[2] else size - 1, size - 1)
        if found[2] and int(found[2]) < first:
            return 0, size, False  # not a range at all
    if first > last:
        raise RangeNotSatisfiable(
            f"The file has {size} bytes.", headers={"Content-Range": f"bytes */{size}"}
        )
    return first, last - first + 1, True


async def _send(
    request: web.Request, response: web.StreamResponse, parts: AsyncGenerator[bytes]
) -> web.StreamResponse:
    """Parts as they come; what breaks off after the first of them breaks the connection."""
    response.headers["X-Content-Type-Options"] = "nosniff"
    async with aclosing(parts):
        try:
            if request.method != "HEAD":
                async for part in parts:
                    if not response.prepared:
                        await response.prepare(request)
                    await response.write(part)
        except Problem as problem:
            if not response.prepared:
                raise
            log.warning("file_cut", path=request.path, cause=str(problem))
            if request.transport is not None:
                request.transport.abort()
            return response
        except ConnectionError:
            log.info("client_left", path=request.path)
            return response
    if not response.prepared:
        await response.prepare(request)
    await response.write_eof()
    return response


async def _parts(request: web.Request) -> AsyncIterator[bytes]:
    """The body as it comes; slower than `BODY_SECONDS` a piece is too slow."""
    while True:
        try:
            async with asyncio.timeout(BODY_SECONDS):
                part = await request.content.read(CHUNK)
        except TimeoutError as error:
            raise TooSlow(f"The body did not go on within {BODY_SECONDS:g} s.") from error
        except (web.RequestPayloadError, ConnectionError):
            raise Invalid("The body is cut short.", code="body") from None
        if not part:
            return
        yield part


def _page(request: web.Request) -> tuple[int, str]:
    text = request.query.get("limit", str(PAGE))
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:9]) <= PAGE:
        sentence = f"limit must be a number from 1 to {PAGE}."
        raise Invalid(sentence, faults=[Fault("/limit", sentence)])
    cursor = request.query.get("cursor", "")
    try:
        after = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode("ascii")
    except ValueError as error:
        faults = [Fault("/cursor", "Use the cursor of the page before.")]
        raise Invalid("The cursor is not valid.", code="invalid_cursor", faults=faults) from error
    return int(text), after


def _entry_document(root: str, path: str, entry: Entry) -> dict[str, Any]:
    where = f"{path}/{entry.name}" if path else entry.name
    document: dict[str, Any] = {
        "name": _shown(entry.name),
        "path": where,
        "type": entry.type,
        "size": entry.size,
        "mode": f"{entry.mode:04o}",
        "modified_at": rfc3339(datetime.fromtimestamp(entry.mtime_ns / 1e9, UTC)),
        "href": f"{root}/{where}",
    }
    return {**document, "target": _shown(entry.target)} if entry.type == "link" else document


def _shown(path: str) -> str:
    """A path's last component for people: what is no text in it is replaced."""
    return unquote_to_bytes(path.rpartition("/")[2]).decode("utf-8", "replace")


def _attachment(name: str, ending: str = "") -> dict[str, str]:
    """RFC 6266, section 4.3: the name in UTF-8, whatever it has."""
    encoded = quote((name + ending).encode("utf-8", "replace"), safe="")
    return {"Content-Disposition": f"attachment; filename*=UTF-8''{encoded}"}
