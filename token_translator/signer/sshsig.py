"""Signatures over other things than certificates. Source: OpenSSH PROTOCOL.sshsig.

What is signed begins with a magic that no certificate begins with: neither passes for the other.
"""

import hashlib

from token_translator.signer.signatures import string

MAGIC = b"SSHSIG"
VERSION = 1
HASH = b"sha512"


def to_be_signed(message: bytes, namespace: str) -> bytes:
    """What the key signs."""
    digest = hashlib.sha512(message).digest()
    parts = (namespace.encode(), b"", HASH, digest)
    return MAGIC + b"".join(string(part) for part in parts)


def blob(key: bytes, namespace: str, signature: bytes) -> bytes:
    """The signature as a file holds it between its armour: with the key's wire form in it."""
    parts = (key, namespace.encode(), b"", HASH, signature)
    return MAGIC + VERSION.to_bytes(4, "big") + b"".join(string(part) for part in parts)
