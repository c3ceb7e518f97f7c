"""Commits that arrive together share one transaction; each caller waits for its own."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")

MAX_GROUP = 256


class GroupCommit(Generic[T, R]):
    """Hands whatever is waiting to `commit`, one group at a time, in order of arrival.

    `commit` returns one outcome per item, an exception for an item that is refused by itself; an
    exception it raises is raised to every caller of that group. Nothing is waited for: an item
    that comes alone is committed alone.
    """

    def __init__(self, commit: Callable[[Sequence[T]], Awaitable[Sequence[R | Exception]]]) -> None:
        self._commit = commit
        self._waiting: list[tuple[T, asyncio.Future[R]]] = []
        self._worker: asyncio.Task[None] | None = None

    async def submit(self, item: T) -> R:
        """The outcome of one item, once its group is committed.

        Raises:
            Exception: the item's own refusal, or what made its whole group fail.
        """
        future: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, future))
        if self._worker is None:
            self._worker = asyncio.create_task(self._work())
        return await future

    async def close(self) -> None:
        """Wait until nothing is waiting any more."""
        if self._worker is not None:
            with contextlib.suppress(asyncio.CancelledError):
                await self._worker

    async def _work(self) -> None:
        try:
            while self._waiting:
                group, self._waiting = self._waiting[:MAX_GROUP], self._waiting[MAX_GROUP:]
                await self._commit_one(group)
        finally:
            self._worker = None

    async def _commit_one(self, group: list[tuple[T, asyncio.Future[R]]]) -> None:
        try:
            outcomes = await self._commit([item for item, _ in group])
        except Exception as error:  # noqa: BLE001 - raised again, to each caller of the group
            outcomes = [error] * len(group)
        for (_, future), outcome in zip(group, outcomes, strict=True):
            if future.done():  # its caller has gone away
                continue
            if isinstance(outcome, Exception):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)
