"""A session without SSH: the same program as a child process, for the site that is one machine."""

import asyncio
import contextlib
import secrets

from gateway.sessions.credentials import Credentials
from gateway.sessions.session import Conversation, SessionUnavailable
from headgate.clock import Clock
from headgate.settings import Section, command_environment

_LINGER_SECONDS = 3.0


class LocalSettings(Section, frozen=True):
    """`path` goes first in the session's PATH: where the simulated cluster's commands are."""

    path: str
    environment: dict[str, str] = {}  # noqa: RUF012 - msgspec copies a mutable default


class LocalConnector:
    """Starts what the certificate would have forced, as whom we are ourselves."""

    def __init__(self, settings: LocalSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock

    def require(self) -> None:
        """The machine that we run on is never away."""

    async def greetings(self) -> list[tuple[str, str, str]]:
        """There is no login node."""
        return []

    async def close(self) -> None:
        """Nothing is kept."""

    async def connect(self, _: str, credentials: Credentials) -> Conversation:
        """A session; the account is our own, whatever it is called.

        Raises:
            SessionUnavailable: the certificate forces no command, or it cannot be started.
        """
        argv = credentials.forced_command()
        if not argv:
            raise SessionUnavailable("the certificate forces no command")
        nonce = secrets.token_urlsafe(24)
        inherited = command_environment()
        environment = {
            **inherited,
            **self._settings.environment,
            "PATH": f"{self._settings.path}:{inherited.get('PATH', '/usr/bin:/bin')}",
            "SSH_ORIGINAL_COMMAND": nonce,
        }
        try:
            process = await asyncio.create_subprocess_exec(
                *argv,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                env=environment,
            )
        except OSError as error:
            raise SessionUnavailable(f"{argv[0]}: {error.strerror}") from error
        if process.stdin is None or process.stdout is None:
            raise SessionUnavailable(f"{argv[0]} came without pipes")

        conversation = Conversation(
            reader=process.stdout,
            writer=process.stdin,
            nonce=nonce,
            hang_up=process.stdin.close,
            gone=lambda: _gone(process),
            in_force=lambda: self._clock.now() < credentials.valid_before,
        )
        await conversation.start()
        return conversation


async def _gone(process: asyncio.subprocess.Process) -> None:
    """Like sshd: what is under way goes on for a while, what then still hangs is killed."""
    try:
        async with asyncio.timeout(_LINGER_SECONDS):
            await process.wait()
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
