"""An authority key in an ssh-agent: the signer asks for signatures and never sees the key."""

import asyncio
import contextlib
import os
import re
import stat
from pathlib import Path

import asyncssh

from headgate.settings import SettingsError
from token_translator.keys import fingerprint
from token_translator.signer import signatures
from token_translator.signer.authority import AuthorityError

SECONDS = 5.0
_RSA_SHA2_512 = 4  # SSH_AGENT_RSA_SHA2_512 (draft-ietf-sshm-ssh-agent, section 3.6.1)


class AgentAuthority:
    """The key of a fingerprint in the agent at a socket.

    One connection, opened again when it was lost; the agent answers one request at a time.
    """

    def __init__(self, socket: Path, blob: bytes, comment: str) -> None:
        self._socket = socket
        self._agent = asyncssh.SSHAgentClient(str(socket))
        self._public = signatures.load(blob)
        self._flags = _RSA_SHA2_512 if signatures.key_type(blob) == "ssh-rsa" else 0
        self.blob = blob
        self.comment = comment

    @classmethod
    async def connect(cls, socket: Path, key: str) -> "AgentAuthority":
        """With the key whose fingerprint (`SHA256:…`) is `key`.

        Raises:
            SettingsError: somebody else's socket, no agent there, or it has no such key.
        """
        _require_ours(socket)
        agent = asyncssh.SSHAgentClient(str(socket))
        try:
            async with asyncio.timeout(SECONDS):
                held = await agent.get_keys()
        except (ValueError, OSError, TimeoutError) as error:
            raise SettingsError(f"{socket}: no ssh-agent answers there") from error
        finally:
            await _closed(agent)
        for pair in held:
            if fingerprint(pair.public_data) == key:
                try:
                    return cls(socket, pair.public_data, _one_word(pair.get_comment() or "agent"))
                except signatures.SignatureError as error:
                    raise SettingsError(f"{socket}: {key}: {error}") from error
        raise SettingsError(f"{socket}: the agent holds {len(held)} keys, none is {key}")

    async def sign(self, data: bytes) -> bytes:
        """An SSH signature blob over `data`, checked; raises `AuthorityError`."""
        try:
            signature = await self._ask(data)
        except AuthorityError:
            # The connection may be that of an agent which has been restarted since.
            signature = await self._ask(data)
        try:
            signatures.verify(self._public, data, signature)
        except signatures.SignatureError as error:
            raise AuthorityError(f"the ssh-agent's signature: {error}") from error
        return signature

    async def _ask(self, data: bytes) -> bytes:
        try:
            async with asyncio.timeout(SECONDS):
                return await self._agent.sign(self.blob, data, self._flags)
        except TimeoutError as error:
            # An answer that comes after all would be taken for the next one's.
            await self._renew()
            raise AuthorityError(f"the ssh-agent did not sign within {SECONDS:g} s") from error
        except (ValueError, OSError) as error:
            await self._renew()
            raise AuthorityError(f"the ssh-agent did not sign: {error}") from error

    async def _renew(self) -> None:
        # A client of asyncssh's whose connection broke does not connect again.
        broken, self._agent = self._agent, asyncssh.SSHAgentClient(str(self._socket))
        await _closed(broken)

    async def close(self) -> None:
        """Close the connection."""
        await _closed(self._agent)


async def _closed(agent: asyncssh.SSHAgentClient) -> None:
    agent.close()
    with contextlib.suppress(OSError):
        await agent.wait_closed()


def _require_ours(socket: Path) -> None:
    # Who can put a socket there, or connect to it, signs in our name.
    try:
        status = socket.lstat()
    except OSError as error:
        raise SettingsError(f"{socket}: {error.strerror}") from error
    if not stat.S_ISSOCK(status.st_mode):
        raise SettingsError(f"{socket}: not a socket")
    if status.st_uid not in {0, os.geteuid()}:
        raise SettingsError(f"{socket}: owned by uid {status.st_uid}, not by this process's")
    if status.st_mode & 0o077:
        raise SettingsError(f"{socket}: mode {status.st_mode & 0o777:o}; use 0600")


def _one_word(comment: str) -> str:
    # It becomes part of a line that sshd and people read.
    return re.sub(r"[^A-Za-z0-9._@:/-]", "-", comment)[:64]
