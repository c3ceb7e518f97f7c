"""Certificates as bytes, read back by other implementations."""

import asyncio
import base64
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, ssh

from headgate.settings import SettingsError
from token_translator.grants import Grant
from token_translator.keys import ALL_TYPES, accept
from token_translator.signer import authority, certificate, signatures

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
GRANT = Grant(
    principals=("hg:site1:alice", "hg:site2:alice"),
    valid_after=NOW,
    valid_before=NOW + timedelta(hours=1),
    source_addresses=("192.0.2.0/24", "2001:db8::/32"),
    force_command="/usr/libexec/session --only status:1",
    extensions=("permit-pty", "permit-X11-forwarding"),
)


@pytest.fixture
def user_ca(tmp_path: Path) -> authority.FileAuthority:
    """A fresh authority, from its file."""
    authority.create(tmp_path / "user_ca")
    return authority.FileAuthority.load(tmp_path / "user_ca")


async def certify(user_ca: authority.FileAuthority, line: str) -> str:
    """A certificate for a key line."""
    key = accept(line, types=ALL_TYPES)
    signed = certificate.of_user(
        key, GRANT, serial=2**63 + 1, key_id="v1;sub=alice", authority=user_ca.blob
    )
    return certificate.line(key, signed, await user_ca.sign(signed))


@pytest.mark.parametrize(
    "key",
    [
        ed25519.Ed25519PrivateKey.generate(),
        ec.generate_private_key(ec.SECP256R1()),
        ec.generate_private_key(ec.SECP384R1()),
        ec.generate_private_key(ec.SECP521R1()),
        rsa.generate_private_key(65537, 3072),
    ],
)
async def test_another_implementation_reads_them(
    user_ca: authority.FileAuthority,
    key: ed25519.Ed25519PrivateKey | ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey,
) -> None:
    """Every field comes back as it was granted, and the signature is the authority's."""
    public = key.public_key()
    line = public.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
    read = ssh.load_ssh_public_identity((await certify(user_ca, line)).encode())
    assert isinstance(read, ssh.SSHCertificate)
    read.verify_cert_signature()
    assert read.public_key() == public
    assert read.serial == 2**63 + 1
    assert read.type == ssh.SSHCertificateType.USER
    assert read.valid_principals == [b"hg:site1:alice", b"hg:site2:alice"]
    assert (read.valid_after, read.valid_before) == (
        int(NOW.timestamp()),
        int(NOW.timestamp()) + 3600,
    )
    assert read.critical_options == {
        b"force-command": b"/usr/libexec/session --only status:1",
        b"source-address": b"192.0.2.0/24,2001:db8::/32",
    }
    assert read.extensions == {b"permit-X11-forwarding": b"", b"permit-pty": b""}


async def test_security_keys(user_ca: authority.FileAuthority, tmp_path: Path) -> None:
    """A key on a token is certified with its application, as OpenSSH reads it."""
    kind = b"sk-ssh-ed25519@openssh.com"
    raw = ed25519.Ed25519PrivateKey.generate().public_key().public_bytes_raw()
    blob = b"".join(len(p).to_bytes(4, "big") + p for p in (kind, raw, b"ssh:laptop"))
    text = await certify(user_ca, f"{kind.decode()} {base64.b64encode(blob).decode()}")
    (tmp_path / "cert.pub").write_text(text)
    argv = ["ssh-keygen", "-L", "-f", str(tmp_path / "cert.pub")]
    shown = await asyncio.to_thread(subprocess.check_output, argv, text=True)
    assert "sk-ssh-ed25519-cert-v01@openssh.com user certificate" in shown
    assert "Public key: ED25519-SK-CERT SHA256:" in shown
    assert "hg:site1:alice" in shown


@pytest.mark.parametrize("kind", ["ed25519", "ecdsa-256", "ecdsa-384", "ecdsa-521", "rsa-3072"])
async def test_authorities_of_every_kind(tmp_path: Path, kind: str) -> None:
    """A key that ssh-keygen made signs, as ssh-keygen reads it and another library proves it."""
    name, _, bits = kind.partition("-")
    make = ["ssh-keygen", "-q", "-t", name, "-N", "", "-f", str(tmp_path / "ca")]
    await asyncio.to_thread(subprocess.check_call, make + (["-b", bits] if bits else []))
    ca = authority.FileAuthority.load(tmp_path / "ca")
    key = ed25519.Ed25519PrivateKey.generate().public_key()
    line = key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
    text = await certify(ca, line)
    read = ssh.load_ssh_public_identity(text.encode())
    assert isinstance(read, ssh.SSHCertificate)
    read.verify_cert_signature()
    (tmp_path / "cert.pub").write_text(text)
    argv = ["ssh-keygen", "-L", "-f", str(tmp_path / "cert.pub")]
    shown = await asyncio.to_thread(subprocess.check_output, argv, text=True)
    algorithm = "rsa-sha2-512" if name == "rsa" else signatures.key_type(ca.blob)
    assert f"Signing CA: {name.upper()} " in shown
    assert f"using {algorithm}" in shown


