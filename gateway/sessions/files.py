"""Files of a job as the session program shows them: requests and answers, as values.

Paths and names are percent-encoded bytes (RFC 3986): names of files need not be text.
"""

from typing import Any, TypeVar

import msgspec

from gateway.sessions.frames import MAX_BODY, MAX_HEADER
from gateway.sessions.session import SessionLost, UserSession

T = TypeVar("T")

PAGE = 1000
_ENTRY_BYTES = 4 * MAX_BODY // PAGE + 8192
"""What an entry may take in an answer: its name and a link's target at their longest, encoded."""


class Place(msgspec.Struct, frozen=True):
    """A job's directory, and whose right it is to look there."""

    row: str
    directory: str


class Status(msgspec.Struct, frozen=True):
    """What is at a path. `type` is file, directory, link or other; `inode` is its identity."""

    type: str
    size: int
    mtime_ns: int
    mode: int
    inode: str

    @property
    def etag(self) -> str:
        """A strong validator: another file, or other content of the same, has another."""
        return f'"{self.inode}-{self.mtime_ns:x}-{self.size:x}"'


class Entry(Status, frozen=True, kw_only=True):
    """One entry of a directory; `target` is where a link points to."""

    name: str
    target: str = ""


async def stat(session: UserSession, place: Place, path: str) -> Status:
    """What is at a path."""
    reply, _ = await session.request(_header("stat", place, path))
    return _converted(reply, Status)


async def page(
    session: UserSession, place: Place, path: str, *, after: str, limit: int
) -> tuple[list[Entry], str]:
    """Entries in the order of their names' bytes, and the name to go on after (empty: none)."""
    header = {**_header("list", place, path), "after": after, "limit": limit}
    reply, body = await session.request(header, expected=limit * _ENTRY_BYTES)
    following = reply.get("next")
    return _decoded(body), following if isinstance(following, str) else ""


async def fetch(
    session: UserSession, place: Place, path: str, *, offset: int, limit: int, inode: str = ""
) -> bytes:
    """Bytes of a file, of that very one where `inode` is given; fewer at its end."""
    header = {**_header("fetch", place, path), "offset": offset, "limit": limit, "inode": inode}
    return (await session.request(header, expected=limit + MAX_HEADER))[1]


async def write(
    session: UserSession,
    place: Place,
    path: str,
    part: bytes,
    *,
    upload: str,
    offset: int,
    last: bool,
) -> None:
    """A part of an upload of that name; the file is there once the last part is."""
    header = {**_header("write", place, path), "upload": upload, "offset": offset, "last": last}
    await session.request(header, part)


async def delete(session: UserSession, place: Place, path: str) -> None:
    """Remove what is at a path, all of it. SessionRefused `unfinished`: ask again."""
    await session.request(_header("delete", place, path))


async def clean(session: UserSession, place: Place) -> None:
    """Remove a job's directory. SessionRefused `unfinished`: ask again."""
    await session.request(_header("clean", place, ""))


def _header(op: str, place: Place, path: str) -> dict[str, Any]:
    return {"op": op, "row": place.row, "directory": place.directory, "path": path}


def _decoded(body: bytes) -> list[Entry]:
    try:
        return msgspec.json.decode(body, type=list[Entry])
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise SessionLost(f"an answer that is none: {error}") from error


def _converted(reply: object, kind: type[T]) -> T:
    try:
        return msgspec.convert(reply, kind)
    except msgspec.ValidationError as error:
        raise SessionLost(f"an answer that is none: {error}") from error
