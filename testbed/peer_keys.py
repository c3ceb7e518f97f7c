"""The keys by which the services of a test site know each other."""

from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from joserfc import jwk

from testbed.files import Files


def make_peer_key(files: Files, service: str) -> dict[str, Any]:
    """A service's own key in its file; the public half as a JWK."""
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    path = key_path(files, service)
    files.write(f"conf/{path.name}", private, owner=service, mode=0o600)
    return dict(jwk.OKPKey.import_key(private).as_dict(private=False))


def key_path(files: Files, service: str) -> Path:
    """Where it is."""
    return files.path("conf", f"{service}.key")
