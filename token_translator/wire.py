"""What the HTTP service and the signer say to each other over the unix socket.

A frame is a big-endian u32 length and that many bytes of JSON. Requests carry an id, answers come
in any order. Frames rather than HTTP: there is one client and a handful of verbs, the process that
holds the key should parse as little as can be, and a kept connection saves a few hundred
microseconds each.
"""

import asyncio
from typing import Annotated, Literal

import msgspec

from token_translator.grants import Grant, Moment

MAX_FRAME = 64 * 1024
"""Bytes of a request; what the signer reads is short."""
MAX_ANSWER = 32 * 1024 * 1024
"""Bytes of an answer: a revocation list may be long."""
MAX_SERIAL = 2**63 - 1
MAX_REVOKED_AT_ONCE = 2000
LIVE_AT_ONCE = 1000
"""Certificates in one answer to `ListLive`."""

MAX_ISSUER, MAX_FIELD = 1024, 255
"""Characters: what is about one certificate is short, so that its entry fits into a datagram."""
MAX_REASON = 1000
MAX_MARK = 2**62

Serial = Annotated[int, msgspec.Meta(ge=1, le=MAX_SERIAL)]
Issuer = Annotated[str, msgspec.Meta(max_length=MAX_ISSUER)]
Field = Annotated[str, msgspec.Meta(max_length=MAX_FIELD)]
Mark = Literal["changes", "denials"]
"""What the asking process counts: names of its own could be used up."""
Word = Annotated[str, msgspec.Meta(pattern=r"^[a-z][a-z0-9_]{0,63}\Z")]
FINGERPRINT = r"^SHA256:[A-Za-z0-9+/]{43}\Z"
Fingerprint = Annotated[str, msgspec.Meta(pattern=FINGERPRINT)]
"""As `ssh-keygen -l` shows a key."""


class FrameError(Exception):
    """The other side does not speak this protocol."""


