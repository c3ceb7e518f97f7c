"""Zabbix's web API; the only place that knows its library."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import requests
from pyzabbix.api import ZabbixAPI, ZabbixAPIException

from monitoring_probe.provision import ApiError

T = TypeVar("T")


class ZabbixApi:
    """The web API (JSON-RPC) as one verb; the library blocks, so each call runs in a thread."""

    def __init__(self, url: str, *, timeout: float, ca: str = "") -> None:
        self._session = requests.Session()
        if ca:
            self._session.verify = ca
        self._timeout = timeout
        self._api = ZabbixAPI(url, session=self._session, timeout=timeout)

    async def login(self, *, user: str = "", password: str = "", token: str = "") -> None:
        """Log in with an API token, else as a user.

        Raises:
            ApiError: not reachable, not Zabbix, or refused.
        """
        await self._blocking(
            lambda: self._api.login(user=user, password=password, api_token=token or None)
        )

    def version(self) -> tuple[int, int]:
        """The release the server said at login, major and minor."""
        release = self._api.version
        return (release.major, release.minor) if release else (0, 0)

    async def call(self, method: str, params: Mapping[str, Any] | Sequence[Any]) -> Any:  # noqa: ANN401 - JSON
        """The result of one method.

        Raises:
            ApiError: the server's own words, or why it could not be asked.
        """
        answer = await self._blocking(lambda: self._api.do_request(method, params))
        return answer["result"]

    async def close(self) -> None:
        """Log out a user (a token stays) and close the connection."""
        try:
            if self._api.auth and not self._api.use_api_token:
                await self.call("user.logout", [])
        finally:
            self._session.close()

    async def _blocking(self, work: Callable[[], T]) -> T:
        try:
            async with asyncio.timeout(self._timeout + 1):
                return await asyncio.to_thread(work)
        except TimeoutError as error:
            raise ApiError(f"no answer within {self._timeout:g} s") from error
        except ZabbixAPIException as error:
            raise ApiError(str(error)) from error
        except (requests.RequestException, ValueError) as error:
            raise ApiError(f"{self._api.url}: {error}") from error
