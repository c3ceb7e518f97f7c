"""Which public keys get a certificate: one OpenSSH line in, a checked key or a reason out.

Sources: RFC 4253, section 6.6 (RSA), RFC 5656 (ECDSA), RFC 8709 (Ed25519), OpenSSH PROTOCOL.u2f;
for CVE-2017-15361 ("ROCA") Nemec and others, The Return of Coppersmith's Attack, section 2 (2017).
"""

import base64
import binascii
import hashlib
import math
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, rsa

MAX_LINE = 8 * 1024
MIN_RSA_BITS = 3072
MAX_RSA_BITS = 16384  # sshd refuses larger ones
_SMALL_PRIMES = math.prod(
    number for number in range(2, 200) if all(number % low for low in range(2, number))
)
"""A modulus of two large primes has none of them: one that has is broken or made up."""

_ROCA = tuple(
    (prime, frozenset(pow(65537, power, prime) for power in range(prime)))
    for prime in range(3, 168)
    if all(prime % low for low in range(2, prime))
)
"""Primes, and the powers of 65537 modulo each: a faulty library's keys are made of nothing else."""

DEFAULT_TYPES = (
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "ssh-rsa",
)
SECURITY_KEY_TYPES = ("sk-ssh-ed25519@openssh.com", "sk-ecdsa-sha2-nistp256@openssh.com")
ALL_TYPES = (*DEFAULT_TYPES, *SECURITY_KEY_TYPES)

_CURVES: Mapping[str, ec.EllipticCurve] = {
    "nistp256": ec.SECP256R1(),
    "nistp384": ec.SECP384R1(),
    "nistp521": ec.SECP521R1(),
}


class KeyRefusedError(Exception):
    """A public key that gets no certificate; the message tells its owner why."""


@dataclass(frozen=True, slots=True)
class PublicKey:
    """An accepted public key: its OpenSSH type and its wire form (RFC 4253, section 6.6)."""

    kind: str
    blob: bytes

    @property
    def fingerprint(self) -> str:
        """As `ssh-keygen -l` shows it."""
        return fingerprint(self.blob)


def fingerprint(blob: bytes) -> str:
    """`SHA256:` and the unpadded base64 of the digest of a key's wire form."""
    digest = base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")
    return f"SHA256:{digest}"


def accept(
    line: str,
    *,
    types: Collection[str] = DEFAULT_TYPES,
    reserved: Collection[bytes] = (),
) -> PublicKey:
    """The key of one line of a `.pub` file: type, base64, comment.

    `types` are the OpenSSH types accepted here; `reserved` are wire forms that never get a
    certificate, the authorities' own keys.

    Raises:
        KeyRefusedError: for everything else; the line itself is not repeated.
    """
    kind, encoded = _split(line)
    _check_kind(kind, types)
    try:
        blob = base64.b64decode(encoded, validate=True)
    except binascii.Error as error:
        raise KeyRefusedError("The key's second word is not base64.") from error
    reader = _Reader(blob)
    if reader.string() != kind.encode():
        raise KeyRefusedError("The key says one type in its first word and another inside.")
    _CHECKS[kind](reader)
    reader.finish()
    if blob in reserved:
        raise KeyRefusedError("This is the certificate authority's own key.")
    return PublicKey(kind, blob)


def _split(line: str) -> tuple[str, str]:
    if "PRIVATE KEY" in line[:200]:
        raise KeyRefusedError(
            "This is a private key. It never leaves your machine: consider it exposed, make a new "
            "pair and send the .pub file."
        )
    if len(line) > MAX_LINE:
        raise KeyRefusedError(f"The key is longer than {MAX_LINE} characters.")
    text = line.strip(" \t\r\n")
    if re.search(r"[\x00-\x08\x0a-\x1f\x7f]", text):
        raise KeyRefusedError("Send one key, on one line.")
    words = text.split(None, 2)
    if len(words) < 2:  # noqa: PLR2004 - type and key
        raise KeyRefusedError("This is not an OpenSSH public key: a type, a space, and base64.")
    return words[0], words[1]


