"""A fresh key and the certificate for it: what one connection is opened with, in memory only."""

import shlex
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


@dataclass(frozen=True, slots=True)
class IssuedCertificate:
    """The translator's answer: an OpenSSH certificate line and when it ends (aware, UTC)."""

    certificate: str
    valid_before: datetime


@dataclass(frozen=True, slots=True)
class Credentials:
    """A private key (PEM, OpenSSH format), its certificate, and until when both are good."""

    private_key: bytes
    certificate: str
    valid_before: datetime

    def forced_command(self) -> tuple[str, ...]:
        """The command that the certificate allows, as words; empty where it forces none."""
        parsed = serialization.load_ssh_public_identity(self.certificate.encode())
        if not isinstance(parsed, serialization.SSHCertificate):
            return ()
        return tuple(shlex.split(parsed.critical_options.get(b"force-command", b"").decode()))

    def answer(self) -> str:
        """What the translator said, without what differs each time: equal answers are equal.

        An sshd that refuses one certificate refuses another with the same principals,
        extensions and authority.
        """
        parsed = serialization.load_ssh_public_identity(self.certificate.encode())
        if not isinstance(parsed, serialization.SSHCertificate):
            return ""
        authority = parsed.signature_key().public_bytes(
            serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
        )
        return repr((parsed.valid_principals, sorted(parsed.extensions), authority))


Certify = Callable[[str], Awaitable[IssuedCertificate]]
"""Gets a certificate for an OpenSSH public key line."""


async def fresh(certify: Certify) -> Credentials:
    """A new key pair, certified."""
    key = Ed25519PrivateKey.generate()
    public = key.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.OpenSSH,
        serialization.NoEncryption(),
    )
    issued = await certify(public.decode())
    return Credentials(private, issued.certificate, issued.valid_before)
