"""Places where authorities' keys are kept, other than files: an agent and a software token."""

import asyncio
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from testbed.waiting import until
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


def in_agent(agent: Agent, fingerprint: str) -> str:
    """How the settings name a key."""
    return f'{{ kind = "agent", socket = "{agent.socket}", fingerprint = "{fingerprint}" }}'


def both(user: str, host: str) -> dict[str, str]:
    """The settings of two keys."""
    return {"user_ca": f"[{user}]", "host_ca": f"[{host}]"}
