"""A session over SSH: to a login node, as the user, under a certificate, host key checked."""

import asyncio
import secrets

import asyncssh
import structlog

from gateway.sessions.credentials import Credentials
from gateway.sessions.session import Conversation, SessionUnavailable
from headgate.settings import Section

log = structlog.get_logger(__name__)

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
        key = asyncssh.import_private_key(credentials.private_key)
        certificate = asyncssh.import_certificate(credentials.certificate)
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
        conversation = Conversation(
            reader=process.stdout, writer=process.stdin, nonce=nonce, hang_up=connection.abort
        )
        await conversation.start()
        return conversation
