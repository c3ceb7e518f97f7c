"""The person's ssh-agent: keys added with a lifetime, removed, listed (draft-ietf-sshm-ssh-agent).

Standard library alone and little of it: ssh waits for what imports this.
"""

import os
import socket
import struct
from collections.abc import Mapping

from headgate.cli.ssh.wire import ED25519, ED25519_CERTIFICATE, Reader, WireError, string

SECONDS = 3.0
MAX_ANSWER_BYTES = 256 * 1024
LOCAL_AGENTS = frozenset({"ssh-agent", "systemd", "gcr-ssh-agent", "gnome-keyring-d"})
"""Processes behind a socket that keep what they are given in this machine's memory.

An agent that sshd listens for is on another machine (ssh -A), and gpg-agent writes keys to disk.
"""

_REQUEST_IDENTITIES, _IDENTITIES = 11, 12
_REMOVE_IDENTITY = 18
_ADD_CONSTRAINED = 25
_SUCCESS = 6
_LIFETIME = 1
_MAX_LIFETIME = 2**32 - 1


class AgentError(Exception):
    """The agent is away, or does not do what it is asked."""


class Agent:
    """One agent; each question is a connection of its own, with a deadline."""

    def __init__(self, path: str) -> None:
        self._path = path

    @classmethod
    def local(cls, environ: Mapping[str, str]) -> "Agent | None":
        """The agent of `SSH_AUTH_SOCK` if it runs on this machine and keeps keys in memory."""
        path = environ.get("SSH_AUTH_SOCK", "")
        try:
            with _connected(path) as connection:
                listener = connection.getsockopt(
                    socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")
                )
        except (OSError, AgentError):
            return None
        pid, uid, _ = struct.unpack("3i", listener)
        return cls(path) if uid == os.geteuid() and _keeps_to_itself(pid) else None

    def identities(self) -> dict[bytes, str]:
        """What it holds: keys and certificates, as public blobs, with their comments.

        Raises:
            AgentError: it does not answer, or not as an agent.
        """
        reader = Reader(self._ask(bytes([_REQUEST_IDENTITIES])))
        try:
            if reader.number(1) != _IDENTITIES:
                raise AgentError("the agent lists nothing")
            count = reader.number()
            return {reader.string(): reader.string().decode(errors="replace") for _ in range(count)}
        except WireError as error:
            raise AgentError("the agent answers nonsense") from error

    def add(self, seed: bytes, certificate: bytes, *, comment: str, seconds: int) -> None:
        """Add an Ed25519 key (its 32 bytes) with its certificate, and bare, for `seconds`.

        Both, as ssh-add does: ssh signs for a certificate with the bare key.

        Raises:
            AgentError: it refuses one of them; neither is left in it.
        """
        public = _public(certificate)
        secret = string(public) + string(seed + public) + string(comment.encode())
        limit = struct.pack(">BI", _LIFETIME, max(1, min(seconds, _MAX_LIFETIME)))
        bare = string(ED25519) + secret + limit
        certified = string(ED25519_CERTIFICATE) + string(certificate) + secret + limit
        for identity in (bare, certified):
            if self._ask(bytes([_ADD_CONSTRAINED]) + identity)[:1] != bytes([_SUCCESS]):
                self.remove(string(ED25519) + string(public))
                raise AgentError("the agent does not take the key")

    def remove(self, identity: bytes) -> bool:
        """Remove a key or certificate; False if it was not there."""
        answer = self._ask(bytes([_REMOVE_IDENTITY]) + string(identity))
        return answer[:1] == bytes([_SUCCESS])

    def _ask(self, message: bytes) -> bytes:
        try:
            with _connected(self._path) as connection:
                connection.sendall(string(message))
                size = int.from_bytes(_exactly(connection, 4), "big")
                if size > MAX_ANSWER_BYTES:
                    raise AgentError("the agent says too much")
                return _exactly(connection, size)
        except OSError as error:
            raise AgentError(f"the agent does not answer: {error.strerror}") from error


def _keeps_to_itself(listener: int) -> bool:
    """Whether the process that made the socket is an agent of this machine, not a way to another.

    ssh-agent makes it and leaves the work to a child; sshd's end of `ssh -A` stays while it works.
    """
    if listener <= 0:
        return False  # of another PID namespace
    try:
        os.kill(listener, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    try:
        with open(f"/proc/{listener}/comm", encoding="utf-8") as file:  # noqa: PTH123 - pathlib costs ssh 4 ms
            return file.read().strip() in LOCAL_AGENTS
    except OSError:
        return False


def _connected(path: str) -> socket.socket:
    if not path:
        raise AgentError("there is no agent")
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(SECONDS)
        connection.connect(path)
    except OSError:
        connection.close()
        raise
    return connection


def _exactly(connection: socket.socket, size: int) -> bytes:
    received = b""
    while len(received) < size:
        piece = connection.recv(size - len(received))
        if not piece:
            raise AgentError("the agent hung up")
        received += piece
    return received


def _public(certificate: bytes) -> bytes:
    reader = Reader(certificate)
    reader.string()
    reader.string()
    return reader.string()
