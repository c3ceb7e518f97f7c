"""The signer's certificates before a real sshd, wherever the authorities' keys are."""

import asyncio
import contextlib
import getpass
import os
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import unused_port

from testbed.waiting import until
from tests.service.token_translator.authority_keys import HOSTS, both, call, in_agent
from tests.service.token_translator.signer_requests import (
    connected,
    new_key,
    sign,
    sign_host,
)

SSHD = """
ListenAddress 127.0.0.1
Port {port}
HostKey {folder}/host
HostCertificate {folder}/host-cert.pub
PidFile none
StrictModes no
UsePAM no
PermitRootLogin yes
TrustedUserCAKeys {folder}/user_ca.pub
AuthorizedPrincipalsFile {folder}/principals
AuthorizedKeysFile none
"""


def start_sshd(folder: Path) -> subprocess.Popen[bytes]:
    """The process; as root it wants a folder to be confined in."""
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)
    argv = ("/usr/sbin/sshd", "-D", "-e", "-f", str(folder / "sshd_config"))
    with (folder / "sshd.log").open("wb") as log:
        return subprocess.Popen(argv, stderr=log)


@contextlib.asynccontextmanager
async def sshd(folder: Path) -> AsyncIterator[int]:
    """A real sshd on loopback with what is in a folder; its port."""
    port = unused_port()
    (folder / "sshd_config").write_text(SSHD.format(port=port, folder=folder))
    process = start_sshd(folder)
    try:
        words = folder / "sshd.log"
        await until(lambda: b"Server listening" in words.read_bytes(), seconds=10)
        yield port
    finally:
        process.terminate()
        process.wait()


async def login(folder: Path, port: int) -> tuple[int, str]:
    """Log in with the certificate in a folder, to a host that only its authority vouches for."""
    options = {
        "BatchMode": "yes",
        "CertificateFile": str(folder / "user-cert.pub"),
        "GlobalKnownHostsFile": "/dev/null",
        "IdentitiesOnly": "yes",
        "IdentityFile": str(folder / "user"),
        "StrictHostKeyChecking": "yes",
        "UserKnownHostsFile": str(folder / "known_hosts"),
        "ConnectTimeout": "10",
    }
    words = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
    target = ("-p", str(port), "-l", getpass.getuser(), "localhost", "echo", "in")
    done = await asyncio.to_thread(
        subprocess.run,
        ["ssh", "-F", "none", *words, *target],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.returncode, done.stdout + done.stderr


async def prepared(folder: Path, signer: Any, principal: str = "hg:site1:alice") -> None:
    """The files of an sshd and its visitor, certified by a signer."""
    for name in ("user", "host"):
        await call("ssh-keygen", "-q", "-N", "", "-f", str(folder / name), "-t", "ed25519")
    async with connected(signer) as client:
        known = await client.authorities()
        user = await sign(client, key=(folder / "user.pub").read_text())
        host = await sign_host(client, "localhost", key=(folder / "host.pub").read_text())
    (folder / "user-cert.pub").write_text(user.certificate)
    (folder / "host-cert.pub").write_text(host.certificate)
    (folder / "user_ca.pub").write_text("\n".join(known.user_ca))
    (folder / "principals").write_text(f"{principal}\n")
    authority = f"@cert-authority [localhost]:* {known.host_ca[0]}\n"
    (folder / "known_hosts").write_text(authority)


@pytest.mark.site  # sshd
@pytest.mark.parametrize("kept_in", ["file", "agent", "token"])
async def test_accepted_by_a_real_sshd(
    make_signer: Any, tmp_path: Path, request: pytest.FixtureRequest, kept_in: str
) -> None:
    """User and host certificates are good for a stock sshd and ssh, wherever the keys are."""
    keys, env = await keys_in(kept_in, request)
    signer = await asyncio.to_thread(make_signer, keys, env, hostnames=HOSTS)
    folder = tmp_path / "sshd"
    folder.mkdir()
    await prepared(folder, signer)
    async with sshd(folder) as port:
        assert await login(folder, port) == (0, "in\n")
        (folder / "principals").write_text("hg:site2:alice\n")
        status, words = await login(folder, port)
        assert status == 255
        assert "Permission denied" in words
        wrong = f"@cert-authority [localhost]:* {new_key()}\n"
        (folder / "known_hosts").write_text(wrong)
        assert "Host key verification failed" in (await login(folder, port))[1]


async def keys_in(
    kept_in: str, request: pytest.FixtureRequest
) -> tuple[dict[str, str] | None, dict[str, str] | None]:
    """Settings and environment of a signer whose keys are somewhere."""
    if kept_in == "agent":
        agent = request.getfixturevalue("agent")
        names = [await agent.add("ed25519"), await agent.add("ecdsa")]
        return both(*(in_agent(agent, name) for name in names)), None
    if kept_in == "token":
        token = request.getfixturevalue("token")
        await token.make("user-ca", "EC:secp256r1")
        await token.make("host-ca", "EC:edwards25519")
        return both(token.key("user-ca"), token.key("host-ca")), token.env
    return None, None
