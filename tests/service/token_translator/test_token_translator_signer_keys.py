"""Authorities' keys in a file, an agent and a token; before a real sshd; and their rotation."""

import asyncio
import contextlib
import getpass
import json
import os
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import unused_port
from cryptography.hazmat.primitives.serialization import ssh

from headgate.problems import Unavailable
from testbed.waiting import until
from tests.service.token_translator.signer_requests import (
    connected,
    new_key,
    run,
    sign,
    sign_host,
)
from token_translator.keys import accept

MODULE = "/usr/lib/softhsm/libsofthsm2.so"
PIN = "5678"
HOSTS = '["localhost", "*.site.example"]'


async def call(*argv: str, env: Mapping[str, str] | None = None) -> str:
    """A command's output; it must succeed."""
    return await asyncio.to_thread(
        subprocess.check_output, argv, text=True, stderr=subprocess.STDOUT, env=env
    )


@dataclass(slots=True)
class Agent:
    """An ssh-agent, and the fingerprints of the keys put into it."""

    socket: Path
    process: subprocess.Popen[bytes]

    @classmethod
    def start(cls, socket: Path) -> "Agent":
        """An agent in the foreground."""
        argv = ["ssh-agent", "-D", "-a", str(socket)]
        return cls(socket, subprocess.Popen(argv, stdout=subprocess.DEVNULL))

    async def add(self, *kind: str) -> str:
        """Make a key and put it in; the file is removed."""
        await until(self.socket.exists, seconds=10)
        path = self.socket.with_name("key")
        await call("ssh-keygen", "-q", "-N", "", "-f", str(path), "-t", *kind)
        await call("ssh-add", "-q", str(path), env={"SSH_AUTH_SOCK": str(self.socket)})
        path.unlink()
        return accept(path.with_suffix(".pub").read_text()).fingerprint

    def kill(self) -> None:
        """End it, and the keys in it."""
        self.process.kill()
        self.process.wait()
        self.socket.unlink(missing_ok=True)


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    """A running agent."""
    one = Agent.start(tmp_path / "agent")
    yield one
    one.kill()


@dataclass(frozen=True, slots=True)
class Token:
    """A software token, with its PIN in a file."""

    folder: Path

    @property
    def env(self) -> dict[str, str]:
        """Where its library finds it."""
        return {"SOFTHSM2_CONF": str(self.folder / "conf")}

    async def make(self, label: str, kind: str) -> None:
        """Make a key pair in it."""
        login = ("--login", "--pin", PIN, "--token-label", "headgate")
        generate = ("--keypairgen", "--key-type", kind, "--label", label)
        await call("pkcs11-tool", "--module", MODULE, *login, *generate, env=self.env)

    def key(self, label: str) -> str:
        """How the settings name a key."""
        return (
            f'{{ kind = "pkcs11", module = "{MODULE}", token = "headgate", label = "{label}", '
            f'pin_file = "{self.folder}/pin" }}'
        )


@pytest.fixture
def token(tmp_path: Path) -> Token:
    """An initialised token."""
    one = Token(tmp_path / "token")
    (one.folder / "tokens").mkdir(parents=True)
    (one.folder / "conf").write_text(f"directories.tokendir = {one.folder}/tokens\n")
    (one.folder / "pin").write_text(PIN)
    (one.folder / "pin").chmod(0o600)
    initialise = ("--init-token", "--free", "--label", "headgate", "--so-pin", "1234")
    argv = ("softhsm2-util", *initialise, "--pin", PIN)
    subprocess.run(argv, check=True, capture_output=True, env=one.env)
    return one


def in_agent(agent: Agent, fingerprint: str) -> str:
    """How the settings name a key."""
    return f'{{ kind = "agent", socket = "{agent.socket}", fingerprint = "{fingerprint}" }}'


def both(user: str, host: str) -> dict[str, str]:
    """The settings of two keys."""
    return {"user_ca": f"[{user}]", "host_ca": f"[{host}]"}


def proved(certificate: str, line: str) -> ssh.SSHCertificate:
    """A certificate, its signature checked with the authority of a line."""
    read = ssh.load_ssh_public_identity(certificate.encode())
    assert isinstance(read, ssh.SSHCertificate)
    read.verify_cert_signature()
    assert read.signature_key() == ssh.load_ssh_public_key(line.encode())
    return read


