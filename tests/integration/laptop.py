"""A person's machine with the ssh clients of the distribution, and the windows they run in."""

import asyncio
import contextlib
import fcntl
import os
import pty
import signal
import struct
import termios
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from headgate.command import Completed, run
from testbed.site import Site

ASKPASS = """\
#!/bin/sh
# Answers ssh's prompt, to which ssh puts for whom it is, with the part of the token it asks for.
case "$1" in "("*"@127.0.0.1) Access token"*) ;; *) exit 1 ;; esac
part=$(printf '%s' "$1" | sed -n 's/.*(part \\([0-9]*\\)).*/\\1/p')
cut -b "$(( (${part:-1} - 1) * 1023 + 1 ))-$(( ${part:-1} * 1023 ))" "$HEADGATE_TOKEN_FILE"
"""
SECONDS = 60.0
LIMIT = 256 * 1024 * 1024


def config(folder: Path, site: Site) -> str:
    """An ssh configuration: `door` is the front door, `node` the login node behind it."""
    door, node = site.addresses.frontdoor, site.addresses.ssh
    return f"""
Host door
  HostName {door["host"]}
  Port {door["port"]}
  User site
  UserKnownHostsFile {door["known_hosts"]}
  NumberOfPasswordPrompts 1
Host node
  HostName login
  Port {node["port"]}
  User alice
  HostKeyAlias [127.0.0.1]:{node["port"]}
  UserKnownHostsFile {node["known_hosts"]}
  IdentityFile {folder}/id
  CertificateFile {folder}/id-cert.pub
Host *
  GlobalKnownHostsFile none
  StrictHostKeyChecking yes
  IdentitiesOnly yes
  IdentityAgent none
"""


@dataclass(frozen=True, slots=True)
class Laptop:
    """A person's machine: an ssh configuration, a token in a file, and stock clients."""

    folder: Path
    site: Site

    @property
    def config(self) -> Path:
        """The ssh configuration; `door` is the front door."""
        return self.folder / "config"

    @property
    def environment(self) -> dict[str, str]:
        """What ssh needs to ask nobody but the helper."""
        return {
            "PATH": os.environ["PATH"],
            "SSH_ASKPASS": str(self.folder / "askpass"),
            "SSH_ASKPASS_REQUIRE": "force",
            "HEADGATE_TOKEN_FILE": str(self.folder / "token"),
        }

    def has(self, token: str) -> None:
        """Keep a token where the helper finds it."""
        (self.folder / "token").write_text(token + "\n")

    def argv(self, *arguments: str) -> tuple[str, ...]:
        """`ssh` with these arguments."""
        return ("ssh", "-F", str(self.config), *arguments)

    async def ssh(self, *arguments: str, stdin: bytes = b"") -> Completed:
        """Run `ssh` with these arguments."""
        return await run(
            self.argv(*arguments), timeout=SECONDS, limit=LIMIT, env=self.environment, stdin=stdin
        )

    async def copy(self, program: str, *arguments: str) -> Completed:
        """Run `scp` or `sftp`."""
        argv = (program, "-F", str(self.config), *arguments)
        return await run(argv, timeout=SECONDS, env=self.environment)


@dataclass(frozen=True, slots=True)
class Window:
    """A terminal window in which ssh runs."""

    master: int
    reader: asyncio.StreamReader
    process: asyncio.subprocess.Process

    async def line(self) -> str:
        """The next line."""
        async with asyncio.timeout(SECONDS):
            return (await self.reader.readline()).decode().strip()

    def write(self, text: str) -> None:
        """Type."""
        os.write(self.master, text.encode())

    def resize(self, rows: int, columns: int) -> None:
        """Make the window another size, as a terminal emulator does."""
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.process.send_signal(signal.SIGWINCH)

    async def status(self) -> int:
        """How ssh ended."""
        async with asyncio.timeout(SECONDS):
            return await self.process.wait()


@contextlib.asynccontextmanager
async def terminal(laptop: Laptop, command: str) -> AsyncIterator[Window]:
    """`ssh -tt door COMMAND` in a window of 24 rows and 80 columns."""
    master, slave = pty.openpty()
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    process = await asyncio.create_subprocess_exec(
        *laptop.argv("-tt", "door", command),
        stdin=slave,
        stdout=slave,
        stderr=asyncio.subprocess.DEVNULL,
        env={**laptop.environment, "TERM": "xterm"},
        start_new_session=True,
    )
    os.close(slave)
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    # The terminal stays open for typing after the pipe's side is closed.
    pipe = os.fdopen(os.dup(master), "rb", buffering=0)
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
    try:
        yield Window(master, reader, process)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        transport.close()
        os.close(master)
