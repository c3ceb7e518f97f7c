"""OpenSSH key revocation lists, built without ssh-keygen. Source: OpenSSH PROTOCOL.krl."""

import base64
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from token_translator.signer.revocations import Now

MAGIC = b"SSHKRL\n\0"
FORMAT_VERSION = 1
NEVER = datetime.fromtimestamp(0, UTC)

CERTIFICATES, EXPLICIT_KEY, FINGERPRINT_SHA256 = 1, 2, 5
SERIAL_LIST, SERIAL_RANGE, SERIAL_BITMAP = 0x20, 0x21, 0x22

MAX_BITMAP_BITS = 16_000
"""sshd reads a bitmap as an mpint, of which it takes 16 384 bits at most (sshbuf.h)."""
SECTION_BYTES = 5
RANGE_BYTES = SECTION_BYTES + 16
BITMAP_BYTES = SECTION_BYTES + 8 + 4 + 1
SERIAL_BYTES = 8

Range = tuple[int, int]
"""A closed range of serials."""


@dataclass(frozen=True, slots=True)
class RevocationList:
    """What is revoked; `version` grows with each revocation.

    `serials` are closed, disjoint, ascending ranges, of certificates by any of `certifying`;
    `revoked_keys` and `certifying` are public keys as SSH wire blobs; a revoked key of an authority
    takes all its certificates with it. `fingerprints` are SHA-256, 32 bytes each.
    """

    version: int
    generated_at: datetime
    comment: str = ""
    certifying: tuple[bytes, ...] = ()
    serials: tuple[Range, ...] = ()
    revoked_keys: tuple[bytes, ...] = ()
    fingerprints: tuple[bytes, ...] = ()

    @classmethod
    def of(cls, now: Now, certifying: Sequence[str]) -> "RevocationList":
        """The list of what is revoked; `certifying` are the authorities, as OpenSSH lines.

        Its moment is fixed, so that all replicas make the same bytes; when it was true is signed
        beside it.
        """
        return cls(
            version=now.version,
            generated_at=NEVER,
            certifying=tuple(_blob(line) for line in certifying),
            serials=now.serials,
            revoked_keys=tuple(_blob(line) for line in now.authorities),
            fingerprints=tuple(_digest(fingerprint) for fingerprint in now.keys),
        )

    def encode(self) -> bytes:
        """The file that sshd's RevokedKeys reads."""
        header = b"".join(
            (
                MAGIC,
                FORMAT_VERSION.to_bytes(4, "big"),
                self.version.to_bytes(8, "big"),
                int(self.generated_at.timestamp()).to_bytes(8, "big"),
                (0).to_bytes(8, "big"),  # flags: none are defined
                _string(b""),  # reserved
                _string(self.comment.encode()),
            )
        )
        return header + b"".join(self._sections())

    def _sections(self) -> Iterator[bytes]:
        if self.serials:
            # The same for each authority: serials are counted once for all of them.
            revoked = _serials(self.serials)
            for authority in self.certifying:
                yield _section(CERTIFICATES, _string(authority) + _string(b"") + revoked)
        for kind, values in (
            (EXPLICIT_KEY, self.revoked_keys),
            (FINGERPRINT_SHA256, self.fingerprints),
        ):
            if values:
                yield _section(kind, b"".join(_string(value) for value in sorted(values)))


def _serials(ranges: Sequence[Range]) -> bytes:
    """Ranges in the fewest bytes that are found easily: a bitmap, ranges or a list for each lot."""
    listed: list[int] = []
    sections = []
    for lot in _lots(ranges):
        count = sum(last - first + 1 for first, last in lot)
        as_list = SERIAL_BYTES * count
        as_ranges = RANGE_BYTES * len(lot)
        as_bitmap = BITMAP_BYTES + (lot[-1][1] - lot[0][0]) // 8 + 1
        best = min(as_list, as_ranges, as_bitmap)
        if best == as_list:
            listed += (serial for first, last in lot for serial in range(first, last + 1))
        elif best == as_ranges:
            sections += [_section(SERIAL_RANGE, _u64(first) + _u64(last)) for first, last in lot]
        else:
            sections.append(_section(SERIAL_BITMAP, _bitmap(lot)))
    if listed:
        sections.append(_section(SERIAL_LIST, b"".join(map(_u64, listed))))
    return b"".join(sections)


def _lots(ranges: Sequence[Range]) -> Iterator[list[Range]]:
    """Neighbours that fit into one bitmap, and are near enough for that to be worth while."""
    lot: list[Range] = []
    for one in ranges:
        fits = lot and one[1] - lot[0][0] < MAX_BITMAP_BITS
        if lot and not (fits and one[0] - lot[-1][1] <= 8 * SERIAL_BYTES):
            yield lot
            lot = []
        lot.append(one)
    if lot:
        yield lot


def _bitmap(lot: Sequence[Range]) -> bytes:
    """The lot's first serial, and a bit for each serial from there on."""
    offset = lot[0][0]
    bits = 0
    for first, last in lot:
        bits |= ((1 << (last - first + 1)) - 1) << (first - offset)
    # An mpint (RFC 4251, section 5): the highest bit is a sign, and never set here.
    return _u64(offset) + _string(bits.to_bytes(bits.bit_length() // 8 + 1, "big"))


def _section(kind: int, content: bytes) -> bytes:
    return kind.to_bytes(1, "big") + _string(content)


def _string(value: bytes) -> bytes:
    return len(value).to_bytes(4, "big") + value


def _u64(number: int) -> bytes:
    return number.to_bytes(8, "big")


def _blob(line: str) -> bytes:
    """The key of an OpenSSH public key line, as it is on the wire."""
    return base64.b64decode(line.split()[1], validate=True)


def _digest(fingerprint: str) -> bytes:
    """The 32 bytes of `SHA256:…` (base64 without its padding)."""
    return base64.b64decode(fingerprint.removeprefix("SHA256:") + "=", validate=True)
