"""The part of `apply` that is root: no network, no database; it obeys its policy, not the plan.

The unprivileged part talks to it over a socket pair, one JSON object a line: `begin` brings the
whole plan, which is hashed and checked again here; `do` names one of its changes by number.
"""

import asyncio
import contextlib
import socket
from collections.abc import Iterable
from typing import Protocol

import msgspec
import structlog

from account_importer.directory import Change, Facts, TargetError, TargetRefusedError
from account_importer.plan import Plan, decode
from account_importer.policy import Policy, violations
from account_importer.unix import observe

log = structlog.get_logger(__name__)

MAX_LINE = 32 * 1024 * 1024
ANSWER_SECONDS = 300.0


class Tools(Protocol):
    """What carries out a single change (`unix.UnixTools`)."""

    async def carry_out(self, change: Change) -> None:
        """Do it, or raise TargetError."""


class _Order(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A line to the executor: `begin` with a plan and its hash, or `do` with a number."""

    op: str
    plan: str = ""
    digest: str = ""
    seq: int = -1


class _Answer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Its answer: done; failed, with the reason; or refused, with all of them."""

    failed: str = ""
    refused: tuple[str, ...] = ()


class Executor:
    """Checks and does, one order after the other; caps hold for a whole run."""

    def __init__(self, *, policy: Policy, tools: Tools) -> None:
        self._policy = policy
        self._tools = tools
        self._plan: Plan | None = None
        self._begun: list[Change] = []

    async def obey(self, line: bytes) -> bytes:
        """The answer to one order; what it does not understand it refuses."""
        try:
            order = msgspec.json.decode(line, type=_Order)
            if order.op == "begin":
                answer = self._begin(order)
            elif order.op == "do":
                answer = await self._do(order.seq)
            else:
                answer = _Answer(refused=(f"there is no order {order.op!r}",))
        except msgspec.DecodeError as error:
            answer = _Answer(refused=(f"not an order: {error}",))
        return msgspec.json.encode(answer) + b"\n"

    def _begin(self, order: _Order) -> _Answer:
        self._plan = None
        try:
            plan = decode(order.plan.encode(), order.digest)
        except ValueError as error:
            return _Answer(refused=(str(error),))
        earlier = [change for change in self._begun if change not in plan.changes]
        reasons = violations(plan, self._policy, earlier)
        if reasons:
            log.error("plan_refused_by_policy", plan=order.digest, reasons=reasons)
            return _Answer(refused=tuple(reasons))
        self._plan = plan
        self._begun = [*earlier, *plan.changes]
        return _Answer()

    async def _do(self, seq: int) -> _Answer:
        if self._plan is None or not 0 <= seq < len(self._plan.changes):
            return _Answer(failed="no plan was begun that has this change")
        change = self._plan.changes[seq]
        try:
            await self._tools.carry_out(change)
        except TargetError as error:
            log.warning("change_failed", kind=change.kind, account=change.account, error=str(error))
            return _Answer(failed=str(error))
        log.info("change_done", kind=change.kind, account=change.account, uid=change.uid)
        return _Answer()


async def serve_executor(connection: socket.socket, executor: Executor) -> None:
    """Obey until the other side is gone."""
    reader, writer = await asyncio.open_unix_connection(sock=connection, limit=MAX_LINE)
    try:
        while line := await reader.readline():
            writer.write(await executor.obey(line))
            await writer.drain()
    except (ConnectionError, ValueError) as error:
        log.warning("executor_stopped", error=repr(error))
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


class ExecutorTarget:
    """The target as the unprivileged part has it: it looks itself, the executor acts."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def connect(cls, connection: socket.socket) -> "ExecutorTarget":
        """Over one end of the socket pair."""
        return cls(*await asyncio.open_unix_connection(sock=connection, limit=MAX_LINE))

    async def close(self) -> None:
        """End the conversation; the executor ends then."""
        self._writer.close()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()

    async def observe(self, names: Iterable[str], ids: Iterable[int]) -> Facts:
        """NSS and files, as `unix.observe` reads them."""
        return await asyncio.to_thread(observe, list(names), list(ids))

    async def begin(self, plan: bytes, digest: str) -> None:
        """Have the whole plan checked. Raises TargetRefusedError, TargetError."""
        answer = await self._ask(_Order("begin", plan=plan.decode(), digest=digest))
        if answer.refused:
            raise TargetRefusedError(answer.refused)

    async def carry_out(self, seq: int) -> None:
        """Have one change of it done. Raises TargetError."""
        answer = await self._ask(_Order("do", seq=seq))
        if answer.failed or answer.refused:
            raise TargetError(answer.failed or "; ".join(answer.refused))

    async def _ask(self, order: _Order) -> _Answer:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                self._writer.write(msgspec.json.encode(order) + b"\n")
                await self._writer.drain()
                line = await self._reader.readline()
                return msgspec.json.decode(line, type=_Answer)
        except (ConnectionError, TimeoutError, ValueError) as error:
            raise ExecutorGoneError("the executor is gone") from error


class ExecutorGoneError(TargetError):
    """Nothing more can be done in this run; the journal tells the next one where to go on."""


class RegistryTarget:
    """Mapping mode: the site makes the accounts, the registry is all that changes."""

    async def observe(self, names: Iterable[str], ids: Iterable[int]) -> Facts:
        """Nothing of it is ours to judge."""
        del names, ids
        return Facts()

    async def begin(self, plan: bytes, digest: str) -> None:
        """Only what the hash says. Raises TargetRefusedError."""
        try:
            decode(plan, digest)
        except ValueError as error:
            raise TargetRefusedError([str(error)]) from error

    async def carry_out(self, seq: int) -> None:
        """There is nothing to do on the target."""


class ObservingTarget:
    """For `plan`: looks, and cannot do anything."""

    async def observe(self, names: Iterable[str], ids: Iterable[int]) -> Facts:
        """NSS and files, as `unix.observe` reads them."""
        return await asyncio.to_thread(observe, list(names), list(ids))

    async def begin(self, plan: bytes, digest: str) -> None:
        """Always refused."""
        del plan
        raise TargetRefusedError([f"plan {digest[:12]} cannot be applied from here"])

    async def carry_out(self, seq: int) -> None:
        """Always refused."""
        raise TargetError(f"change {seq} cannot be carried out from here")
