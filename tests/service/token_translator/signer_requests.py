"""What tests of the signer ask it for."""

import asyncio
import base64
import contextlib
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from headgate.identity import Identity
from token_translator import wire
from token_translator.grants import SFTP_COMMAND, Grant
from token_translator.signer_client import SignerClient

ISSUER = "https://iam.example/"
ALICE = Identity(ISSUER, "alice")
KEY_ID = "v1;iss=https://iam.example/;sub=alice"


def new_key() -> str:
    """A fresh public key, as a line."""
    key = Ed25519PrivateKey.generate().public_key()
    return key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()


def grant(**changes: Any) -> Grant:
    """A grant within the usual ceilings, with changes."""
    now = datetime.now(UTC).replace(microsecond=0)
    usual = Grant(
        principals=("hg:site1:alice",),
        valid_after=now - timedelta(seconds=60),
        valid_before=now + timedelta(minutes=10),
        extensions=("permit-pty",),
    )
    return msgspec.structs.replace(usual, **changes)


def subject(sub: str = "alice", **more: str) -> wire.Subject:
    """Whom it is for."""
    usual = wire.Subject(iss=ISSUER, sub=sub, account=sub, realm="site1", profile="person")
    return msgspec.structs.replace(usual, **more)


async def sign(
    client: SignerClient, sub: str = "alice", key: str | None = None, **changes: Any
) -> wire.Signed:
    """One user certificate."""
    command = changes.get("force_command", "")
    forced = "sealed" if " --only " in command else "session"
    person = command in {"", SFTP_COMMAND}
    return await client.sign(
        grant(**changes),
        public_key=new_key() if key is None else key,
        key_id=KEY_ID,
        subject=subject(sub, profile="person" if person else forced),
    )


async def sign_host(client: SignerClient, *names: str, key: str | None = None) -> wire.Signed:
    """One host certificate."""
    now = datetime.now(UTC).replace(microsecond=0)
    return await client.sign_host(
        names,
        valid=(now - timedelta(seconds=60), now + timedelta(days=30)),
        public_key=new_key() if key is None else key,
        key_id="v1;host=login",
        subject=subject("admin", account="", realm="", profile="host"),
    )


@dataclass(frozen=True, slots=True)
class Listed:
    """What `ssh-keygen -Q -l` shows of a list: version, serials, fingerprints of keys."""

    version: int
    serials: tuple[tuple[int, int], ...]
    keys: tuple[str, ...]


async def listed(client: SignerClient) -> Listed:
    """What is revoked, as OpenSSH reads the signer's list."""
    now = await client.revoked()
    assert now.body is not None
    with tempfile.NamedTemporaryFile() as file:
        file.write(now.body)
        file.flush()
        argv = ["ssh-keygen", "-Q", "-l", "-f", file.name]
        text = await asyncio.to_thread(subprocess.check_output, argv, text=True)
    (version,) = re.findall(r"^# KRL version (\d+)$", text, re.MULTILINE)
    assert int(version) == now.version
    # The same for each authority: those of the first are enough.
    _, _, serials = text.partition("# CA key")
    found = re.findall(r"^serial: (\d+)(?:-(\d+))?$", serials.split("# CA key")[0], re.MULTILINE)
    ranges = tuple((int(first), int(last or first)) for first, last in found)
    names = re.findall(r"^hash: SHA256:(\S+)", text, re.MULTILINE)
    return Listed(now.version, ranges, tuple(_fingerprint(name) for name in names))


async def vouched(client: SignerClient, line: str) -> None:
    """OpenSSH verifies the signer's word for its list with that authority."""
    now = await client.revoked()
    assert f";sha256={now.digest};" in now.statement
    await asyncio.to_thread(_verify, line, now.statement, now.signatures[0])


def _verify(line: str, statement: str, signed: bytes) -> None:
    armour = "-----{} SSH SIGNATURE-----\n"
    with tempfile.TemporaryDirectory() as folder:
        allowed, signature = Path(folder, "allowed"), Path(folder, "signature")
        allowed.write_text(f"signer {line}\n")
        body = base64.b64encode(signed).decode()
        signature.write_text(f"{armour.format('BEGIN')}{body}\n{armour.format('END')}")
        argv = ["ssh-keygen", "-Y", "verify", "-f", str(allowed), "-I", "signer"]
        subprocess.run(
            [*argv, "-n", "krl@headgate", "-s", str(signature)],
            input=statement.encode(),
            stdout=subprocess.DEVNULL,
            check=True,
        )


def _fingerprint(shown: str) -> str:
    """What of a listed fingerprint is shown in hex, as of a listed key in base64."""
    name = shown
    if re.fullmatch(r"[0-9a-f]{64}", shown):
        name = base64.b64encode(bytes.fromhex(shown)).decode().rstrip("=")
    return f"SHA256:{name}"


@contextlib.asynccontextmanager
async def connected(signer: Any) -> AsyncIterator[SignerClient]:
    """A connection to a signer process."""
    client = SignerClient(path=str(signer.socket), timeout=10)
    try:
        yield client
    finally:
        await client.close()


async def run(signer: Any, verb: str, *options: str) -> subprocess.CompletedProcess[str]:
    """A verb of `headgate-signer`, in a process of its own."""
    argv = [sys.executable, "-m", "token_translator.signer", *verb.split()]
    return await asyncio.to_thread(
        subprocess.run,
        [*argv, "--config", str(signer.config), *options],
        check=False,
        timeout=60,
        capture_output=True,
        text=True,
        env=dict(signer.env) or None,
    )


async def verified(signer: Any, *options: str) -> dict[str, Any]:
    """What `ledger verify` finds; it must be intact."""
    done = await run(signer, "ledger verify", "--json", *options)
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found
