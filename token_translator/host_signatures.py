"""A host key's own word: the SSH signature with which a host asks for its certificate's renewal."""

import asyncio
import tempfile
from pathlib import Path

from headgate.command import CommandError, run

NAMESPACE = "headgate-host-certificate"
MAX_SIGNATURE = 8 * 1024
SECONDS = 10.0
LIMIT = 64 * 1024


def text(at: int, public_key: str) -> str:
    """What is signed: when, in seconds since the epoch, and the key (type and base64)."""
    return f"{NAMESPACE} {at} {public_key}"


async def signed(*, public_key: str, message: str, signature: str) -> bool:
    """Whether `ssh-keygen -Y sign -n headgate-host-certificate` made this with that key.

    Source: OpenSSH PROTOCOL.sshsig; ssh-keygen itself verifies, so that every type of host key
    works. A signature that is none counts as a wrong one.

    Raises:
        CommandError: ssh-keygen is missing or late.
    """
    with tempfile.TemporaryDirectory(prefix="headgate-") as name:
        folder = Path(name)
        await asyncio.to_thread(_write, folder, public_key, signature)
        files = ("-f", str(folder / "signers"), "-s", str(folder / "signature"))
        argv = ("ssh-keygen", "-Y", "verify", *files, "-I", "host", "-n", NAMESPACE)
        done = await run(argv, timeout=SECONDS, limit=LIMIT, stdin=message.encode())
    return done.status == 0


def _write(folder: Path, public_key: str, signature: str) -> None:
    (folder / "signers").write_text(
        f'host namespaces="{NAMESPACE}" {public_key}\n', encoding="ascii"
    )
    (folder / "signature").write_text(signature, encoding="ascii")


__all__ = ["MAX_SIGNATURE", "NAMESPACE", "CommandError", "signed", "text"]
