"""A jump host: one kept connection of the gateway's own, through which login nodes are reached."""

import asyncio

import asyncssh

from gateway.sessions.session import NodeAway
from headgate.settings import Section

CONNECT_TIMEOUT = 10.0


class JumpSettings(Section, frozen=True):
    """The jump host, and the gateway's own account there.

    `key_file` opens that account, which needs direct-tcpip to the login nodes and nothing else
    (`restrict,port-forwarding,permitopen="…"`). Its host key is checked with `known_hosts`.
    """

    host: str
    user: str
    key_file: str
    port: int = 22
    known_hosts: str = "/etc/ssh/ssh_known_hosts"


class Jump:
    """Keeps the connection; what is lost is made again by who needs it next."""

    def __init__(self, settings: JumpSettings) -> None:
        self._settings = settings
        self._opening: asyncio.Task[asyncssh.SSHClientConnection] | None = None
        self._connection: asyncssh.SSHClientConnection | None = None

    async def connection(self) -> asyncssh.SSHClientConnection:
        """The living connection; all who need one that is being made wait for the same.

        Raises:
            NodeAway: there is none to be had.
        """
        if self._connection is not None and not self._connection.is_closed():
            return self._connection
        if self._opening is None:
            self._opening = asyncio.create_task(self._connect())
            self._opening.add_done_callback(self._opened)
        return await asyncio.shield(self._opening)

    def _opened(self, task: asyncio.Task[asyncssh.SSHClientConnection]) -> None:
        self._opening = None
        if not task.cancelled() and task.exception() is None:
            self._connection = task.result()

    async def close(self) -> None:
        """Hang up."""
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.wait([self._opening])
        if self._connection is not None:
            self._connection.abort()
            await self._connection.wait_closed()

    async def _connect(self) -> asyncssh.SSHClientConnection:
        settings = self._settings
        try:
            return await asyncssh.connect(
                settings.host,
                settings.port,
                username=settings.user,
                client_keys=[settings.key_file],
                known_hosts=settings.known_hosts,
                agent_path=None,
                config=None,
                x509_trusted_certs=None,
                x509_trusted_cert_paths=[],
                connect_timeout=CONNECT_TIMEOUT,
                login_timeout=CONNECT_TIMEOUT,
                keepalive_interval=5,
                keepalive_count_max=2,
            )
        except (OSError, asyncssh.Error, TimeoutError) as error:
            where = f"{settings.host}:{settings.port}"
            raise NodeAway(f"jump host {where}: {str(error) or 'no answer in time'}") from error
