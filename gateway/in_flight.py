"""Requests under one Idempotency-Key one after the other: a second one waits for the answer."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Hashable

from headgate.problems import Conflict

PATIENCE_SECONDS = 10.0
"""How long a repeated request waits for the first one's answer before it is told to come again."""


class RequestInFlight(Conflict):
    """The first request under this key has not been answered yet."""

    default_code = "request_in_flight"
    retryable = True


class InFlight:
    """What this replica is answering; between replicas the database's own key decides."""

    def __init__(self) -> None:
        self._locks: dict[Hashable, tuple[asyncio.Lock, list[None]]] = {}

    @contextlib.asynccontextmanager
    async def alone(self, key: Hashable) -> AsyncIterator[None]:
        """Nobody else with this key is in this context meanwhile.

        Raises:
            RequestInFlight: somebody else is, and stays.
        """
        lock, users = self._locks.setdefault(key, (asyncio.Lock(), []))
        users.append(None)
        try:
            try:
                await asyncio.wait_for(lock.acquire(), PATIENCE_SECONDS)
            except TimeoutError as error:
                words = "A request with this Idempotency-Key is being answered; come again."
                raise RequestInFlight(words, retry_after=2) from error
            try:
                yield
            finally:
                lock.release()
        finally:
            users.pop()
            if not users:
                del self._locks[key]
