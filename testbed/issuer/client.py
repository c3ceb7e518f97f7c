"""Talking to a running issuer's control routes."""

from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any

import aiohttp

TIMEOUT = aiohttp.ClientTimeout(total=10)


class ControlError(Exception):
    """The issuer refused, or cannot be reached."""


class IssuerControl:
    """What `control.py` offers, as Python calls; `url` ends in a slash."""

    def __init__(self, *, session: aiohttp.ClientSession, url: str, secret: str) -> None:
        self._session = session
        self._url = url
        self._headers = {"Authorization": f"Bearer {secret}"}

    async def token(
        self,
        user: str,
        *,
        audience: Iterable[str] = (),
        lifetime: int = 0,
        groups: Iterable[str] | None = None,
        client: str = "testbed",
        scopes: Iterable[str] = ("openid", "profile", "email"),
        actor: str = "",
        acr: str = "",
        auth_time: int = 0,
        claims: Mapping[str, Any] | None = None,
    ) -> str:
        """An access token of that user; `lifetime` in seconds, 0: the issuer's default.

        `auth_time` is epoch seconds; `claims` are put over all others.
        """
        body = {
            "user": user,
            "audience": list(audience),
            "lifetime": lifetime,
            "groups": None if groups is None else list(groups),
            "client": client,
            "scopes": list(scopes),
            "actor": actor,
            "acr": acr,
            "auth_time": auth_time,
            "claims": dict(claims or {}),
        }
        return str((await self._call("POST", "token", body))["access_token"])

    async def users(self) -> list[dict[str, Any]]:
        """All users with their subjects."""
        users: list[dict[str, Any]] = await self._call("GET", "users")
        return users

    async def replace_users(self, users: Iterable[Mapping[str, Any]]) -> None:
        """Replace everybody."""
        await self._call("PUT", "users", [dict(user) for user in users])

    async def put_user(self, username: str, **fields: Any) -> str:  # noqa: ANN401 - JSON
        """Add or replace a user; the subject."""
        body = {"username": username, **fields}
        return str((await self._call("PUT", f"users/{username}", body))["sub"])

    async def change_user(self, username: str, **fields: Any) -> str:  # noqa: ANN401 - JSON
        """Replace some fields (`active=False`, `end_time=…`, `groups=[…]`); the subject."""
        return str((await self._call("PATCH", f"users/{username}", fields))["sub"])

    async def delete_user(self, username: str) -> None:
        """Remove a user."""
        await self._call("DELETE", f"users/{username}")

    async def rotate_key(self) -> str:
        """Sign with a new key; its `kid`."""
        return str((await self._call("POST", "keys", {}))["kid"])

    async def retire_key(self, kid: str) -> None:
        """Stop publishing a key."""
        await self._call("DELETE", f"keys/{kid}")

    async def fault(self, path: str, **fields: Any) -> None:  # noqa: ANN401 - JSON
        """Plan a fault (`status`, `after`, `times`, `delay`)."""
        await self._call("POST", "faults", {"path": path, **fields})

    async def _call(self, method: str, path: str, body: object = None) -> Any:  # noqa: ANN401 - JSON
        address = f"{self._url}control/{path}"
        try:
            async with self._session.request(
                method, address, json=body, headers=self._headers, timeout=TIMEOUT
            ) as response:
                text = await response.text()
                if response.status == HTTPStatus.NO_CONTENT:
                    return None
                if response.status != HTTPStatus.OK:
                    raise ControlError(f"{method} {address}: {response.status} {text[:500]}")
                return await response.json()
        except (aiohttp.ClientError, TimeoutError) as error:
            raise ControlError(f"{address}: {error}") from error
