"""Certificate authorities: public keys to hand out, and one that signs, from a file."""

import base64
from pathlib import Path
from typing import Protocol

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_ssh_private_key,
)

from headgate.settings import SettingsError
from token_translator.keys import fingerprint
from token_translator.signer.certificate import ed25519_blob, ed25519_signature
from token_translator.signer.files import read_private, write_new


class Authority(Protocol):
    """A key that certificates are signed with, wherever it is kept."""

    blob: bytes
    comment: str

    def sign(self, data: bytes) -> bytes:
        """An SSH signature blob over `data` (RFC 4253, section 6.6)."""


class FileAuthority:
    """An Ed25519 authority key in a file of ours, as `ssh-keygen` and `init` write it."""

    def __init__(self, key: Ed25519PrivateKey, comment: str) -> None:
        self._key = key
        self.comment = comment
        self.blob = ed25519_blob(key.public_key().public_bytes_raw())

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
        if not isinstance(key, Ed25519PrivateKey):
            raise SettingsError(f"{path}: not an Ed25519 key")
        return cls(key, path.name)

    def sign(self, data: bytes) -> bytes:
        """An `ssh-ed25519` signature blob over `data`."""
        return ed25519_signature(self._key.sign(data))


def public_line(authority: Authority) -> str:
    """An authority's public key as one line for sshd's TrustedUserCAKeys."""
    encoded = base64.b64encode(authority.blob).decode()
    return f"ssh-ed25519 {encoded} {authority.comment}"


def create(path: Path) -> str:
    """Make a new authority key, with its public line beside it in `.pub`; its fingerprint.

    Raises:
        SettingsError: one of the files is there already.
    """
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    write_new(path, private, 0o600)
    line = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
    write_new(path.with_name(f"{path.name}.pub"), f"{line} {path.name}\n".encode(), 0o644)
    return fingerprint(FileAuthority(key, path.name).blob)
