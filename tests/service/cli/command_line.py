"""The `headgate` command as a process of its own, at home in a test's directory."""

import asyncio
import os
import pty
import sys
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from headgate.command import Completed, run

DEADLINE = 30.0
PROGRAM = (sys.executable, "-W", "error", "-m", "headgate.cli")


@dataclass
class CommandLine:
    """Runs the command with nothing but its own home and what a test adds to the environment."""

    home: Path
    environ: dict[str, str] = field(default_factory=dict)

    def env(self) -> dict[str, str]:
        """The whole environment of the command."""
        return {
            "HOME": str(self.home),
            "PATH": os.environ["PATH"],
            "LANG": "C.UTF-8",
            "TZ": "UTC",
            "NO_PROXY": "*",
            **self.environ,
        }

    async def __call__(self, *arguments: str, **environ: str) -> Completed:
        """Run to the end; output apart, no terminal."""
        return await run([*PROGRAM, *arguments], timeout=DEADLINE, env={**self.env(), **environ})

    async def json(self, *arguments: str) -> object:
        """The one JSON document of a command that succeeds."""
        completed = (await self(*arguments, "--json")).checked()
        return msgspec.json.decode(completed.stdout)

    async def start(self, *arguments: str) -> asyncio.subprocess.Process:
        """Start it, with pipes."""
        pipe = asyncio.subprocess.PIPE
        return await asyncio.create_subprocess_exec(
            *PROGRAM, *arguments, stdout=pipe, stderr=pipe, env=self.env()
        )

    async def on_terminal(self, *arguments: str) -> str:
        """What an 80-column terminal shows of it, with its escape sequences."""
        return await asyncio.to_thread(self._on_terminal, arguments)

    def _on_terminal(self, arguments: tuple[str, ...]) -> str:
        leader, follower = pty.openpty()
        env = {**self.env(), "TERM": "xterm-256color", "COLUMNS": "80", "LINES": "24"}
        # posix_spawn: no code of ours between fork and exec, in a process that has threads.
        actions = [(os.POSIX_SPAWN_DUP2, follower, fd) for fd in (0, 1, 2)]
        pid = os.posix_spawn(sys.executable, [*PROGRAM, *arguments], env, file_actions=actions)
        os.close(follower)
        shown = b""
        try:
            while piece := _read(leader):
                shown += piece
        finally:
            os.close(leader)
            os.waitpid(pid, 0)
        return shown.decode()


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65536)
    except OSError:
        return b""  # Linux's way to say that the other end of a terminal is gone