class Subject(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Whom and what a certificate is for, as the ledger keeps it (encrypted under their key).

    `token` is a fingerprint. `instance`, `row` and `verb` are of the service that asked.
    """

    iss: Issuer
    sub: Field
    account: Field
    realm: Field
    profile: Field
    client_id: Field = ""
    actor: Field = ""
    token: Field = ""
    instance: Field = ""
    row: Field = ""
    verb: Field = ""
    request_id: Field = ""


class Sign(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="sign"):
    """Ask for a user certificate; `public_key` is one line as in a `.pub` file."""

    id: int
    grant: Grant
    public_key: str
    key_id: str
    subject: Subject


class SignHost(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="sign_host"):
    """Ask for a host certificate, good for these names; all of them are within a ceiling.

    `subject` is who asked for it: of the profile `host`, without account and realm.
    """

    id: int
    hostnames: tuple[str, ...]
    valid_after: Moment
    valid_before: Moment
    public_key: str
    key_id: str
    subject: Subject


class Refuse(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="refuse"):
    """Have a refusal by policy recorded; `code` is the problem's. A person's flood is counted."""

    id: int
    subject: Subject
    code: Word


class Note(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="note"):
    """Have recorded what happened at the asking process, such as a login that PAM was told of.

    `event` says what, `detail` in a few words, encrypted as the subject is. `mark` is the name and
    the number of a state of the asking process that only grows: the highest of each name is kept,
    and tells it later that its own database went back (`ListMarks`). Without a mark, somebody's
    flood of one event is counted as refusals are; but each `pam_accepted` is recorded, or refused.
    """

    id: int
    subject: Subject
    event: Word
    detail: Field = ""
    mark: tuple[Mark, Annotated[int, msgspec.Meta(ge=1, le=MAX_MARK)]] | None = None


class Revoke(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="revoke"):
    """Revoke certificates for good: by serial, all unexpired ones of an identity, by key.

    `identity` is (iss, sub), `keys` and `authority` are fingerprints (`SHA256:…`) of certified and
    of authorities' keys. `by` is `peer:<instance>`, `admin:<iss>#<sub>`, `owner:<iss>#<sub>` or
    `local:<unix user>`.
    """

    id: int
    reason: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_REASON)]
    by: Annotated[str, msgspec.Meta(min_length=1, max_length=1400)]
    serials: Annotated[tuple[Serial, ...], msgspec.Meta(max_length=MAX_REVOKED_AT_ONCE)] = ()
    identity: tuple[Issuer, Field] | None = None
    keys: Annotated[tuple[Fingerprint, ...], msgspec.Meta(max_length=100)] = ()
    # Not `Fingerprint | Literal[""]`: the pattern would hold for both.
    authority: Annotated[str, msgspec.Meta(pattern=r"^(SHA256:[A-Za-z0-9+/]{43})?\Z")] = ""


class ListRevoked(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="list_revoked"):
    """Ask for the key revocation list of now; not again for the one whose digest is `known`."""

    id: int
    known: Annotated[str, msgspec.Meta(max_length=64)] = ""


class ListLive(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="list_live"):
    """Ask for one identity's (iss, sub) own unexpired certificates, the newest first.

    `before` is a serial: those below it, the page that follows one that ended with it; 0: all.
    """

    id: int
    identity: tuple[Issuer, Field]
    before: Annotated[int, msgspec.Meta(ge=0, le=MAX_SERIAL)] = 0


class ListMarks(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="list_marks"):
    """Ask for the highest number of each mark that was noted."""

    id: int


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


class Recorded(msgspec.Struct, frozen=True, tag="recorded"):
    """A refusal or a note is in the ledger, or counted for the next one that will be."""

    id: int


class Marks(msgspec.Struct, frozen=True, tag="marks"):
    """The highest number of each mark, by its name."""

    id: int
    marks: dict[str, int]


Effect = Literal["revoked", "already", "nothing"]
"""Of an order to revoke: something new, nothing but what was before, nothing that there is."""


class Revoked(msgspec.Struct, frozen=True, tag="revoked"):
    """Revoked, and in the ledger as entry `version`; the serials that this concerns."""

    id: int
    version: int
    serials: tuple[int, ...]
    effect: Effect = "revoked"


class RevokedNow(msgspec.Struct, frozen=True, tag="revoked_now"):
    """The key revocation list of now, and the signer's word for it.

    `version` is the ledger entry of the newest revocation, 0 before the first; `digest` the hex
    SHA-256 of the list, which is left out where it is `known`. `statement` says both and the
    moment; `signatures` of it are OpenSSH's (PROTOCOL.sshsig), by the users' authorities.
    """

    id: int
    version: int
    digest: str
    body: bytes | None
    statement: str
    signatures: tuple[bytes, ...]


class LiveCertificate(msgspec.Struct, frozen=True):
    """An unexpired certificate; `instance`, `row` and `verb` of the service it was made for."""

    serial: int
    valid_before: Moment
    profile: str
    revoked: bool = False
    instance: str = ""
    row: str = ""
    verb: str = ""


class Live(msgspec.Struct, frozen=True, tag="live"):
    """One identity's unexpired certificates, at most 1 000, the newest first."""

    id: int
    certificates: tuple[LiveCertificate, ...]


Code = Literal["ceiling", "key_refused", "rate", "malformed", "failed"]


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """Why there is no certificate: a code, and a sentence for the person who asked."""

    id: int
    code: Code
    detail: str


Request = Sign | SignHost | Refuse | Note | Revoke | ListRevoked | ListLive | ListMarks | Show
Answer = Signed | Recorded | Revoked | RevokedNow | Live | Marks | Authorities | Refused


async def read_frame(reader: asyncio.StreamReader, most: int = MAX_FRAME) -> bytes | None:
    """The next frame's bytes, no more than `most`; None at a clean end of the stream.

    Raises:
        FrameError: longer than that, or cut short.
    """
    try:
        head = await reader.readexactly(4)
    except asyncio.IncompleteReadError as error:
        if error.partial:
            raise FrameError("the stream ended within a frame") from error
        return None
    size = int.from_bytes(head, "big")
    if size > most:
        raise FrameError(f"a frame of {size} bytes")
    try:
        return await reader.readexactly(size)
    except asyncio.IncompleteReadError as error:
        raise FrameError("the stream ended within a frame") from error


def frame(message: Request | Answer) -> bytes:
    """A message as a frame."""
    body = msgspec.json.encode(message)
    return len(body).to_bytes(4, "big") + body