async def test_keys_in_an_agent(make_signer: Any, agent: Agent) -> None:
    """Keys that are in an agent sign; without it there are no certificates, with it there are."""
    names = [await agent.add("ed25519"), await agent.add("rsa", "-b", "3072")]
    keys = both(*(in_agent(agent, name) for name in names))
    signer = await asyncio.to_thread(make_signer, keys, hostnames=HOSTS)
    async with connected(signer) as client:
        known = await client.authorities()
        proved((await sign(client)).certificate, known.user_ca[0])
        proved((await sign_host(client, "a.site.example")).certificate, known.host_ca[0])
        agent.kill()
        with pytest.raises(Unavailable):
            await sign(client)
    assert b"authority_away" in (signer.folder / "signer.log").read_bytes()


async def test_an_agent_that_was_restarted(make_signer: Any, agent: Agent) -> None:
    """A new agent at the old place, with the same key, is found again."""
    path = agent.socket.with_name("kept")
    await call("ssh-keygen", "-q", "-N", "", "-f", str(path), "-t", "ed25519")
    add = ("ssh-add", "-q", str(path))
    env = {"SSH_AUTH_SOCK": str(agent.socket)}
    await until(agent.socket.exists, seconds=10)
    await call(*add, env=env)
    name = accept(path.with_suffix(".pub").read_text()).fingerprint
    host = await agent.add("ecdsa")
    keys = both(in_agent(agent, name), in_agent(agent, host))
    signer = await asyncio.to_thread(make_signer, keys)
    agent.kill()
    again = Agent.start(agent.socket)
    try:
        await until(agent.socket.exists, seconds=10)
        await call(*add, env=env)
        async with connected(signer) as client:
            assert (await sign(client)).serial == 1
    finally:
        again.kill()


@pytest.mark.site  # softhsm2, opensc
@pytest.mark.parametrize("kind", ["EC:edwards25519", "EC:secp256r1", "EC:secp521r1", "rsa:3072"])
async def test_keys_in_a_token(make_signer: Any, token: Token, kind: str) -> None:
    """Key pairs of every kind that never leave a token sign for users and hosts."""
    await token.make("user-ca", kind)
    await token.make("host-ca", kind)
    keys = both(token.key("user-ca"), token.key("host-ca"))
    signer = await asyncio.to_thread(make_signer, keys, token.env, hostnames=HOSTS)
    async with connected(signer) as client:
        known = await client.authorities()
        assert known.user_ca[0].endswith(" user-ca")
        proved((await sign(client)).certificate, known.user_ca[0])
        proved((await sign_host(client, "a.site.example")).certificate, known.host_ca[0])


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


def rewrite(signer: Any, settings: Mapping[str, str]) -> None:
    """Change settings in a signer's file."""
    lines = signer.config.read_text().splitlines()
    lines = [line for line in lines if line.split(" = ")[0] not in settings]
    lines += [f"{name} = {value}" for name, value in settings.items()]
    signer.config.write_text("\n".join(lines))


async def refused_to_start(signer: Any, settings: Mapping[str, str]) -> str:
    """What `serve` says of other settings; its status is that of wrong ones."""
    await asyncio.to_thread(signer.stop)
    rewrite(signer, settings)
    done = await run(signer, "serve")
    assert done.returncode == 78
    return done.stderr


async def test_keys_that_are_not_as_the_settings_say(make_signer: Any, agent: Agent) -> None:
    """A missing agent or key, and a key for both users and hosts, keep the signer from starting."""
    signer = await asyncio.to_thread(make_signer)
    name = await agent.add("ed25519")
    other = "SHA256:" + "A" * 43
    user, host = (f'"{signer.folder}/{one}"' for one in ("user_ca", "host_ca"))
    for keys, words in (
        ((in_agent(agent, other), host), "none is SHA256:AAAA"),
        ((in_agent(agent, name).replace('/agent"', '/nobody"'), host), "No such file"),
        ((in_agent(agent, name), in_agent(agent, name)), "share a key"),
        ((user, user), "share a key"),
        ((f"{user}, {user}", host), "names a key twice"),
        ((host, user), "was the authority of"),
    ):
        assert words in await refused_to_start(signer, both(*keys))
    agent.socket.chmod(0o660)
    assert "use 0600" in await refused_to_start(signer, both(in_agent(agent, name), host))


