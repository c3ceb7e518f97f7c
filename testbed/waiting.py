"""Waiting for what happens outside this process: nothing tells us, so we look until it is so."""

import asyncio
from collections.abc import Callable

LOOK_AGAIN_SECONDS = 0.02


async def until(done: Callable[[], bool], *, seconds: float) -> None:
    """Return when `done()` is true.

    Raises:
        TimeoutError: it is not, within that many seconds.
    """
    async with asyncio.timeout(seconds):
        while not done():  # noqa: ASYNC110 - nobody is there to set an event
            await asyncio.sleep(LOOK_AGAIN_SECONDS)
