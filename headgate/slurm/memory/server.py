"""The socket of the simulated cluster: one question a line, answered in order, one account only."""

import asyncio
import contextlib
import os
import socket
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import structlog

from headgate.slurm.memory import views
from headgate.slurm.memory.controller import Controller
from headgate.slurm.memory.protocol import (
    LIMIT,
    Ask,
    Cancel,
    Change,
    DrainNode,
    Question,
    Refused,
    Show,
    Stop,
    Submit,
    answer,
    refusal,
)

_CREDENTIALS = struct.Struct("3i")
_log = structlog.get_logger("headgate.slurm.memory")


class Server:
    """Answers for a controller. `stopping` is set when somebody asked it to end for good."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self._decode = msgspec.json.Decoder(Question).decode
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self.stopping = asyncio.Event()

    async def listen(self, path: Path) -> None:
        """Take the socket (0600), also one that a killed predecessor left behind.

        Raises:
            OSError: it cannot be made.
        """
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)  # noqa: PTH108 - a local file, before anything is served
        listener = socket.socket(socket.AF_UNIX)
        before = os.umask(0o177)
        try:
            listener.bind(str(path))
        finally:
            os.umask(before)
        self._server = await asyncio.start_unix_server(self._serve, sock=listener, limit=LIMIT)

    async def close(self) -> None:
        """Answer nobody any more."""
        if self._server is None:
            return
        self._server.close()
        for writer in list(self._writers):
            writer.close()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            if _peer(writer) not in {0, os.getuid()}:
                writer.write(refusal(("Access/permission denied",)))
                return
            while line := await reader.readline():
                writer.write(await self._answer(line))
                await writer.drain()
        except (ConnectionError, ValueError) as error:
            _log.info("a client was lost", error=str(error))
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _answer(self, line: bytes) -> bytes:
        try:
            return answer(await self._do(self._decode(line)))
        except Refused as refused:
            return refusal(refused.words)
        except msgspec.DecodeError as error:
            return refusal((f"Invalid request: {error}",))
        except Exception as error:  # noqa: BLE001 - whoever asks must hear of it; the log has the rest
            _log.exception("a question was not answered")
            return refusal((f"Unexpected message received: {type(error).__name__}",))

    async def _do(self, question: Question) -> object:
        if isinstance(question, Ask):
            return self._read(question)
        if isinstance(question, Show):
            return self._shown(question.id)
        if isinstance(question, Submit):
            job, words = self._controller.submit(question)
            return {"id": job.id, "words": words}
        await self._change(question)
        return None

    async def _change(self, question: Cancel | Change | DrainNode | Stop) -> None:
        match question:
            case Cancel():
                self._controller.cancel(question)
            case Change():
                self._controller.change(question)
            case DrainNode():
                self._controller.drain(question)
            case Stop():
                await self._controller.kill_all()
                self.stopping.set()

    def _shown(self, number: int) -> Mapping[str, Any]:
        job = self._controller.job(number)
        return {
            "job": job,
            "state": job.shown,
            "nodes": views.node_list(job),
            "tres": views.tres(self._controller.cluster, job),
        }

    def _read(self, ask: Ask) -> object:
        cluster, now = self._controller.cluster, self._controller.now()
        views_of: Mapping[str, Callable[[], object]] = {
            "configuration": lambda: views.configuration(cluster.site),
            "partitions": lambda: views.partitions(cluster),
            "nodes": lambda: views.nodes(cluster),
            "reservations": list,  # it has none, and refuses jobs that name one
            "controllers": views.controllers,
            "jobs": lambda: views.queue(cluster, ended=ask.ended, now=now),
            "jobs_named": lambda: views.queue_named(cluster, ask.names, now=now),
            "accounted": lambda: views.accounted(cluster, ask.names, since=ask.since),
        }
        if ask.what not in views_of:
            raise Refused(f"invalid keyword: {ask.what}")
        return views_of[ask.what]()


def _peer(writer: asyncio.StreamWriter) -> int:
    """The uid at the other end (unix(7), SO_PEERCRED)."""
    connection = writer.get_extra_info("socket")
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    uid: int = _CREDENTIALS.unpack(raw)[1]
    return uid
