"""Keys and a real ssh-agent: what goes in, for how long, what comes out, and whose agent it is."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from headgate.cli.ssh.agent import Agent, AgentError
from headgate.cli.ssh.identity import public_line
from headgate.cli.ssh.wire import Certificate, blob

# Listens as `name`, answers each question with one failure.
PRETENDER = """
import pathlib, socket, sys
pathlib.Path("/proc/self/comm").write_text(sys.argv[2])
with socket.socket(socket.AF_UNIX) as listener:
    listener.bind(sys.argv[1])
    listener.listen()
    print("listening", flush=True)
    while True:
        listener.accept()[0].sendall(bytes([0, 0, 0, 1, 5]))
"""


@pytest.fixture
def environ(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment with an ssh-agent in it."""
    path = tmp_path / "agent"
    process = subprocess.Popen(
        ["ssh-agent", "-D", "-a", str(path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    process.stdout.readline()
    yield {"SSH_AUTH_SOCK": str(path), "PATH": os.environ["PATH"]}
    process.terminate()
    process.wait()
    process.stdout.close()


def certified(folder: Path) -> tuple[Ed25519PrivateKey, Certificate]:
    """A key and a certificate for it."""
    key = Ed25519PrivateKey.generate()
    (folder / "key.pub").write_text(public_line(key) + "\n")
    if not (folder / "ca").exists():
        ca = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", "ca"]
        subprocess.run(ca, check=True, cwd=folder)
    sign = ["ssh-keygen", "-q", "-s", "ca", "-I", "id", "-n", "a", "-V", "-1m:+10m", "key.pub"]
    subprocess.run(sign, check=True, cwd=folder)
    return key, Certificate(blob((folder / "key-cert.pub").read_bytes()))


def listed(environ: dict[str, str]) -> list[list[str]]:
    """What `ssh-add -L` shows."""
    done = subprocess.run(
        ["ssh-add", "-L"], env=environ, check=False, capture_output=True, text=True
    )
    return [line.split(maxsplit=2) for line in done.stdout.splitlines() if line.startswith("ssh-")]


def test_a_key_goes_in_with_its_certificate_and_out_again(environ: dict[str, str], tmp_path: Path):
    """ssh-add lists both under our comment; removed, they are gone."""
    agent = Agent.local(environ)
    assert agent is not None
    key, certificate = certified(tmp_path)
    agent.add(key.private_bytes_raw(), certificate.blob, comment="headgate x", seconds=60)
    assert [(kind, comment) for kind, _, comment in listed(environ)] == [
        ("ssh-ed25519", "headgate x"),
        ("ssh-ed25519-cert-v01@openssh.com", "headgate x"),
    ]
    assert set(agent.identities()) == {certificate.blob, certificate.key}
    assert agent.remove(certificate.blob)
    assert agent.remove(certificate.key)
    assert not agent.remove(certificate.key)
    assert listed(environ) == []


def test_a_key_leaves_the_agent_by_itself(environ: dict[str, str], tmp_path: Path):
    """The lifetime is the agent's to keep."""
    agent = Agent.local(environ)
    assert agent is not None
    key, certificate = certified(tmp_path)
    agent.add(key.private_bytes_raw(), certificate.blob, comment="x", seconds=1)
    while agent.identities():
        pass
    assert listed(environ) == []


def test_a_locked_agent_takes_nothing(environ: dict[str, str], tmp_path: Path):
    """A refusal is an error, and nothing of the key stays."""
    agent = Agent.local(environ)
    assert agent is not None
    subprocess.run(
        ["setsid", "ssh-add", "-x"],
        env={**environ, "SSH_ASKPASS": "/bin/pwd", "SSH_ASKPASS_REQUIRE": "force"},
        check=True,
        capture_output=True,
    )
    key, certificate = certified(tmp_path)
    with pytest.raises(AgentError):
        agent.add(key.private_bytes_raw(), certificate.blob, comment="x", seconds=60)


@pytest.mark.parametrize("name", ["sshd", "sshd-session", "dropbear", "socat", "gpg-agent"])
def test_an_agent_elsewhere_is_none_of_ours(tmp_path: Path, name: str):
    """What sshd or a relay listens for is on another machine: no key goes there."""
    path = tmp_path / "agent"
    argv = [sys.executable, "-c", PRETENDER, str(path), name]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert Agent.local({"SSH_AUTH_SOCK": str(path)}) is None
        with pytest.raises(AgentError):
            Agent(str(path)).identities()
        process.terminate()


def test_no_agent_is_none(tmp_path: Path):
    """No variable, nothing there, nobody listening: no agent, no error."""
    (tmp_path / "file").touch()
    for path in ("", str(tmp_path / "nothing"), str(tmp_path / "file")):
        assert Agent.local({"SSH_AUTH_SOCK": path}) is None
    assert Agent.local({}) is None
