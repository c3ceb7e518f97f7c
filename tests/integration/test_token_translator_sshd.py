"""Certificates of ours before a real sshd: who gets in with which, and who does not."""

import asyncio
import shutil
import subprocess
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp.test_utils import unused_port

from headgate.command import run
from token_translator.grants import SFTP_COMMAND, Grant
from token_translator.keys import ALL_TYPES, accept
from token_translator.signer import authority, certificate, signatures
from token_translator.signer.krl import RevocationList

pytestmark = pytest.mark.site

CONFIG = """
ListenAddress 127.0.0.1
Port {port}
HostKey /etc/ssh/headgate_test_host_key
PidFile none
TrustedUserCAKeys /etc/ssh/headgate_user_ca.pub
AuthorizedPrincipalsFile /etc/ssh/principals/%u
AuthorizedKeysFile none
RevokedKeys /etc/ssh/headgate.krl
Subsystem sftp /usr/lib/openssh/sftp-server
"""

# A mount namespace of its own: the users and files are there and nowhere else.
START = """
set -e
mount --bind "$1/etc" /etc
mount -t tmpfs tmpfs /run
mkdir /run/sshd
exec /usr/sbin/sshd -D -e -f /etc/ssh/headgate_test_sshd_config
"""


@dataclass(frozen=True, slots=True)
class Sshd:
    """A running sshd that trusts a user CA, with the accounts hgalice and hgbob."""

    folder: Path
    port: int
    user_ca: authority.FileAuthority
    key: Path

    def certify(self, *, by: authority.FileAuthority | None = None, **changes: Any) -> Path:
        """A certificate for the test's key, as the signer makes them; the file it is in."""
        now = datetime.now(UTC).replace(microsecond=0)
        usual = Grant(
            principals=("hg:site1:hgalice",),
            valid_after=now - timedelta(seconds=60),
            valid_before=now + timedelta(minutes=5),
        )
        grant = msgspec.structs.replace(usual, **changes)
        signer = by or self.user_ca
        key = accept(self.key.with_suffix(".pub").read_text(), types=ALL_TYPES)
        signed = certificate.of_user(
            key, grant, serial=7, key_id="v1;sub=alice", authority=signer.blob
        )
        path = self.folder / "certificate.pub"
        path.write_text(certificate.line(key, signed, signatures.sign(signer._key, signed)))
        return path

    def ssh(self, user: str, certificate_file: Path, command: Sequence[str]) -> tuple[int, str]:
        """Log in and run a command: the exit status and the output; 255 is ssh's own refusal."""
        options = {
            "BatchMode": "yes",
            "CertificateFile": str(certificate_file),
            "ConnectTimeout": "10",
            "GlobalKnownHostsFile": "/dev/null",
            "IdentitiesOnly": "yes",
            "IdentityFile": str(self.key),
            "LogLevel": "ERROR",
            "StrictHostKeyChecking": "yes",
            "UserKnownHostsFile": str(self.folder / "known_hosts"),
        }
        flags = [part for name, value in options.items() for part in ("-o", f"{name}={value}")]
        argv = ["ssh", "-F", "none", "-p", str(self.port), *flags, f"{user}@127.0.0.1", *command]
        ended = subprocess.run(
            argv, check=False, timeout=60, stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
        return ended.returncode, ended.stdout


def new_key(path: Path, kind: str = "ed25519", *more: str) -> Path:
    """A key pair by ssh-keygen."""
    subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", "", *more, "-f", str(path)], check=True)
    return path


def write_etc(folder: Path, user_ca: Path, port: int) -> None:
    """A copy of /etc with two more accounts and an sshd's files in it."""
    etc = folder / "etc"
    shutil.copytree("/etc", etc, symlinks=True, ignore_dangling_symlinks=True)
    etc.chmod(0o755)
    with (etc / "passwd").open("a") as passwd, (etc / "shadow").open("a") as shadow:
        for number, name in enumerate(("hgalice", "hgbob")):
            passwd.write(f"{name}:x:{64001 + number}:65534::/:/bin/sh\n")
            shadow.write(f"{name}:*:19000:0:99999:7:::\n")
    principals = etc / "ssh" / "principals"
    principals.mkdir(parents=True)
    for name in ("hgalice", "hgbob"):
        (principals / name).write_text(f"hg:site1:{name}\n")
    (etc / "ssh" / "headgate_user_ca.pub").write_text(Path(f"{user_ca}.pub").read_text())
    krl = RevocationList(version=0, generated_at=datetime.fromtimestamp(0, UTC))
    (etc / "ssh" / "headgate.krl").write_bytes(krl.encode())
    (etc / "ssh" / "headgate_test_sshd_config").write_text(CONFIG.format(port=port))
    host_key = new_key(etc / "ssh" / "headgate_test_host_key")
    line = host_key.with_suffix(".pub").read_text()
    (folder / "known_hosts").write_text(f"[127.0.0.1]:{port} {line}")


@pytest.fixture(scope="module")
async def sshd(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Sshd]:
    """A real sshd in a mount namespace of its own."""
    folder = tmp_path_factory.mktemp("sshd")
    authority.create(folder / "user_ca")
    port = unused_port()
    await asyncio.to_thread(write_etc, folder, folder / "user_ca", port)
    key = await asyncio.to_thread(new_key, folder / "key")
    process = await asyncio.create_subprocess_exec(
        "unshare", "--mount", "--propagation", "private",
        "sh", "-c", START, "sh", str(folder),
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stderr is not None
    said = b""
    while b"Server listening" not in said:
        line = await asyncio.wait_for(process.stderr.readline(), 30)
        assert line, said.decode()
        said += line
    reading = asyncio.create_task(process.stderr.read())
    yield Sshd(folder, port, authority.FileAuthority.load(folder / "user_ca"), key)
    process.terminate()
    await process.wait()
    await reading
    await asyncio.to_thread(shutil.rmtree, folder / "etc")


async def login(sshd: Sshd, user: str, *command: str, **changes: Any) -> tuple[int, str]:
    """Log in as a user with a certificate that has these changes."""
    path = sshd.certify(**changes)
    return await asyncio.to_thread(sshd.ssh, user, path, command or ("id", "-un"))


async def test_the_right_account(sshd: Sshd) -> None:
    """A certificate for a namespaced principal logs in as its account."""
    assert await login(sshd, "hgalice") == (0, "hgalice\n")


@pytest.mark.parametrize("user", ["hgbob", "root", "daemon", "nobody"])
async def test_no_other_account(sshd: Sshd, user: str) -> None:
    """The same certificate is refused as anybody else."""
    status, output = await login(sshd, user)
    assert (status, output) == (255, "")


@pytest.mark.parametrize("name", ["root", "hgalice", "hg:site2:hgalice", "hg:site1:hgalic"])
@pytest.mark.parametrize("user", ["root", "hgalice"])
async def test_names_that_are_not_ours(sshd: Sshd, name: str, user: str) -> None:
    """Even a certificate of the true CA logs in nowhere under a bare or a foreign name."""
    assert (await login(sshd, user, principals=(name,)))[0] == 255


async def test_no_principal_is_nobody(sshd: Sshd) -> None:
    """A certificate without principals is no wildcard."""
    assert (await login(sshd, "hgalice", principals=()))[0] == 255


async def test_before_and_after_its_time(sshd: Sshd) -> None:
    """An expired certificate, and one whose time has not come, are refused."""
    now = datetime.now(UTC).replace(microsecond=0)
    old, past = now - timedelta(hours=2), now - timedelta(seconds=5)
    assert (await login(sshd, "hgalice", valid_after=old, valid_before=past))[0] == 255
    soon, later = now + timedelta(hours=1), now + timedelta(hours=2)
    assert (await login(sshd, "hgalice", valid_after=soon, valid_before=later))[0] == 255


async def test_another_authority(sshd: Sshd) -> None:
    """A certificate signed by any other key is refused."""
    authority.create(sshd.folder / "other_ca")
    other = authority.FileAuthority.load(sshd.folder / "other_ca")
    assert (await login(sshd, "hgalice", by=other))[0] == 255


async def test_the_forced_command_wins(sshd: Sshd) -> None:
    """Whatever is asked for, what runs is the certificate's command; the rest is a variable."""
    command = 'echo "forced: $SSH_ORIGINAL_COMMAND"'
    answer = await login(sshd, "hgalice", "id", "-un", force_command=command)
    assert answer == (0, "forced: id -un\n")


async def test_source_addresses(sshd: Sshd) -> None:
    """A certificate for another network is refused, one for this one works."""
    assert (await login(sshd, "hgalice", source_addresses=("192.0.2.0/24",)))[0] == 255
    here = ("192.0.2.0/24", "127.0.0.0/8")
    assert (await login(sshd, "hgalice", source_addresses=here))[0] == 0


async def test_no_extension_is_no_terminal(sshd: Sshd) -> None:
    """Without permit-pty a login has no terminal, with it it has."""
    path = sshd.certify(extensions=("permit-pty",))
    assert (await asyncio.to_thread(_tty, sshd, path)).startswith("/dev/pts/")
    path = sshd.certify()
    assert "PTY allocation request failed" in await asyncio.to_thread(_tty, sshd, path)


def _tty(sshd: Sshd, path: Path) -> str:
    argv = ["ssh", "-F", "none", "-tt", "-p", str(sshd.port), "-i", str(sshd.key)]
    argv += ["-o", f"CertificateFile={path}", "-o", "BatchMode=yes", "-o", "IdentitiesOnly=yes"]
    argv += ["-o", f"UserKnownHostsFile={sshd.folder / 'known_hosts'}", "hgalice@127.0.0.1", "tty"]
    ended = subprocess.run(
        argv,
        check=False,
        timeout=60,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return ended.stdout


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("rsa", ("-b", "3072")),
        ("ecdsa", ("-b", "256")),
        ("ecdsa", ("-b", "384")),
        ("ecdsa", ("-b", "521")),
    ],
)
async def test_every_type_of_key(sshd: Sshd, kind: str, more: tuple[str, ...]) -> None:
    """Certificates for RSA and ECDSA keys log in like those for Ed25519."""
    path = sshd.folder / f"{kind}{more[1]}"
    key = await asyncio.to_thread(new_key, path, kind, *more)
    with_key = Sshd(sshd.folder, sshd.port, sshd.user_ca, key)
    assert await login(with_key, "hgalice") == (0, "hgalice\n")


async def test_files_and_nothing_else(sshd: Sshd) -> None:
    """With sftp forced, whatever else is asked for does not run, and the stock sftp works."""
    status, output = await login(sshd, "hgalice", force_command=SFTP_COMMAND)
    assert status != 0
    assert "hgalice" not in output
    argv = ["sftp", "-F", "none", "-P", str(sshd.port), "-i", str(sshd.key), "-b", "-"]
    argv += ["-o", f"CertificateFile={sshd.folder / 'certificate.pub'}"]
    argv += ["-o", "IdentitiesOnly=yes", "-o", f"UserKnownHostsFile={sshd.folder / 'known_hosts'}"]
    done = await run([*argv, "hgalice@127.0.0.1"], timeout=60, stdin=b"ls /etc/hostname\n")
    assert b"\n/etc/hostname" in done.checked().stdout


async def test_host_sets(sshd: Sshd) -> None:
    """A certificate for sets of hosts is refused by a node that was told of none, or of others."""
    data, gpu = "hg:site1@data:hgalice", "hg:site1@gpu:hgalice"
    assert (await login(sshd, "hgalice", principals=(data, gpu)))[0] == 255
    names = sshd.folder / "etc" / "ssh" / "principals" / "hgalice"
    usual = names.read_text()
    names.write_text(f"{usual}{gpu}\n")
    assert (await login(sshd, "hgalice", principals=(data, gpu)))[0] == 0
    assert (await login(sshd, "hgalice", principals=(data,)))[0] == 255
    assert (await login(sshd, "hgalice"))[0] == 0
    names.write_text(usual)