def _check_kind(kind: str, types: Collection[str]) -> None:
    if kind in types:
        return
    if kind.endswith("-cert-v01@openssh.com"):
        raise KeyRefusedError("This is a certificate; send the public key it was made for.")
    if kind == "ssh-dss":
        raise KeyRefusedError("DSA keys are not accepted; make one with ssh-keygen -t ed25519.")
    if kind in SECURITY_KEY_TYPES:
        raise KeyRefusedError("Keys on security tokens (sk-…) are not accepted at this site.")
    if kind in ALL_TYPES:
        raise KeyRefusedError(f"Keys of type {kind} are not accepted at this site.")
    if not re.fullmatch(r"(ssh|sk|ecdsa)-[A-Za-z0-9@.-]{1,60}", kind):
        raise KeyRefusedError(
            "The line does not begin with a key type; options before a key are not accepted."
        )
    raise KeyRefusedError(f"Keys of type {kind} are not accepted; use ssh-keygen -t ed25519.")


class _Reader:
    """Takes an SSH wire form apart (RFC 4251, section 5)."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def string(self) -> bytes:
        end = self._at + 4
        size = int.from_bytes(self._data[self._at : end], "big")
        if end > len(self._data) or end + size > len(self._data):
            raise KeyRefusedError("The key is cut short.")
        self._at = end + size
        return self._data[end : self._at]

    def integer(self) -> int:
        """A positive mpint in its shortest form."""
        data = self.string()
        value = int.from_bytes(data, "big", signed=True)
        if value <= 0 or len(data) != value.bit_length() // 8 + 1:
            raise KeyRefusedError("The key holds a number that is not well-formed.")
        return value

    def finish(self) -> None:
        if self._at != len(self._data):
            raise KeyRefusedError("There is something behind the key.")


def _ed25519(reader: _Reader) -> None:
    if len(reader.string()) != 32:  # noqa: PLR2004 - RFC 8709, section 4
        raise KeyRefusedError("An Ed25519 key has 32 bytes; this one has not.")


def _ecdsa_on(name: str) -> Callable[[_Reader], None]:
    def check(reader: _Reader) -> None:
        if reader.string() != name.encode():
            raise KeyRefusedError("The key says one curve in its first word and another inside.")
        _point(reader, _CURVES[name])

    return check


def _point(reader: _Reader, curve: ec.EllipticCurve) -> None:
    point = reader.string()
    if point[:1] != b"\x04":
        raise KeyRefusedError("The ECDSA key is not in uncompressed form (RFC 5656, section 3.1).")
    try:
        ec.EllipticCurvePublicKey.from_encoded_point(curve, point)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise KeyRefusedError("The ECDSA key is not a point on its curve.") from error


def _rsa(reader: _Reader) -> None:
    exponent, modulus = reader.integer(), reader.integer()
    bits = modulus.bit_length()
    if bits < MIN_RSA_BITS:
        raise KeyRefusedError(f"The RSA key has {bits} bits; at least {MIN_RSA_BITS} are needed.")
    if bits > MAX_RSA_BITS:
        raise KeyRefusedError(f"The RSA key has {bits} bits; at most {MAX_RSA_BITS} are accepted.")
    if math.gcd(modulus, _SMALL_PRIMES) != 1:
        raise KeyRefusedError("The RSA key's modulus is divisible by a small number.")
    if all(modulus % prime in powers for prime, powers in _ROCA):
        # One in two hundred million others looks so, too: it loses nothing but a minute.
        raise KeyRefusedError(
            "The RSA key was made by a chip whose keys can be computed from their public half "
            "(CVE-2017-15361): replace it wherever it is used; ssh-keygen -t ed25519 makes one."
        )
    try:
        rsa.RSAPublicNumbers(exponent, modulus).public_key()
    except ValueError as error:
        raise KeyRefusedError("The RSA key's numbers are not those of an RSA key.") from error


def _security_key(check: Callable[[_Reader], None]) -> Callable[[_Reader], None]:
    def checked(reader: _Reader) -> None:
        check(reader)
        if not re.fullmatch(rb"ssh:[\x21-\x7e]{0,100}", reader.string()):
            raise KeyRefusedError("The security key's application does not begin with ssh:.")

    return checked


_CHECKS: Mapping[str, Callable[[_Reader], None]] = {
    "ssh-ed25519": _ed25519,
    "ssh-rsa": _rsa,
    **{f"ecdsa-sha2-{name}": _ecdsa_on(name) for name in _CURVES},
    "sk-ssh-ed25519@openssh.com": _security_key(_ed25519),
    "sk-ecdsa-sha2-nistp256@openssh.com": _security_key(_ecdsa_on("nistp256")),
}
