"""The life of a service process: listen, say READY, serve until told to stop, drain."""

import asyncio
import contextlib
import signal
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import structlog
from aiohttp import web

from headgate.clock import Clock
from headgate.connections import QuietRunner
from headgate.settings import Section, SettingsError
from headgate.systemd import notify

log = structlog.get_logger(__name__)

DRAIN_SECONDS = 20.0
RUNNER: web.AppKey[type[QuietRunner]] = web.AppKey("runner", type)


class ListenSettings(Section, frozen=True):
    """Where a service listens. A host that is not loopback needs TLS or `insecure = true`."""

    host: str = "127.0.0.1"
    port: int = 0
    unix: str = ""
    tls_certificate: str = ""
    tls_key: str = ""
    insecure: bool = False


@contextlib.asynccontextmanager
async def listening(app: web.Application, listen: ListenSettings) -> AsyncIterator[str]:
    """Serve `app` while the context is open; the value is its base URL, or the socket's path.

    Raises:
        SettingsError: the address is not loopback and there is neither TLS nor the explicit word.
    """
    tls = tls_context(listen)
    runner = app.get(RUNNER, QuietRunner)(app, handle_signals=False, shutdown_timeout=DRAIN_SECONDS)
    await runner.setup()
    try:
        if listen.unix:
            await web.UnixSite(runner, listen.unix).start()
            yield listen.unix
            return
        site = web.TCPSite(runner, listen.host, listen.port, ssl_context=tls)
        await site.start()
        port = runner.addresses[0][1]
        host = f"[{listen.host}]" if ":" in listen.host else listen.host
        yield f"{'https' if tls else 'http'}://{host}:{port}"
    finally:
        await runner.cleanup()


def tls_context(listen: ListenSettings) -> ssl.SSLContext | None:
    """What a listener encrypts with; `SettingsError` where it cannot, or would not and should."""
    if listen.tls_certificate:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        try:
            context.load_cert_chain(Path(listen.tls_certificate), Path(listen.tls_key))
        except OSError as error:
            raise SettingsError(f"listen: {listen.tls_certificate}: {error.strerror}") from error
        return context
    loopback = listen.host in {"127.0.0.1", "::1", "localhost"}
    if not (listen.unix or loopback or listen.insecure):
        raise SettingsError(
            f"listen: {listen.host} is not loopback; set tls_certificate and tls_key, "
            "or insecure = true if a proxy in front does TLS"
        )
    return None


async def serve(app: web.Application, listen: ListenSettings) -> None:
    """Serve until SIGTERM or SIGINT; requests in flight are finished."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    async with listening(app, listen) as address:
        log.info("listening", address=address)
        notify("READY=1")
        await stopped.wait()
        notify("STOPPING=1")
        log.info("stopping")


async def every(
    seconds: float, work: Callable[[], Awaitable[None]], *, clock: Clock, name: str
) -> None:
    """Do `work` at an interval for ever; a failure is logged, and the next turn comes."""
    while True:
        try:
            await work()
        except Exception:
            log.exception("turn_failed", work=name)
        await clock.sleep(seconds)
