"""Certificate authorities: public keys to hand out, and one that signs, from a file."""

import base64
from pathlib import Path
from typing import Protocol

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_ssh_private_key,
)

from headgate.settings import SettingsError
from token_translator.keys import fingerprint
from token_translator.signer import signatures
from token_translator.signer.files import read_private, write_new


class AuthorityError(Exception):
    """The key did not sign: what it is in is away, locked, late, or answers with something else."""


class Authority(Protocol):
    """A key that certificates are signed with, wherever it is kept.

    `blob` is the public key's wire form (RFC 4253, section 6.6).
    """

    blob: bytes
    comment: str

    async def sign(self, data: bytes) -> bytes:
        """An SSH signature blob over `data`; raises `AuthorityError`."""

    async def close(self) -> None:
        """Let go of what the key is in."""


class FileAuthority:
    """An authority key in a file of ours: Ed25519, ECDSA on a NIST curve, or RSA from 3 072 bits.

    It signs in the calling thread: that takes some tens of microseconds, RSA a millisecond.
    """

    def __init__(self, key: signatures.PrivateKey, comment: str) -> None:
        self._key = key
        self.comment = comment
        self.blob = signatures.public_blob(key.public_key())

    @classmethod
    def load(cls, path: Path) -> "FileAuthority":
        """With the key in a file of mode 0600 that belongs to this process's uid.

        Raises:
            SettingsError: the file is not such a one, or holds something else.
        """
        content = read_private(path)
        try:
            key = load_ssh_private_key(content, password=None)
        except (ValueError, TypeError, UnsupportedAlgorithm) as error:
            raise SettingsError(f"{path}: not an OpenSSH private key without passphrase") from error
        if not isinstance(key, Ed25519PrivateKey | ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey):
            raise SettingsError(f"{path}: not an Ed25519, ECDSA or RSA key")
        try:
            return cls(key, path.name)
        except signatures.SignatureError as error:
            raise SettingsError(f"{path}: {error}") from error

    async def sign(self, data: bytes) -> bytes:
        """An SSH signature blob over `data`."""
        return signatures.sign(self._key, data)

    async def close(self) -> None:
        """Nothing to let go of."""


def public_line(authority: Authority) -> str:
    """An authority's public key as one line for sshd's TrustedUserCAKeys."""
    encoded = base64.b64encode(authority.blob).decode()
    return f"{signatures.key_type(authority.blob)} {encoded} {authority.comment}"


def create(path: Path) -> str:
    """Make a new Ed25519 authority key, with its public line in `.pub` beside it; its fingerprint.

    Raises:
        SettingsError: one of the files is there already.
    """
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    write_new(path, private, 0o600)
    made = FileAuthority(key, path.name)
    write_new(path.with_name(f"{path.name}.pub"), f"{public_line(made)}\n".encode(), 0o644)
    return fingerprint(made.blob)
