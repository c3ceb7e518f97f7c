"""Members of a tar archive from what a session shows of files: pure, GNU format, names as bytes."""

import tarfile
from urllib.parse import unquote_to_bytes

from gateway.sessions.files import Entry

END = bytes(2 * tarfile.BLOCKSIZE)


def header(path: str, entry: Entry, size: int) -> bytes:
    """The header of a member; empty for what an archive does not take along.

    That is a pipe, a device, a socket, and a link that leads out of the directory: who unpacks
    the archive elsewhere would follow it there.
    """
    member = tarfile.TarInfo(_text(unquote_to_bytes(path)))
    member.mode, member.mtime = entry.mode, entry.mtime_ns // 1_000_000_000
    match entry.type:
        case "file":
            member.size = size
        case "directory":
            member.type = tarfile.DIRTYPE
        case "link":
            if not _inside(path, entry.target):
                return b""
            member.type = tarfile.SYMTYPE
            member.linkname = _text(unquote_to_bytes(entry.target))
        case _:
            return b""
    return member.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")


def padding(size: int) -> bytes:
    """What fills the last block of a member's data."""
    return bytes(-size % tarfile.BLOCKSIZE)


def _text(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")


def _inside(path: str, target: str) -> bool:
    where, parts = unquote_to_bytes(target), path.split("/")[:-1]
    depth = len(parts)
    for part in where.split(b"/"):
        depth += -1 if part == b".." else part not in {b"", b"."}
        if depth < 0:
            return False
    return not where.startswith(b"/")
