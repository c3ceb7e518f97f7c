"""Where a client's bearer token comes from, and how a refused one is replaced once."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable

TokenCallback = Callable[[], str | Awaitable[str]]
"""Called when a token is needed: before the first request that needs one, and once more whenever
the service refused the last one. May be a coroutine function; what it raises reaches the caller."""


class TokenHolder:
    """The token in use. Requests that were refused together ask for a new one together, once."""

    def __init__(self, source: str | TokenCallback | None) -> None:
        self._source = source
        self._token: str | None = None
        self._lock = asyncio.Lock()

    async def current(self) -> str:
        """The token in use; empty when the client was made without one."""
        async with self._lock:
            if self._token is None:
                self._token = await self._ask()
            return self._token

    async def renew(self, refused: str) -> bool:
        """Replace a token that was refused; False when there is no other one to be had."""
        async with self._lock:
            if self._token != refused:
                return True
            self._token = await self._ask()
            return self._token != refused

    async def _ask(self) -> str:
        if self._source is None or isinstance(self._source, str):
            return self._source or ""
        answer = self._source()
        return (await answer if inspect.isawaitable(answer) else answer).strip()
