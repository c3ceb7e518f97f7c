"""OpenSSH user certificates, byte by byte.

Source: OpenSSH PROTOCOL.certkeys. The key's own fields are copied as they are, so that every type
of key works (security keys too), and what is to be signed is apart from the signing, so that an
agent or a token can do it; the builders of the libraries have neither.
"""

import base64
import secrets

from token_translator.grants import Grant
from token_translator.keys import PublicKey

USER = 1
NONCE_BYTES = 32


def to_be_signed(
    key: PublicKey, grant: Grant, *, serial: int, key_id: str, authority: bytes
) -> bytes:
    """All of the certificate but the signature; `authority` is the CA key's wire form."""
    own_type = _string(key.kind.encode())
    return b"".join(
        (
            _string(certificate_type(key.kind).encode()),
            _string(secrets.token_bytes(NONCE_BYTES)),
            key.blob[len(own_type) :],
            serial.to_bytes(8, "big"),
            USER.to_bytes(4, "big"),
            _string(key_id.encode()),
            _string(b"".join(_string(name.encode()) for name in grant.principals)),
            int(grant.valid_after.timestamp()).to_bytes(8, "big"),
            int(grant.valid_before.timestamp()).to_bytes(8, "big"),
            _string(_critical_options(grant)),
            _string(b"".join(_option(name, None) for name in sorted(grant.extensions))),
            _string(b""),  # reserved
            _string(authority),
        )
    )


def line(key: PublicKey, signed: bytes, signature: bytes) -> str:
    """The certificate as one line for a `-cert.pub` file; `signature` is an SSH signature blob."""
    body = base64.b64encode(signed + _string(signature)).decode()
    return f"{certificate_type(key.kind)} {body}"


def certificate_type(kind: str) -> str:
    """The type name of a certificate for keys of a type: `…-cert-v01@openssh.com`."""
    return f"{kind.removesuffix('@openssh.com')}-cert-v01@openssh.com"


def ed25519_signature(signature: bytes) -> bytes:
    """The SSH signature blob of a raw Ed25519 signature (RFC 8709, section 6)."""
    return _string(b"ssh-ed25519") + _string(signature)


def ed25519_blob(public: bytes) -> bytes:
    """The wire form of a raw Ed25519 public key (RFC 8709, section 4)."""
    return _string(b"ssh-ed25519") + _string(public)


def _critical_options(grant: Grant) -> bytes:
    # In lexical order of their names, as the format demands.
    options = b""
    if grant.force_command:
        options += _option("force-command", grant.force_command)
    if grant.source_addresses:
        options += _option("source-address", ",".join(grant.source_addresses))
    return options


def _option(name: str, value: str | None) -> bytes:
    data = b"" if value is None else _string(value.encode())
    return _string(name.encode()) + _string(data)


def _string(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data
