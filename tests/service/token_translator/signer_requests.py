"""What tests of the signer ask it for."""

import asyncio
import contextlib
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from headgate.identity import Identity
from token_translator import wire
from token_translator.grants import Grant
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
    return await client.sign(
        grant(**changes),
        public_key=new_key() if key is None else key,
        key_id=KEY_ID,
        subject=subject(sub),
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
