"""A session over SSH: to a login node, as the user, under a certificate, host key checked."""

import asyncio
import secrets
from collections.abc import Callable

import asyncssh
import structlog

from gateway.sessions.credentials import Credentials
from gateway.sessions.jump import Jump, JumpSettings
from gateway.sessions.nodes import Node
from gateway.sessions.session import (
    Conversation,
    LoginStuck,
    NodeAway,
    NotAdmitted,
    SessionUnavailable,
)
from headgate.clock import Clock
from headgate.settings import Section

log = structlog.get_logger(__name__)

CONNECT_TIMEOUT = 10.0
GREETING_TIMEOUT = 5.0


class SshNode(Section, frozen=True):
    """A login node's address."""

    host: str
    port: int = 22


class SshSettings(Section, frozen=True):
    """The login node. `known_hosts` is a file in OpenSSH's format; there is no way around it.

    `further_nodes` are tried, in their order, where the first is away; all share the jobs'
    directories. `handshakes` is how many logins of ours are under way at a time on each node:
    below sshd's MaxStartups (10 by default), over all replicas together.
    """

    host: str
    port: int = 22
    known_hosts: str = "/etc/ssh/ssh_known_hosts"
    further_nodes: tuple[SshNode, ...] = ()
    handshakes: int = 8
    jump: JumpSettings | None = None

    def __post_init__(self) -> None:
        """Refuse what nothing could come of.

        Raises:
            ValueError: naming the key.
        """
        if self.handshakes < 1:
            raise ValueError("handshakes: must be at least 1")


