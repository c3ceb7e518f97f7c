"""The listening socket: who is let as far as the threshold, and for how long."""

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncssh
import structlog

from headgate.clock import Clock
from headgate.settings import SettingsError
from token_translator.frontdoor.limits import Place
from token_translator.frontdoor.settings import Settings
from token_translator.frontdoor.visit import House, Visit
from token_translator.signer.files import read_private
from token_translator.starting import StartError

log = structlog.get_logger(__name__)

BACKLOG = 256
PAUSE_SECONDS = 0.5
"""After an accept that failed: descriptors are short, and others have to give theirs back."""
FULL_EVERY = 10.0
"""Seconds between two words about connections that were turned away."""


def options(settings: Settings) -> asyncssh.SSHServerConnectionOptions:
    """What asyncssh is told of every connection.

    Raises:
        SettingsError: the host's key or its certificate cannot be used.
    """
    try:
        return asyncssh.SSHServerConnectionOptions(
            server_host_keys=_host_keys(settings),
            config=None,
            keepalive_interval=30,
            keepalive_count_max=3,
            server_version="headgate",
            # Strangers choose these: groups of many thousand bits would keep us busy with them.
            kex_algs="-diffie-hellman*,rsa*,gss*",
            compression_algs=None,  # nothing that grows when it is unpacked
            encoding=None,
            line_editor=False,
            agent_forwarding=False,
            x11_forwarding=False,
            allow_scp=False,
            gss_host=None,
            host_based_auth=False,
            public_key_auth=False,
        )
    except (OSError, ValueError) as error:
        raise SettingsError(f"host_key, host_certificate: {error}") from error


def _host_keys(settings: Settings) -> list[Any]:
    key = asyncssh.import_private_key(read_private(Path(settings.host_key)))
    if not settings.host_certificate:
        return [key]
    return [(key, asyncssh.read_certificate(settings.host_certificate))]


class Door:
    """Accepts connections and turns away those for whom there is no room.

    A login may take `seconds`; where it may be by browser, as long as a code lives.
    """

    def __init__(
        self,
        *,
        house: House,
        options: asyncssh.SSHServerConnectionOptions,
        seconds: float,
        clock: Clock,
    ) -> None:
        self._house = house
        self._seconds = seconds
        self._options = options
        self._clock = clock
        self._visits: dict[asyncio.Task[None], Visit] = {}
        self._turned_away = 0
        self._told_at = float("-inf")

    async def serve(self, listening: socket.socket) -> None:
        """Accept until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                sock, address = await loop.sock_accept(listening)
            except OSError as error:
                log.warning("accept_failed", error=str(error))
                await self._clock.sleep(PAUSE_SECONDS)
                continue
            self._receive(sock, str(address[0]))

    async def close(self) -> None:
        """End every connection; returns when they are gone."""
        for visit in tuple(self._visits.values()):
            visit.drop("This service is being restarted.")
        for task in tuple(self._visits):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await asyncio.shield(task)
            task.cancel()
        await asyncio.gather(*self._visits, return_exceptions=True)

    def _receive(self, sock: socket.socket, address: str) -> None:
        place = self._house.places.take(address)
        if place is None:
            sock.close()
            self._tell_full(address)
            return
        devices = self._house.devices
        if devices is not None and not devices.offered_to(address):
            devices = None
        visit = Visit(self._house, place, devices)
        seconds = max(self._seconds, devices.seconds) if devices else self._seconds
        task = asyncio.create_task(self._attend(sock, visit, place, seconds))
        self._visits[task] = visit
        task.add_done_callback(self._visits.pop)

    def _tell_full(self, address: str) -> None:
        self._turned_away += 1
        now = self._clock.monotonic()
        if now >= self._told_at + FULL_EVERY:
            log.warning("turned_away", latest=address, connections=self._turned_away)
            self._told_at, self._turned_away = now, 0

    async def _attend(
        self, sock: socket.socket, visit: Visit, place: Place, seconds: float
    ) -> None:
        try:
            connection = await asyncssh.run_server(
                sock,
                config=None,
                options=self._options,
                server_factory=lambda: visit,
                login_timeout=seconds,
            )
            await connection.wait_closed()
        except (OSError, asyncssh.Error) as error:
            # Scanners come by all day; what was wrong with a login was said when it failed.
            log.debug("no_login", source=place.source, error=str(error))
        except Exception:
            log.exception("visit_failed", source=place.source)
        finally:
            self._house.places.release(place)
            sock.close()


@contextlib.asynccontextmanager
async def listening(host: str, port: int) -> AsyncIterator[socket.socket]:
    """The socket; its name says the port where that was 0.

    Raises:
        StartError: the address cannot be listened at. It may be free at the next try.
    """
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        sock = socket.create_server(
            (host, port), family=family, backlog=BACKLOG, dualstack_ipv6=host == "::"
        )
    except OSError as error:
        # The resolver's errors have numbers of their own, below 0.
        number = error.errno or 0
        words = os.strerror(number) if number > 0 else error.strerror
        raise StartError(f"cannot listen on {host} port {port}: {words}") from error
    sock.settimeout(0)
    with sock:
        yield sock
