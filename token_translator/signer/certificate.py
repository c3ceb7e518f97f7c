"""OpenSSH certificates, byte by byte.

Source: OpenSSH PROTOCOL.certkeys. The key's own fields are copied as they are, so that every type
of key works (security keys too), and what is to be signed is apart from the signing, so that an
agent or a token can do it; the builders of the libraries have neither (docs/decisions/0007).
"""

import base64
import secrets
from collections.abc import Sequence
from datetime import datetime

from token_translator.grants import Grant
from token_translator.keys import PublicKey
from token_translator.signer.signatures import string

USER = 1
HOST = 2
NONCE_BYTES = 32


def of_user(key: PublicKey, grant: Grant, *, serial: int, key_id: str, authority: bytes) -> bytes:
    """All of a user certificate but the signature; `authority` is the CA key's wire form."""
    return _to_be_signed(
        key,
        kind=USER,
        serial=serial,
        key_id=key_id,
        principals=grant.principals,
        valid=(grant.valid_after, grant.valid_before),
        critical_options=_critical_options(grant),
        extensions=b"".join(_option(name, None) for name in sorted(grant.extensions)),
        authority=authority,
    )


def of_host(
    key: PublicKey,
    hostnames: Sequence[str],
    *,
    valid: tuple[datetime, datetime],
    serial: int,
    key_id: str,
    authority: bytes,
) -> bytes:
    """All of a host certificate but the signature; it has no options."""
    return _to_be_signed(
        key,
        kind=HOST,
        serial=serial,
        key_id=key_id,
        principals=hostnames,
        valid=valid,
        critical_options=b"",
        extensions=b"",
        authority=authority,
    )


def _to_be_signed(
    key: PublicKey,
    *,
    kind: int,
    serial: int,
    key_id: str,
    principals: Sequence[str],
    valid: tuple[datetime, datetime],
    critical_options: bytes,
    extensions: bytes,
    authority: bytes,
) -> bytes:
    own_type = string(key.kind.encode())
    return b"".join(
        (
            string(certificate_type(key.kind).encode()),
            string(secrets.token_bytes(NONCE_BYTES)),
            key.blob[len(own_type) :],
            serial.to_bytes(8, "big"),
            kind.to_bytes(4, "big"),
            string(key_id.encode()),
            string(b"".join(string(name.encode()) for name in principals)),
            *(int(moment.timestamp()).to_bytes(8, "big") for moment in valid),
            string(critical_options),
            string(extensions),
            string(b""),  # reserved
            string(authority),
        )
    )


def line(key: PublicKey, signed: bytes, signature: bytes) -> str:
    """The certificate as one line for a `-cert.pub` file; `signature` is an SSH signature blob."""
    body = base64.b64encode(signed + string(signature)).decode()
    return f"{certificate_type(key.kind)} {body}"


def certificate_type(kind: str) -> str:
    """The type name of a certificate for keys of a type: `…-cert-v01@openssh.com`."""
    return f"{kind.removesuffix('@openssh.com')}-cert-v01@openssh.com"


def _critical_options(grant: Grant) -> bytes:
    # In lexical order of their names, as the format demands.
    options = b""
    if grant.force_command:
        options += _option("force-command", grant.force_command)
    if grant.source_addresses:
        options += _option("source-address", ",".join(grant.source_addresses))
    return options


def _option(name: str, value: str | None) -> bytes:
    data = b"" if value is None else string(value.encode())
    return string(name.encode()) + string(data)
