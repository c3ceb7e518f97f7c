"""A session over SSH: to a login node, as the user, under a certificate, host key checked."""

import asyncio
import secrets

import asyncssh

from gateway.sessions.credentials import Credentials
from gateway.sessions.session import Conversation, SessionUnavailable
from headgate.settings import Section

CONNECT_TIMEOUT = 10.0


class SshSettings(Section, frozen=True):
    """The login node. `known_hosts` is a file in OpenSSH's format; there is no way around it."""

    host: str
    port: int = 22
    known_hosts: str = "/etc/ssh/ssh_known_hosts"


class SshConnector:
    """Opens sessions on one login node."""

    def __init__(self, settings: SshSettings) -> None:
        self._settings = settings

    async def connect(self, account: str, credentials: Credentials) -> Conversation:
        """A session of that account.

        Raises:
            SessionUnavailable: the node is away, refuses us, or is not the one we know.
        """
        try:
            key = asyncssh.import_private_key(credentials.private_key)
            certificate = asyncssh.import_certificate(credentials.certificate)
        except (ValueError, asyncssh.Error) as error:
            raise SessionUnavailable(f"the certificate is of no use: {error}") from error
        nonce = secrets.token_urlsafe(24)
        try:
            connection = await asyncssh.connect(
                self._settings.host,
                self._settings.port,
                username=account,
                client_keys=[(key, certificate)],
                known_hosts=self._settings.known_hosts,
                # Nothing of the service user's own SSH set-up may leak into a user's connection.
                agent_path=None,
                config=None,
                connect_timeout=CONNECT_TIMEOUT,
                login_timeout=CONNECT_TIMEOUT,
                keepalive_interval=15,
                keepalive_count_max=3,
            )
        except (OSError, asyncssh.Error, TimeoutError) as error:
            where = f"{self._settings.host}:{self._settings.port}"
            raise SessionUnavailable(f"login node {where}: {error}") from error
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                process = await connection.create_process(nonce, encoding=None)
        except (OSError, asyncssh.Error, TimeoutError) as error:
            connection.abort()
            raise SessionUnavailable(f"login node {self._settings.host}: {error}") from error
        except asyncio.CancelledError:
            connection.abort()
            raise
        conversation = Conversation(
            reader=_Stdout(process.stdout),
            writer=_Stdin(process.stdin),
            nonce=nonce,
            hang_up=connection.abort,
            gone=connection.wait_closed,
        )
        await conversation.start()
        return conversation


class _Stdout:
    """The session's output; a lost connection is what it is for any stream: an OSError."""

    def __init__(self, stream: asyncssh.SSHReader[bytes]) -> None:
        self._stream = stream

    async def read(self, n: int = -1) -> bytes:
        """Some bytes, empty at the end."""
        try:
            return await self._stream.read(n)
        except asyncssh.Error as error:
            raise ConnectionError(str(error)) from error


class _Stdin:
    """The session's input, likewise."""

    def __init__(self, stream: asyncssh.SSHWriter[bytes]) -> None:
        self._stream = stream

    def write(self, data: bytes) -> None:
        """Queue bytes."""
        self._stream.write(data)

    async def drain(self) -> None:
        """Wait until there is room for more."""
        try:
            await self._stream.drain()
        except asyncssh.Error as error:
            raise ConnectionError(str(error)) from error
