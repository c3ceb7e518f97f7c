"""How many connections the HTTP service has, from where, and how long their headers may take."""

import asyncio
import ipaddress
from collections import Counter
from typing import Annotated

import msgspec
import structlog
from aiohttp import web

from headgate.connections import Connection, QuietRunner
from headgate.settings import Section
from headgate.web import CONNECTION

log = structlog.get_logger(__name__)

FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\n"
    b"Content-Length: 0\r\nConnection: close\r\n\r\n"
)


class ConnectionSettings(Section, frozen=True):
    """At most `total` connections at once, and `per_source` from one address (IPv6: one /64).

    `proxies` are addresses that speak for many: for them the total alone counts, and who is behind
    one is whom its `X-Forwarded-For` names last; our own host is one unless said. The headers of a
    request take at most `header_seconds`; between two requests a client may be quiet for longer.
    """

    total: Annotated[int, msgspec.Meta(ge=2, le=100_000)] = 800
    per_source: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 200
    header_seconds: Annotated[float, msgspec.Meta(ge=0.1, le=60)] = 10.0
    proxies: tuple[str, ...] = ("127.0.0.1", "::1")

    def __post_init__(self) -> None:
        """Refuse addresses that are none.

        Raises:
            ValueError: naming it.
        """
        for address in self.proxies:
            if str(ipaddress.ip_address(address)) != address:
                raise ValueError(f"connections: write {address!r} as it is shown in logs")


class Bounds:
    """The connections there are now."""

    def __init__(self, settings: ConnectionSettings) -> None:
        self.settings = settings
        self._proxies = frozenset(settings.proxies)
        self._sources: Counter[str] = Counter()

    def enter(self, address: str) -> str | None:
        """Count one in; the source to count it out by, or None: there are too many."""
        source = self._source(address)
        if self._sources.total() >= self.settings.total:
            return None
        if source and self._sources[source] >= self.settings.per_source:
            return None
        self._sources[source] += 1
        return source

    def leave(self, source: str) -> None:
        """Count one out."""
        self._sources[source] -= 1
        if not self._sources[source]:
            del self._sources[source]

    def client(self, request: web.Request) -> str:
        """Who asks, as `network` counts them; behind a proxy whom that one names."""
        address = request.remote or ""
        if address not in self._proxies:
            return network(address)
        # Some proxies add a line of their own to the client's, so the last of all lines counts.
        named = ",".join(request.headers.getall("X-Forwarded-For", []))
        for hop in reversed([word.strip() for word in named.split(",")]):
            if hop and hop not in self._proxies:
                return network(hop) or address
        return network(address)

    def _source(self, address: str) -> str:
        """What is counted together; empty where the total alone counts."""
        return "" if address in self._proxies else network(address)


def network(address: str) -> str:
    """What is counted as one source: an IPv4 address, an IPv6 /64; a unix socket's is empty."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return ""
    found = getattr(found, "ipv4_mapped", None) or found
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    return str(ipaddress.ip_network((found, 64), strict=False))


BOUNDS = web.AppKey("bounds", Bounds)


class BoundedRunner(QuietRunner):
    """Serves an application that has `BOUNDS` within them."""

    async def _make_server(self) -> web.Server:
        return _Server(await super()._make_server(), self.app[BOUNDS])


class _Server(web.Server):
    def __init__(self, server: web.Server, bounds: Bounds) -> None:
        super().__init__(server.request_handler, request_factory=server.request_factory)
        self._bounds = bounds

    def __call__(self) -> web.RequestHandler:
        return _Connection(self, self._bounds, self._loop)


class _Connection(Connection):
    __slots__ = ("_bounds", "_deadline", "_source")

    def __init__(self, server: web.Server, bounds: Bounds, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(server, loop=loop, **CONNECTION)
        self._bounds = bounds
        self._source: str | None = None
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin, or say that there is no room."""
        peer = transport.get_extra_info("peername")
        address = peer[0] if isinstance(peer, tuple) else ""
        self._source = self._bounds.enter(address)
        if self._source is None:
            log.warning("too_many_connections", address=address)
            if isinstance(transport, asyncio.WriteTransport):
                transport.write(FULL)
            transport.close()
            return
        super().connection_made(transport)
        self._arm()

    def data_received(self, data: bytes) -> None:
        """Parts of requests; from the first byte of one its headers have their time."""
        if self._source is None:
            return
        if self._deadline is None and self._waiter is not None:
            self._arm()
        before = self._request_count
        super().data_received(data)
        if self._request_count > before:
            self._disarm()

    def connection_lost(self, exc: BaseException | None) -> None:
        """The end."""
        self._disarm()
        if self._source is not None:
            self._bounds.leave(self._source)
            self._source = None
            super().connection_lost(exc)

    def _arm(self) -> None:
        self._deadline = self._loop.call_later(self._bounds.settings.header_seconds, self._late)

    def _disarm(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _late(self) -> None:
        log.info("headers_late")
        self.force_close()
