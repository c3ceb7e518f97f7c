"""Running one external command: an argv list, a deadline, an output limit, no shell."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

DEFAULT_LIMIT = 64 * 1024 * 1024
_REAP_SECONDS = 5.0
_GONE = (BrokenPipeError, ConnectionResetError)


class CommandError(Exception):
    """A command that could not be run to its end, or ended with a status that was not accepted."""


@dataclass(frozen=True, slots=True)
class Completed:
    """How a command ended: its status (negative: the signal) and its whole output."""

    argv: tuple[str, ...]
    status: int
    stdout: bytes
    stderr: bytes

    def checked(self) -> "Completed":
        """Itself, if the status is 0; else a `CommandError` with the command's own words."""
        if self.status:
            words = self.stderr.decode(errors="replace").strip()[-2000:]
            raise CommandError(f"{self.argv[0]} ended with status {self.status}: {words}")
        return self


async def run(
    argv: Sequence[str],
    *,
    timeout: float,  # noqa: ASYNC109 - a command's deadline is part of what it is, not a caller's wish
    limit: int = DEFAULT_LIMIT,
    env: Mapping[str, str] | None = None,
    stdin: bytes = b"",
) -> Completed:
    """Run a command and read its output; `timeout` in seconds, `limit` in bytes per stream.

    `env` is the whole environment (None: ours). A command that is late, talks too much or whose
    caller is cancelled is killed with its process group.

    Raises:
        CommandError: not found, not permitted, later than the deadline, or over the limit.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=env,
            start_new_session=True,
        )
    except OSError as error:
        raise CommandError(f"{argv[0]} cannot be run: {error.strerror}") from error
    if process.stdin is None or process.stdout is None or process.stderr is None:
        raise CommandError(f"{argv[0]} came without pipes")
    talk = asyncio.gather(
        _feed(process.stdin, stdin),
        _read(process.stdout, limit),
        _read(process.stderr, limit),
        process.wait(),
    )
    try:
        async with asyncio.timeout(timeout):
            _, stdout, stderr, status = await talk
            await _closed(process.stdin)
    except TimeoutError as error:
        raise CommandError(f"{argv[0]} did not end within {timeout:g} s") from error
    except _TooMuch as error:
        raise CommandError(f"{argv[0]} wrote more than {limit} bytes") from error
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            reaping = asyncio.ensure_future(_reap(process))
            try:
                await asyncio.shield(reaping)
            except asyncio.CancelledError:
                await reaping  # called off while it was reaped: still to its end
                raise
    return Completed(tuple(argv), status, stdout, stderr)


class _TooMuch(Exception):  # noqa: N818 - never leaves this module
    """More output than was allowed."""


async def _reap(process: asyncio.subprocess.Process) -> None:
    """Wait for the end of a killed command; asyncio sees it when the pipes are read to theirs."""
    pipes = (_discard(process.stdout), _discard(process.stderr), _closed(process.stdin))
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_REAP_SECONDS):
            await asyncio.gather(*pipes, process.wait())


async def _closed(stream: asyncio.StreamWriter | None) -> None:
    # How a pipe ended is kept for somebody to ask; nobody asking is a warning.
    if stream is not None:
        stream.close()
        with contextlib.suppress(*_GONE):
            await stream.wait_closed()


async def _discard(stream: asyncio.StreamReader | None) -> None:
    while stream is not None:
        try:
            if not await stream.read(65536):
                return
        except RuntimeError:
            # Whoever read before us is still at it, and goes on to the end.
            return


async def _feed(stream: asyncio.StreamWriter, data: bytes) -> None:
    # A command may end without reading its input: that is its business.
    with contextlib.suppress(*_GONE):
        if data:
            stream.write(data)
            await stream.drain()
        stream.close()


async def _read(stream: asyncio.StreamReader, limit: int) -> bytes:
    chunks: list[bytes] = []
    size = 0
    while chunk := await stream.read(65536):
        size += len(chunk)
        if size > limit:
            raise _TooMuch
        chunks.append(chunk)
    return b"".join(chunks)
