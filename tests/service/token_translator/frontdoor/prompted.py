"""Logging in at a front door by its prompts."""

from collections.abc import Sequence
from typing import Any

import asyncssh


class Asked(asyncssh.SSHClient):
    """A client that answers prompts one by one, cutting nothing, and notes what it is asked.

    Words that come without a prompt (RFC 4256, section 3.2) it notes, and needs no answer for.
    """

    def __init__(self, answers: Sequence[str]) -> None:
        self._answers = iter(answers)
        self.prompts: list[str] = []
        self.words: list[str] = []
        self.banners: list[str] = []

    def auth_banner_received(self, msg: str, lang: str) -> None:
        """What is said outside of any question."""
        del lang
        self.banners.append(msg)

    def kbdint_auth_requested(self) -> str:
        """Prompts are welcome."""
        return ""

    def kbdint_challenge_received(
        self, name: str, instructions: str, lang: str, prompts: Sequence[tuple[str, bool]]
    ) -> list[str] | None:
        """The next answer; none when they are used up."""
        del name, lang
        self.prompts += [prompt for prompt, _ in prompts]
        self.words.append(instructions)
        if not prompts:
            return []
        answer = next(self._answers, None)
        return None if answer is None else [answer]


async def log_in(door: Any, client: Asked, command: str = "echo in", **options: Any) -> str:
    """What a command prints after a login by prompts; empty where there is no login."""
    settings = {"password": None, "preferred_auth": "keyboard-interactive", **options}
    try:
        async with door.connect(client_factory=lambda: client, **settings) as connection:
            return str((await connection.run(command, encoding="utf-8")).stdout)
    except asyncssh.PermissionDenied:
        return ""