class SshConnector:
    """Opens sessions on the first login node that answers, and stays with it."""

    def __init__(self, settings: SshSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._jump = None if settings.jump is None else Jump(settings.jump)
        places = (SshNode(settings.host, settings.port), *settings.further_nodes)
        self._nodes = [(place, self._node(place)) for place in places]
        self._chosen = 0

    def require(self) -> None:
        """Raise `NodeAway` while every login node is known to be down."""
        faults = [node.fault for _, node in self._nodes if node.down]
        if len(faults) == len(self._nodes):
            raise NodeAway("; ".join(faults))

    async def connect(self, account: str, credentials: Credentials) -> Conversation:
        """A session of that account.

        Raises:
            NodeAway: no login node answers, or none is one that we know.
            NotAdmitted, LoginStuck: one does, and the user does not get in.
            SessionUnavailable: there is no session program.
        """
        try:
            key = asyncssh.import_private_key(credentials.private_key)
            certificate = asyncssh.import_certificate(credentials.certificate)
        except (ValueError, asyncssh.Error) as error:
            raise SessionUnavailable(f"the certificate is of no use: {error}") from error
        identity = (key, certificate)
        faults = []
        count = len(self._nodes)
        for number in (self._chosen + turn for turn in range(count)):
            place, node = self._nodes[number % count]
            try:
                async with node.attempt(account) as admitted:
                    connection = await self._login(place, account, identity)
                    admitted()
                    conversation = await self._session(connection, node.name, credentials)
            except NodeAway as error:
                faults.append(str(error))
                continue
            self._chosen = number % count
            return conversation
        raise NodeAway("; ".join(faults))

    async def close(self) -> None:
        """Look at no node any more."""
        for _, node in self._nodes:
            await node.close()
        if self._jump is not None:
            await self._jump.close()

    def _node(self, place: SshNode) -> Node:
        async def greeting() -> str:
            return await self._greeting(place)

        return Node(
            f"{place.host}:{place.port}",
            clock=self._clock,
            handshakes=self._settings.handshakes,
            greeting=greeting,
        )

    async def _tunnel(self) -> asyncssh.SSHClientConnection | None:
        return None if self._jump is None else await self._jump.connection()

    async def _login(
        self, place: SshNode, account: str, identity: object
    ) -> asyncssh.SSHClientConnection:
        where = f"login node {place.host}:{place.port}"
        tunnel = await self._tunnel()
        client = _Client()
        try:
            return await asyncssh.connect(
                place.host,
                place.port,
                username=account,
                client_keys=[identity],
                client_factory=lambda: client,
                tunnel=tunnel or (),
                known_hosts=self._settings.known_hosts,
                # Nothing of our own SSH set-up may leak into a user's connection: all that asyncssh
                # would look for below ~/.ssh is named, for HOME may be closed to us.
                agent_path=None,
                config=None,
                x509_trusted_certs=None,
                x509_trusted_cert_paths=[],
                connect_timeout=CONNECT_TIMEOUT,
                login_timeout=CONNECT_TIMEOUT,
                keepalive_interval=15,
                keepalive_count_max=3,
            )
        except asyncssh.PermissionDenied as error:
            raise NotAdmitted(f"{where} refuses the user {account}") from error
        except asyncssh.HostKeyNotVerifiable as error:
            log.error("login_node_unknown", node=where, error=str(error))  # noqa: TRY400 - no bug
            raise NodeAway(f"{where} has no host key that known_hosts has") from error
        except (OSError, asyncssh.Error, TimeoutError) as error:
            words = f"{where}: {str(error) or 'no answer in time'}"
            kind = LoginStuck if client.known() else NodeAway
            raise kind(words) from error

    async def _session(
        self, connection: asyncssh.SSHClientConnection, node: str, credentials: Credentials
    ) -> Conversation:
        nonce = secrets.token_urlsafe(24)
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                process = await connection.create_process(nonce, encoding=None)
        except TimeoutError as error:
            connection.abort()
            raise LoginStuck(f"login node {node}: it opens no session in time") from error
        except (OSError, asyncssh.Error) as error:
            connection.abort()
            raise SessionUnavailable(f"login node {node}: {error}") from error
        except asyncio.CancelledError:
            connection.abort()
            raise
        conversation = Conversation(
            reader=_Stdout(process.stdout),
            writer=_Stdin(process.stdin),
            nonce=nonce,
            hang_up=connection.abort,
            gone=connection.wait_closed,
            in_force=lambda: self._clock.now() < credentials.valid_before,
        )
        await conversation.start()
        return conversation

    async def greetings(self) -> list[tuple[str, str, str]]:
        """Of each login node its name, what its sshd says it is, and what is wrong."""
        found = await asyncio.gather(*(self._said(place) for place, _ in self._nodes))
        names = (node.name for _, node in self._nodes)
        return [(name, *said) for name, said in zip(names, found, strict=True)]

    async def _greeting(self, place: SshNode) -> str:
        return (await self._said(place))[1]

    async def _said(self, place: SshNode) -> tuple[str, str]:
        """What RFC 4253, section 4.2, has a server say first; anything else is what is wrong."""
        try:
            async with asyncio.timeout(GREETING_TIMEOUT):
                said = (await _first_line(place, await self._tunnel())).strip()
        except TimeoutError:
            return "", "no answer in time"
        except (OSError, asyncssh.Error, NodeAway) as error:
            return "", str(error)
        return (said, "") if said.startswith("SSH-") else ("", f"sshd says {said[:200]!r}")


async def _first_line(place: SshNode, tunnel: asyncssh.SSHClientConnection | None) -> str:
    reader: asyncio.StreamReader | asyncssh.SSHReader[bytes]
    writer: asyncio.StreamWriter | asyncssh.SSHWriter[bytes]
    if tunnel is None:
        reader, writer = await asyncio.open_connection(place.host, place.port)
    else:
        reader, writer = await tunnel.open_connection(place.host, place.port)
    try:
        return (await reader.readline()).decode(errors="replace")
    finally:
        close: Callable[[], object] = writer.close
        close()


class _Client(asyncssh.SSHClient):
    """Tells how far a connection came."""

    def __init__(self) -> None:
        self._connection: asyncssh.SSHClientConnection | None = None

    def connection_made(self, conn: asyncssh.SSHClientConnection) -> None:
        """There is a connection."""
        self._connection = conn

    def known(self) -> bool:
        """Whether the other side has shown a host key that we know."""
        return self._connection is not None and (self._connection.get_server_host_key() is not None)


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
