"""SSH public keys and signatures as bytes: RFC 4253 section 6.6, RFC 5656, RFC 8332, RFC 8709."""

import base64
from collections.abc import Mapping

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.utils import (
    decode_dss_signature,
    encode_dss_signature,
)
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_ssh_public_key,
)

PrivateKey = Ed25519PrivateKey | ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
PublicKey = Ed25519PublicKey | ec.EllipticCurvePublicKey | rsa.RSAPublicKey

RSA_ALGORITHM = b"rsa-sha2-512"
MIN_RSA_BITS = 3072
_HASHES: Mapping[int, type[hashes.HashAlgorithm]] = {
    256: hashes.SHA256,
    384: hashes.SHA384,
    521: hashes.SHA512,
}


class SignatureError(Exception):
    """A key that cannot be an authority's, or a signature that is not that key's."""


def public_blob(key: PublicKey) -> bytes:
    """The wire form of a public key.

    Raises:
        SignatureError: a curve that SSH has no name for, or RSA of fewer than 3 072 bits.
    """
    if isinstance(key, rsa.RSAPublicKey) and key.key_size < MIN_RSA_BITS:
        raise SignatureError(f"an RSA key of {key.key_size} bits; at least {MIN_RSA_BITS}")
    if isinstance(key, ec.EllipticCurvePublicKey) and not key.curve.name.startswith("secp"):
        raise SignatureError(f"a key on the curve {key.curve.name}")
    try:
        line = key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise SignatureError("a key that OpenSSH has no name for") from error
    return base64.b64decode(line.split()[1])


def key_type(blob: bytes) -> str:
    """The type name a wire form begins with."""
    return _take(blob)[0].decode("ascii")


def sign(key: PrivateKey, data: bytes) -> bytes:
    """The SSH signature blob of a key over data; RSA signs with SHA-512."""
    if isinstance(key, Ed25519PrivateKey):
        return string(b"ssh-ed25519") + string(key.sign(data))
    if isinstance(key, rsa.RSAPrivateKey):
        return rsa_signature(key.sign(data, padding.PKCS1v15(), hashes.SHA512()))
    signature = key.sign(data, ec.ECDSA(_HASHES[key.key_size]()))
    return ecdsa_signature(
        key_type(public_blob(key.public_key())), *decode_dss_signature(signature)
    )


def ecdsa_signature(kind: str, r: int, s: int) -> bytes:
    """The blob of an ECDSA signature's two numbers (RFC 5656, section 3.1.2)."""
    return string(kind.encode()) + string(_mpint(r) + _mpint(s))


def rsa_signature(signature: bytes) -> bytes:
    """The blob of a PKCS #1 v1.5 signature with SHA-512 (RFC 8332, section 3)."""
    return string(RSA_ALGORITHM) + string(signature)


def ed25519_signature(signature: bytes) -> bytes:
    """The blob of a raw Ed25519 signature (RFC 8709, section 6)."""
    return string(b"ssh-ed25519") + string(signature)


def digest_for(key: ec.EllipticCurvePublicKey) -> hashes.HashAlgorithm:
    """The hash that ECDSA on a key's curve goes with (RFC 5656, section 6.2.1)."""
    return _HASHES[key.key_size]()


def load(blob: bytes) -> PublicKey:
    """The public key of a wire form.

    Raises:
        SignatureError: not a key that certificates are signed with.
    """
    try:
        line = key_type(blob).encode() + b" " + base64.b64encode(blob)
        key = load_ssh_public_key(line)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise SignatureError("not a key of a type that signs certificates") from error
    if not isinstance(key, Ed25519PublicKey | ec.EllipticCurvePublicKey | rsa.RSAPublicKey):
        raise SignatureError("not a key of a type that signs certificates")
    return key


def verify(key: PublicKey, data: bytes, signature: bytes) -> None:
    """Return if a signature blob is this key's over the data.

    Raises:
        SignatureError: it is not, or is of an algorithm we do not sign with.
    """
    algorithm, rest = _take(signature)
    raw, _ = _take(rest)
    try:
        if isinstance(key, Ed25519PublicKey):
            _expect(algorithm, b"ssh-ed25519")
            key.verify(raw, data)
        elif isinstance(key, rsa.RSAPublicKey):
            # Never ssh-rsa, which is SHA-1: sshd refuses it.
            _expect(algorithm, RSA_ALGORITHM)
            key.verify(raw, data, padding.PKCS1v15(), hashes.SHA512())
        else:
            _expect(algorithm, key_type(public_blob(key)).encode())
            first, rest = _take(raw)
            second, _ = _take(rest)
            numbers = (int.from_bytes(first, "big"), int.from_bytes(second, "big"))
            key.verify(encode_dss_signature(*numbers), data, ec.ECDSA(digest_for(key)))
    except InvalidSignature as error:
        raise SignatureError("the signature is not this key's") from error


def string(data: bytes) -> bytes:
    """A `string` of RFC 4251, section 5."""
    return len(data).to_bytes(4, "big") + data


def _mpint(value: int) -> bytes:
    return string(value.to_bytes(value.bit_length() // 8 + 1, "big"))


def _take(data: bytes) -> tuple[bytes, bytes]:
    end = 4 + int.from_bytes(data[:4], "big")
    if len(data) < end:
        raise SignatureError("cut short")
    return data[4:end], data[end:]


def _expect(algorithm: bytes, expected: bytes) -> None:
    if algorithm != expected:
        raise SignatureError(f"signed with {algorithm!r}, not {expected!r}")
