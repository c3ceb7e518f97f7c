"""Running external commands: what is left behind when one has to be ended."""

import asyncio
import gc
from typing import Any

import pytest

from headgate.command import CommandError, run


async def test_a_command_that_says_too_much_leaves_nothing_behind():
    """Killed while it was still being written to, no future of its pipes is left unasked."""
    complaints: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: complaints.append(context))
    try:
        with pytest.raises(CommandError, match="wrote more than 1000 bytes"):
            await run(("sh", "-c", "exec yes"), timeout=10, limit=1000, stdin=b"x" * 10_000_000)
        gc.collect()
        await asyncio.sleep(0)
    finally:
        loop.set_exception_handler(None)
    assert complaints == []


async def test_a_command_need_not_read_its_input():
    """One that ends before it has read everything is no failure."""
    done = await run(("sh", "-c", "echo out"), timeout=10, stdin=b"x" * 10_000_000)
    assert (done.status, done.stdout) == (0, b"out\n")


async def test_a_late_command_is_ended_with_its_children():
    """After the deadline its whole process group is gone."""
    with pytest.raises(CommandError, match=r"did not end within 0\.3 s"):
        await run(("sh", "-c", "sleep 60 & sleep 60"), timeout=0.3)


async def test_a_late_command_that_reads_nothing_is_late():
    """What still waits in its input pipe changes nothing about how it ended."""
    with pytest.raises(CommandError, match=r"did not end within 0\.3 s"):
        await run(("sleep", "60"), timeout=0.3, stdin=b"x" * 100_000)
