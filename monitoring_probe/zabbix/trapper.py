"""Zabbix's trapper; the only place that knows its library."""

import asyncio
import json
import ssl
import zlib
from collections.abc import Callable, Sequence

from zabbix_utils import AsyncSender, ItemValue, ProcessingError

from monitoring_probe.delivery import TrapperUnavailable
from monitoring_probe.values import Value

VALUES_AT_ONCE = 250


class ZabbixTrapper:
    """Sends values as `sender data` (Zabbix sender protocol), one connection per packet.

    `servers` are tried in turn; `timeout` in seconds covers each attempt and, which the library
    itself does not limit, the answer. `tls` makes a context per connection.
    """

    def __init__(
        self,
        servers: Sequence[tuple[str, int]],
        *,
        timeout: float,
        tls: Callable[[], ssl.SSLContext] | None = None,
    ) -> None:
        self._nodes = [f"{host}:{port}" for host, port in servers]
        self._timeout = timeout
        self._tls = tls

    async def send(self, values: Sequence[Value]) -> bool:
        """Send them, in packets; whether the server processed every single one.

        A value is processed if its host and item are known and we may send: the server does not
        say which ones it refused.

        Raises:
            TrapperUnavailable: refused, reset, late, or no answer of Zabbix's.
        """
        for start in range(0, len(values), VALUES_AT_ONCE):
            if not await self._packet(values[start : start + VALUES_AT_ONCE]):
                return False
        return True

    async def _packet(self, values: Sequence[Value]) -> bool:
        deadline = self._timeout * (len(self._nodes) + 1)
        try:
            async with asyncio.timeout(deadline):
                answer = await self._sender().send([_item(value) for value in values])
        except TimeoutError as error:
            raise TrapperUnavailable(f"{self._where()}: no answer within {deadline:g} s") from error
        except (
            ProcessingError,  # no server reachable, not its protocol, response other than success
            OSError,
            asyncio.IncompleteReadError,
            json.JSONDecodeError,
            UnicodeDecodeError,
            zlib.error,
            AttributeError,  # the library's, when the answer's info line has another form
            TypeError,  # likewise, when the answer is JSON but no object
            KeyError,  # likewise, when it has no info
        ) as error:
            words = str(error) or type(error).__name__
            raise TrapperUnavailable(f"{self._where()}: {words}"[:500]) from error
        return int(answer.processed) == len(values)

    def _sender(self) -> AsyncSender:
        tls = self._tls
        return AsyncSender(
            # One inner list: one cluster, whose members stand in for each other.
            clusters=[self._nodes],
            timeout=self._timeout,
            chunk_size=VALUES_AT_ONCE,
            ssl_context=(lambda _: tls()) if tls else None,
        )

    def _where(self) -> str:
        return ", ".join(self._nodes)


def _item(value: Value) -> ItemValue:
    return ItemValue(value.host, value.key, value.value, value.clock, value.ns)
