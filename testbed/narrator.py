"""Telling a story with commands: each is shown, run, printed, and held to what is said of it."""

import asyncio
import os
import re
import shlex
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence

from headgate.command import CommandError, Completed, run
from headgate.settings import command_environment

_LINE_SECONDS = 120.0
_SETTLE_SECONDS = 60.0
_LOOK_AGAIN_SECONDS = 0.3


class StoryError(Exception):
    """Something did not happen as the story says; with the command and what it printed."""


class Narrator:
    """Shows commands of one person and runs them; `home` keeps what they leave behind."""

    def __init__(self, home: str, bin_directory: str) -> None:
        path = command_environment().get("PATH", os.defpath)
        self._environment = command_environment(
            HOME=home,
            XDG_CONFIG_HOME=f"{home}/.config",
            XDG_STATE_HOME=f"{home}/.local/state",
            PATH=f"{bin_directory}:{path}",
            COLUMNS="100",
        )
        self._cwd = home

    def title(self, text: str) -> None:
        """A new chapter."""
        self.say(f"\n== {text}")

    def say(self, text: str) -> None:
        """A sentence in between."""
        print(text, flush=True)

    async def quietly(self, argv: Sequence[str]) -> Completed:
        """Run a command of this person without a word."""
        return await run(argv, timeout=_LINE_SECONDS, env=self._environment)

    async def run(
        self,
        argv: Sequence[str],
        *,
        expect: str = "",
        only: str = "",
        status: int = 0,
        heard: Callable[[str], Awaitable[None]] | None = None,
        shown: Sequence[str] | None = None,
        env: Mapping[str, str] | None = None,
        prompt: str = "$",
    ) -> str:
        """Run a command and print it with its output, line by line; its standard output.

        `expect` is a regular expression that the output must match, `status` its exit status;
        `only` lines that match it are printed; `heard` gets each line as it comes. `shown` is what
        a person would have typed.

        Raises:
            StoryError: it ended otherwise, or said something else.
        """
        typed = argv[2] if argv[:2] == ["sh", "-c"] and not shown else shlex.join(shown or argv)
        grep = f" | grep -E {shlex.quote(only)}" if only else ""
        self.say(f"{prompt} {typed}{grep}")
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={**self._environment, **(env or {})},
            cwd=self._cwd,
        )
        if process.stdout is None:
            raise CommandError(f"{argv[0]} came without a pipe")
        lines: list[str] = []
        try:
            while raw := await asyncio.wait_for(process.stdout.readline(), _LINE_SECONDS):
                line = raw.decode(errors="replace").rstrip("\n")
                lines.append(line)
                if re.search(only, line):
                    self.say(line)
                if heard is not None:
                    await heard(line)
            ended = await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        output = "\n".join(lines)
        if ended != status:
            raise StoryError(f"{shlex.join(argv)}\nended with status {ended}, not {status}")
        if not re.search(expect, output, re.MULTILINE):
            raise StoryError(f"{shlex.join(argv)}\ndid not say {expect!r}")
        return output


async def settled(ask: Callable[[], Awaitable[Completed]], expect: str) -> None:
    """Return when what a command prints matches; some things take Slurm a moment.

    Raises:
        StoryError: not within a minute; with what was printed last.
    """
    last = ""
    try:
        async with asyncio.timeout(_SETTLE_SECONDS):
            while True:
                answer = await ask()
                last = (answer.stdout + answer.stderr).decode(errors="replace")
                if re.search(expect, last):
                    return
                await asyncio.sleep(_LOOK_AGAIN_SECONDS)
    except TimeoutError as error:
        raise StoryError(f"{expect!r} did not come true; the last answer was:\n{last}") from error


def on_a_terminal() -> bool:
    """Whether somebody is there who may want to try things out afterwards."""
    return sys.stdin.isatty() and sys.stdout.isatty()
