"""The copy of the ledger off the host: follows what was committed, never holds it up.

Nothing is queued in memory: what is to be sent is in the ledger. Where the server is away, entries
wait there, and that is an alarm; a restarted signer goes on behind the last one that it sent. An
entry may so arrive twice: its number says so. Personal fields stay encrypted.
"""

import asyncio
import os
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

import structlog

from headgate.clock import Clock
from headgate.settings import SettingsError
from token_translator.signer.entries import Entry, Head
from token_translator.signer.ledger import Ledger
from token_translator.signer.position import Position
from token_translator.signer.settings import SyslogSettings
from token_translator.signer.syslog import TooLongError, Transport, message, transport

log = structlog.get_logger(__name__)

T = TypeVar("T")

BATCH = 200
LOOK_SECONDS = 5.0
"""How often to look for entries that another process wrote."""
LAST_SECONDS = 2.0
BACK_OFF = (0.2, 0.5, 1.0, 2.0, 5.0, 10.0)


class Copy:
    """Sends each entry behind `sent`, in order, and remembers there how far it came."""

    def __init__(
        self, settings: SyslogSettings, ledger: Ledger, sent: Position, clock: Clock
    ) -> None:
        self._settings = settings
        self._ledger = ledger
        self._sent = sent
        self._clock = clock
        self._transport: Transport = transport(settings)
        self._wake = asyncio.Event()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="copy")
        self._behind_since: float | None = None
        self._alarmed_at: float | None = None
        self.lost = 0
        """Entries that can never be sent, since the start."""

    def wake(self) -> None:
        """Look now: something was committed."""
        self._wake.set()

    async def follow(self) -> None:
        """Send until cancelled."""
        failures = 0
        while True:
            self._wake.clear()
            try:
                await self._send_all()
                failures = 0
            except (OSError, TimeoutError, SettingsError) as error:
                await self._note_failure(error)
                await self._clock.sleep(BACK_OFF[min(failures, len(BACK_OFF) - 1)])
                failures += 1
                continue
            await self._woken()

    async def close(self) -> None:
        """Send what is left, if that takes no longer than a moment, and let go of everything."""
        try:
            async with asyncio.timeout(LAST_SECONDS):
                await self._send_all()
        except (OSError, TimeoutError, SettingsError) as error:
            log.warning("ledger_copy_unfinished", error=str(error) or type(error).__name__)
        await self._transport.close()
        self._thread.shutdown(wait=False)

    async def _woken(self) -> None:
        looking = asyncio.ensure_future(self._clock.sleep(LOOK_SECONDS))
        woken = asyncio.ensure_future(self._wake.wait())
        try:
            await asyncio.wait((looking, woken), return_when=asyncio.FIRST_COMPLETED)
        finally:
            looking.cancel()
            woken.cancel()

    async def _send_all(self) -> None:
        while batch := await self._read(self._next):
            await self._send(batch)
            last = batch[-1]
            self._sent.write(Head(last.seq, last.hash, last.serial or 0))
        if self._alarmed_at is not None:
            log.info("ledger_copy_caught_up", seq=self._sent.read().seq)
        self._behind_since = self._alarmed_at = None

    def _next(self) -> list[Entry]:
        return list(islice(self._ledger.entries(after=self._sent.read().seq), BATCH))

    async def _send(self, batch: list[Entry]) -> None:
        messages = [self._message(entry) for entry in batch]
        try:
            await self._transport.send(messages)
        except TooLongError:
            for entry, one in zip(batch, messages, strict=True):
                await self._send_alone(entry, one)

    async def _send_alone(self, entry: Entry, one: bytes) -> None:
        try:
            await self._transport.send([one])
        except TooLongError as error:
            self.lost += 1
            log.error("ledger_copy_lost", seq=entry.seq, why=str(error), lost=self.lost)  # noqa: TRY400 - an alarm, no traceback

    def _message(self, entry: Entry) -> bytes:
        return message(
            entry,
            facility=self._settings.facility,
            host=socket.gethostname(),
            process=os.getpid(),
        )

    async def _note_failure(self, error: Exception) -> None:
        now = self._clock.monotonic()
        if self._behind_since is None:
            self._behind_since = now
        late = now - self._behind_since >= self._settings.alarm_after
        again = self._alarmed_at is None or now - self._alarmed_at >= 60.0  # noqa: PLR2004 - a minute
        if late and again:
            self._alarmed_at = now
            behind = (await self._read(self._ledger.head)).seq - self._sent.read().seq
            log.error(
                "ledger_copy_behind",
                entries=behind,
                seconds=round(now - self._behind_since),
                address=self._settings.address,
                error=str(error) or type(error).__name__,
            )

    async def _read(self, look: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, look)
