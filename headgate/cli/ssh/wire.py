"""OpenSSH's public formats as far as we read them: key lines and user certificates.

Standard library alone and little of it: ssh waits for what imports this.
"""

import binascii
import struct

ED25519 = b"ssh-ed25519"
ED25519_CERTIFICATE = b"ssh-ed25519-cert-v01@openssh.com"
USER = 1


class WireError(ValueError):
    """These bytes are not what they should be."""


class Reader:
    """Takes the fields of the SSH wire format (RFC 4251, section 5) from bytes, in order."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._at = 0

    def take(self, size: int) -> bytes:
        """The next `size` bytes; raises WireError."""
        piece = self._content[self._at : self._at + size]
        if len(piece) != size:
            raise WireError("cut short")
        self._at += size
        return piece

    def number(self, size: int = 4) -> int:
        """A uint32, or a uint64 of 8 bytes."""
        return int.from_bytes(self.take(size), "big")

    def string(self) -> bytes:
        """A string."""
        return self.take(self.number())


def string(content: bytes) -> bytes:
    """A string of the wire format."""
    return struct.pack(">I", len(content)) + content


def blob(line: bytes) -> bytes:
    """The key or certificate of one public line; raises WireError."""
    fields = line.split(maxsplit=2)
    try:
        content = binascii.a2b_base64(fields[1])
    except (IndexError, binascii.Error) as error:
        raise WireError("no public line") from error
    if Reader(content).string() != fields[0]:
        raise WireError("a line of another type than it says")
    return content


class Certificate:
    """An Ed25519 user certificate (PROTOCOL.certkeys); times are epoch seconds.

    `key` is the public key's own blob, as an agent lists it.
    """

    def __init__(self, content: bytes) -> None:
        reader = Reader(content)
        if reader.string() != ED25519_CERTIFICATE:
            raise WireError("no Ed25519 certificate")
        reader.string()  # nonce
        public = reader.string()
        self.blob = content
        self.key = string(ED25519) + string(public)
        self.serial = reader.number(8)
        if reader.number() != USER:
            raise WireError("no user certificate")
        self.key_id = reader.string()
        principals, self.principals = Reader(reader.string()), []
        while rest := _rest(principals):
            self.principals.append(rest)
        self.valid_after = reader.number(8)
        self.valid_before = reader.number(8)

    def remaining(self, now: float) -> float:
        """Seconds it is still good for; nothing before it begins."""
        return self.valid_before - now if self.valid_after <= now else 0.0

    def worn(self, now: float) -> bool:
        """Whether it should be renewed: it ends soon, by its own measure."""
        lifetime = self.valid_before - self.valid_after
        return self.remaining(now) <= min(RENEW_SECONDS, lifetime / 4)


RENEW_SECONDS = 120.0


def _rest(reader: Reader) -> bytes:
    try:
        return reader.string()
    except WireError:
        return b""