@pytest.mark.parametrize(
    ("argv", "words"),
    [(["-t", "rsa", "-b", "2048"], "2048 bits"), (["-t", "ed25519", "-N", "secret"], "passphrase")],
)
async def test_authorities_that_are_too_weak(tmp_path: Path, argv: list[str], words: str) -> None:
    """Short RSA keys, and keys that nobody can open unasked, are refused."""
    make = ["ssh-keygen", "-q", "-N", "", *argv, "-f", str(tmp_path / "ca")]
    await asyncio.to_thread(subprocess.check_call, make)
    with pytest.raises(SettingsError, match=words):
        authority.FileAuthority.load(tmp_path / "ca")


@pytest.mark.parametrize("change", [b"", b"x"])
async def test_a_signature_is_checked(user_ca: authority.FileAuthority, change: bytes) -> None:
    """A signature over something else, or cut short, is none."""
    signature = await user_ca.sign(b"data")
    public = signatures.load(user_ca.blob)
    signatures.verify(public, b"data", signature)
    with pytest.raises(signatures.SignatureError):
        signatures.verify(public, b"other", signature)
    with pytest.raises(signatures.SignatureError):
        signatures.verify(public, b"data", signature[: len(signature) // 2] + change)


async def test_host_certificates(user_ca: authority.FileAuthority, tmp_path: Path) -> None:
    """A host certificate names its hosts, and has no options."""
    key = accept(
        ed25519.Ed25519PrivateKey.generate()
        .public_key()
        .public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
        .decode()
    )
    signed = certificate.of_host(
        key,
        ("login1.site.example", "192.0.2.1"),
        valid=(NOW, NOW + timedelta(days=30)),
        serial=5,
        key_id="v1;host=login1.site.example",
        authority=user_ca.blob,
    )
    text = certificate.line(key, signed, await user_ca.sign(signed))
    read = ssh.load_ssh_public_identity(text.encode())
    assert isinstance(read, ssh.SSHCertificate)
    read.verify_cert_signature()
    assert read.type == ssh.SSHCertificateType.HOST
    assert read.valid_principals == [b"login1.site.example", b"192.0.2.1"]
    assert (read.critical_options, read.extensions) == ({}, {})
    (tmp_path / "cert.pub").write_text(text)
    argv = ["ssh-keygen", "-L", "-f", str(tmp_path / "cert.pub")]
    shown = await asyncio.to_thread(subprocess.check_output, argv, text=True)
    assert "ssh-ed25519-cert-v01@openssh.com host certificate" in shown


async def test_no_two_are_alike(user_ca: authority.FileAuthority) -> None:
    """The nonce makes even the same request a different certificate."""
    key = ed25519.Ed25519PrivateKey.generate().public_key()
    line = key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
    assert await certify(user_ca, line) != await certify(user_ca, line)


def test_authority_files(tmp_path: Path) -> None:
    """A key is made once, closed to others, and never written over."""
    authority.create(tmp_path / "ca")
    assert (tmp_path / "ca").stat().st_mode & 0o777 == 0o600
    with pytest.raises(SettingsError, match="exists"):
        authority.create(tmp_path / "ca")
    line = authority.public_line(authority.FileAuthority.load(tmp_path / "ca"))
    assert line == (tmp_path / "ca.pub").read_text().strip()


def test_authority_files_that_are_not_ours(tmp_path: Path) -> None:
    """Links, open modes and other contents are refused, with the reason."""
    authority.create(tmp_path / "ca")
    (tmp_path / "link").symlink_to(tmp_path / "ca")
    (tmp_path / "text").write_text("not a key")
    (tmp_path / "text").chmod(0o600)
    with pytest.raises(SettingsError, match="link"):
        authority.FileAuthority.load(tmp_path / "link")
    with pytest.raises(SettingsError, match="not an OpenSSH private key"):
        authority.FileAuthority.load(tmp_path / "text")
    (tmp_path / "ca").chmod(0o644)
    with pytest.raises(SettingsError, match="0600"):
        authority.FileAuthority.load(tmp_path / "ca")
