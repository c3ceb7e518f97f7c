"""Reading the simulated cluster: the `ClusterReader` that speaks to its socket."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TypeVar

import msgspec

from headgate.slurm.memory.protocol import LIMIT, Ask
from headgate.slurm.model import (
    AccountedJob,
    ClusterUnavailable,
    Configuration,
    Controller,
    Node,
    Partition,
    QueuedJob,
    Reservation,
)
from headgate.slurm.names import check_names

T = TypeVar("T")
_DEADLINE = 30.0


class _Answer(msgspec.Struct, frozen=True):
    ok: msgspec.Raw = msgspec.Raw(b"null")
    error: tuple[str, ...] = ()


class MemoryReader:
    """Asks a simulated cluster; one connection per question. `timeout` is in seconds."""

    def __init__(self, socket: Path, *, timeout: float = _DEADLINE) -> None:
        self._socket = socket
        self._timeout = timeout

    async def configuration(self) -> Configuration:
        """The cluster's name, release and settings."""
        return await self._ask(Ask("configuration"), Configuration)

    async def partitions(self) -> Sequence[Partition]:
        """All queues."""
        return await self._ask(Ask("partitions"), list[Partition])

    async def nodes(self) -> Sequence[Node]:
        """All nodes, with what is used on them."""
        return await self._ask(Ask("nodes"), list[Node])

    async def reservations(self) -> Sequence[Reservation]:
        """All reservations: a simulated cluster has none."""
        return await self._ask(Ask("reservations"), list[Reservation])

    async def controllers(self) -> Sequence[Controller]:
        """The controller and whether it answers; one that is down is an answer."""
        try:
            return await self._ask(Ask("controllers"), list[Controller])
        except ClusterUnavailable:
            return (Controller("primary", "localhost", up=False),)

    async def jobs(self, *, ended: bool = False) -> Sequence[QueuedJob]:
        """The queue of everybody in one query; with `ended`, also what has left it recently."""
        return await self._ask(Ask("jobs", ended=ended), list[QueuedJob])

    async def jobs_named(self, names: Sequence[str]) -> Mapping[str, Sequence[QueuedJob]]:
        """Jobs in the queue or recently ended by exact name; a name nobody has is absent.

        Raises:
            ValueError: a name has other characters than letters, digits, `.`, `_` and `-`.
        """
        question = Ask("jobs_named", names=list(check_names(names)))
        return await self._ask(question, dict[str, list[QueuedJob]])

    async def accounted(
        self, names: Sequence[str], *, since: datetime
    ) -> Mapping[str, Sequence[AccountedJob]]:
        """What accounting knows of jobs with these exact names, submitted since; oldest first.

        Raises:
            ValueError: a name has other characters than letters, digits, `.`, `_` and `-`.
        """
        question = Ask("accounted", names=list(check_names(names)), since=since.timestamp())
        return await self._ask(question, dict[str, list[AccountedJob]])

    async def _ask(self, question: Ask, kind: type[T]) -> T:
        try:
            async with asyncio.timeout(self._timeout):
                line = await self._exchange(msgspec.json.encode(question) + b"\n")
            found = msgspec.json.decode(line, type=_Answer)
            if found.error:
                raise ClusterUnavailable("; ".join(found.error))
            return msgspec.json.decode(found.ok, type=kind)
        except TimeoutError as error:
            words = f"the simulated cluster did not answer within {self._timeout:g} s"
            raise ClusterUnavailable(words) from error
        except (OSError, ValueError) as error:
            raise ClusterUnavailable(f"the simulated cluster does not answer: {error}") from error

    async def _exchange(self, line: bytes) -> bytes:
        reader, writer = await asyncio.open_unix_connection(self._socket, limit=LIMIT)
        try:
            writer.write(line)
            return await reader.readline()
        finally:
            writer.close()
            await writer.wait_closed()