@pytest.mark.site  # softhsm2, opensc
async def test_tokens_that_are_not_as_the_settings_say(make_signer: Any, token: Token) -> None:
    """A wrong PIN, token or label is said, and the PIN is not."""
    await token.make("user-ca", "EC:edwards25519")
    signer = await asyncio.to_thread(make_signer, None, token.env)
    host = f'"{signer.folder}/host_ca"'
    key = token.key("user-ca")
    (token.folder / "wrong").write_text("9999")
    (token.folder / "wrong").chmod(0o600)
    for changed, words in (
        (key.replace("/pin", "/wrong"), "PinIncorrect"),
        (key.replace('"headgate"', '"other"'), "NoSuchToken"),
        (key.replace('"user-ca"', '"other"'), "NoSuchKey"),
    ):
        said = await refused_to_start(signer, both(changed, host))
        assert words in said
        assert "9999" not in said
    (token.folder / "pin").chmod(0o644)
    assert "use 0600" in await refused_to_start(signer, both(key, host))


async def listed(signer: Any) -> dict[str, dict[str, Any]]:
    """What `authorities` says of each user authority, by the name of its file."""
    done = await run(signer, "authorities", "--json")
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    return {one["line"].split()[2]: one for one in found if one["role"] == "user"}


async def test_rotation(make_signer: Callable[..., Any]) -> None:
    """Add, distribute, switch, retire, revoke: each step as documented, and in the ledger."""
    signer = await asyncio.to_thread(make_signer)
    old, new = (f'"{signer.folder}/{name}"' for name in ("user_ca", "user_ca_2"))

    async def restarted(*user_ca: str) -> None:
        await asyncio.to_thread(signer.stop)
        lines = [
            line
            for line in signer.config.read_text().splitlines()
            if not line.startswith("user_ca")
        ]
        text = "\n".join([*lines, f"user_ca = [{', '.join(user_ca)}]"])
        signer.config.write_text(text)
        assert (await run(signer, "init")).returncode == 0
        await asyncio.to_thread(signer.start)

    async with connected(signer) as client:
        first = await sign(client)
    await restarted(old, new)
    async with connected(signer) as client:
        known = await client.authorities()
        assert [line.split()[2] for line in known.user_ca] == ["user_ca", "user_ca_2"]
        proved((await sign(client)).certificate, known.user_ca[0])
    await restarted(new, old)
    async with connected(signer) as client:
        switched = await client.authorities()
        assert switched.user_ca == known.user_ca[::-1]
        proved((await sign(client)).certificate, known.user_ca[1])
        gone = (await listed(signer))["user_ca"]
        assert (gone["state"], gone["live_certificates"]) == ("trusted", 2)
    revoke = ("--authority", gone["fingerprint"], "--reason", "rotated out")
    assert "in use" in (await run(signer, "revoke", *revoke)).stdout
    await restarted(new)
    async with connected(signer) as client:
        assert (await client.authorities()).user_ca == (known.user_ca[1],)
        assert (await listed(signer))["user_ca"]["state"] == "retired"
        done = await client.revoke(
            reason="rotated out", by="peer:tokens", authority=gone["fingerprint"]
        )
        now = await client.revoked()
        assert (now.version, now.authorities) == (done.version, (known.user_ca[0],))
    proved(first.certificate, known.user_ca[0])
    assert (await listed(signer))["user_ca"]["state"] == "revoked"
    said = await refused_to_start(signer, {"user_ca": f"[{new}, {old}]"})
    assert "is revoked" in said
    found = await run(signer, "ledger search", "--json")
    changes = [json.loads(line) for line in found.stdout.splitlines()]
    states = [
        one["state"]
        for one in changes
        if one["kind"] == "authority" and one["ca"] == gone["fingerprint"]
    ]
    assert states == ["signs", "trusted", "retired"]
