"""What the HTTP service and the signer say to each other over the unix socket.

A frame is a big-endian u32 length and that many bytes of JSON. Requests carry an id, answers come
in any order. Frames rather than HTTP: there is one client and two verbs, the process that holds the
key should parse as little as can be, and a kept connection saves a few hundred microseconds each.
"""

import asyncio
from typing import Literal

import msgspec

from token_translator.grants import Grant

MAX_FRAME = 64 * 1024


class FrameError(Exception):
    """The other side does not speak this protocol."""


class Subject(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Whom and what a certificate is for, as the ledger keeps it (encrypted under their key).

    `token` is a fingerprint. `instance`, `row` and `verb` are of the service that asked.
    """

    iss: str
    sub: str
    account: str
    realm: str
    profile: str
    client_id: str = ""
    actor: str = ""
    token: str = ""
    instance: str = ""
    row: str = ""
    verb: str = ""
    request_id: str = ""


class Sign(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="sign"):
    """Ask for a user certificate; `public_key` is one line as in a `.pub` file."""

    id: int
    grant: Grant
    public_key: str
    key_id: str
    subject: Subject


class Show(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="show"):
    """Ask for the authorities' public keys."""

    id: int


class Signed(msgspec.Struct, frozen=True, tag="signed"):
    """A certificate, recorded in the ledger before this was sent."""

    id: int
    certificate: str
    serial: int


class Authorities(msgspec.Struct, frozen=True, tag="authorities"):
    """Public keys as OpenSSH lines; the first of each kind signs, the others are trusted too."""

    id: int
    user_ca: tuple[str, ...]
    host_ca: tuple[str, ...]


Code = Literal["ceiling", "key_refused", "rate", "malformed", "failed"]


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """Why there is no certificate: a code, and a sentence for the person who asked."""

    id: int
    code: Code
    detail: str


Request = Sign | Show
Answer = Signed | Authorities | Refused


async def read_frame(reader: asyncio.StreamReader) -> bytes | None:
    """The next frame's bytes; None at a clean end of the stream.

    Raises:
        FrameError: longer than `MAX_FRAME`, or cut short.
    """
    try:
        head = await reader.readexactly(4)
    except asyncio.IncompleteReadError as error:
        if error.partial:
            raise FrameError("the stream ended within a frame") from error
        return None
    size = int.from_bytes(head, "big")
    if size > MAX_FRAME:
        raise FrameError(f"a frame of {size} bytes")
    try:
        return await reader.readexactly(size)
    except asyncio.IncompleteReadError as error:
        raise FrameError("the stream ended within a frame") from error


def frame(message: Request | Answer) -> bytes:
    """A message as a frame."""
    body = msgspec.json.encode(message)
    return len(body).to_bytes(4, "big") + body
