"""The login nodes, as the person under their certificate; host keys are always checked."""

from collections.abc import Sequence
from pathlib import Path

import asyncssh
import structlog

from headgate.problems import Unavailable
from headgate.settings import SettingsError
from token_translator.frontdoor.admission import NOT_NOW
from token_translator.frontdoor.intake import read_in_turns
from token_translator.frontdoor.settings import NodeSettings
from token_translator.frontdoor.translator import Login

log = structlog.get_logger(__name__)

CONNECT_SECONDS = 10.0


class Nodes:
    """Tries one after the other, beginning each time with the next."""

    def __init__(self, nodes: Sequence[NodeSettings]) -> None:
        self._nodes = tuple(nodes)
        self._next = 0

    async def connect(self, login: Login) -> asyncssh.SSHClientConnection:
        """A connection of that account.

        Raises:
            Unavailable: no node lets us in, or a file of ours cannot be read.
        """
        start = self._next
        self._next = (start + 1) % len(self._nodes)
        for node in (*self._nodes[start:], *self._nodes[:start]):
            try:
                return await _connect(node, login)
            except (OSError, asyncssh.Error, TimeoutError) as error:
                if isinstance(error, OSError) and error.filename is not None:
                    # Sockets have no file's name: this is ours, and alike for every node.
                    log.error("own_file", path=str(error.filename), error=error.strerror)  # noqa: TRY400 - in words
                    raise Unavailable(NOT_NOW) from error
                log.warning("login_node_refuses", host=node.host, port=node.port, error=repr(error))
        raise Unavailable("The login node lets nobody in at the moment: try again in a minute.")


async def _connect(node: NodeSettings, login: Login) -> asyncssh.SSHClientConnection:
    connection = await asyncssh.connect(
        node.host,
        node.port,
        username=login.account,
        client_keys=[(login.key, login.certificate)],
        known_hosts=node.known_hosts,
        preferred_auth="publickey",
        # Nothing of this service's own SSH set-up may leak into a person's connection, and HOME
        # may be anybody's: without these, asyncssh looks below ~/.ssh.
        agent_path=None,
        config=None,
        x509_trusted_certs=None,
        x509_trusted_cert_paths=[],
        compression_algs=None,
        # What processors have instructions for: a third less work than what is first else.
        encryption_algs="^aes128-gcm@openssh.com,aes256-gcm@openssh.com",
        connect_timeout=CONNECT_SECONDS,
        login_timeout=CONNECT_SECONDS,
        keepalive_interval=15,
        keepalive_count_max=3,
    )
    read_in_turns(connection)
    return connection


def check_known_hosts(nodes: Sequence[NodeSettings]) -> None:
    """Read each node's file once.

    Raises:
        SettingsError: unreadable, not in OpenSSH's format, or without the node.
    """
    for node in nodes:
        try:
            known = asyncssh.read_known_hosts(node.known_hosts)
        except (OSError, ValueError) as error:
            raise SettingsError(f"{Path(node.known_hosts)}: {error}") from error
        keys, authorities, *_ = known.match(node.host, "", node.port)
        if not keys and not authorities:
            raise SettingsError(f"{node.known_hosts}: no key of {node.host} port {node.port}")
