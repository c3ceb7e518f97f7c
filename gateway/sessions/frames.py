"""Frames of the session protocol, as bytes: pure, the same over SSH and over a pipe.

A frame is two big-endian u32 (lengths of header and body), a JSON header of at most 1 MiB and at
most 256 KiB of body. Frames of one message share an id; all but the last say `more`.
"""

import struct
from collections.abc import Iterator
from typing import Any

import msgspec

PROTOCOL = b"HGS1 "
VERSION = 1
MAX_HEADER = 1024 * 1024
MAX_BODY = 256 * 1024
MAX_NOISE = 64 * 1024
"""Bytes a user's start-up files may print before the session announces itself."""

_PREFIX = struct.Struct(">II")


class ProtocolError(Exception):
    """The other side does not speak this protocol, or breaks its limits."""


def encode(header: dict[str, Any], body: bytes = b"") -> bytes:
    """One message as frames."""
    message = {"v": VERSION, **header}
    parts = [body[start : start + MAX_BODY] for start in range(0, len(body), MAX_BODY)] or [b""]
    frames = []
    for index, part in enumerate(parts):
        fields = message if index == 0 else {"v": VERSION, "id": header["id"]}
        if index < len(parts) - 1:
            fields = {**fields, "more": True}
        encoded = msgspec.json.encode(fields)
        if len(encoded) > MAX_HEADER:
            raise ProtocolError("a header over its limit")
        frames += [_PREFIX.pack(len(encoded), len(part)), encoded, part]
    return b"".join(frames)


class Decoder:
    """Turns what arrives into frames, after everything that came before the announcement."""

    def __init__(self, nonce: str) -> None:
        self._announcement = PROTOCOL + nonce.encode("ascii") + b"\n"
        self._buffer = bytearray()
        self.announced = False

    def feed(self, data: bytes) -> Iterator[tuple[dict[str, Any], bytes]]:
        """The frames that are complete now.

        Raises:
            ProtocolError: too much noise before the announcement, a frame over its limits.
        """
        self._buffer += data
        if not self.announced and not self._find_announcement():
            return
        while len(self._buffer) >= _PREFIX.size:
            header_size, body_size = _PREFIX.unpack_from(self._buffer)
            if header_size > MAX_HEADER or body_size > MAX_BODY:
                raise ProtocolError("a frame over its limits")
            end = _PREFIX.size + header_size + body_size
            if len(self._buffer) < end:
                return
            header = bytes(self._buffer[_PREFIX.size : _PREFIX.size + header_size])
            body = bytes(self._buffer[_PREFIX.size + header_size : end])
            del self._buffer[:end]
            yield _header(header), body

    def noise(self) -> str:
        """What came instead of an announcement, for the log."""
        return bytes(self._buffer[:500]).decode(errors="replace")

    def _find_announcement(self) -> bool:
        start = self._buffer.find(self._announcement)
        if start >= 0:
            del self._buffer[: start + len(self._announcement)]
            self.announced = True
            return True
        if len(self._buffer) > MAX_NOISE:
            raise ProtocolError("the session does not announce itself")
        return False


def _header(encoded: bytes) -> dict[str, Any]:
    try:
        header = msgspec.json.decode(encoded)
    except msgspec.DecodeError as error:
        raise ProtocolError("a header that is not JSON") from error
    if not isinstance(header, dict):
        raise ProtocolError("a header that is not an object")
    return header
