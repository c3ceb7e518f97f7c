"""What tests do to the issuer while it runs; every route asks for the control secret."""

import hmac
from datetime import datetime
from typing import Any

import msgspec
from aiohttp import web

from headgate.problems import NotFound, Problem, Unauthenticated
from headgate.web import json_body, json_response
from testbed.issuer.core import Fault, Issuer
from testbed.issuer.directory import SshKey, UnknownUserError, User
from testbed.issuer.forms import bearer


class TokenRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A token for a user; `lifetime` in seconds (0: the default, negative: expired already).

    `auth_time` is epoch seconds; `claims` are put over all others.
    """

    user: str
    audience: tuple[str, ...] = ()
    scopes: tuple[str, ...] = ("openid", "profile", "email")
    client: str = "testbed"
    lifetime: int = 0
    groups: tuple[str, ...] | None = None
    actor: str = ""
    acr: str = ""
    auth_time: int = 0
    claims: dict[str, Any] = {}


class UserChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Fields of a user to replace; those left out stay. `end_time` null removes it."""

    given_name: str | msgspec.UnsetType = msgspec.UNSET
    family_name: str | msgspec.UnsetType = msgspec.UNSET
    email: str | msgspec.UnsetType = msgspec.UNSET
    groups: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET
    active: bool | msgspec.UnsetType = msgspec.UNSET
    end_time: datetime | msgspec.UnsetType | None = msgspec.UNSET
    ssh_keys: tuple[SshKey, ...] | msgspec.UnsetType = msgspec.UNSET


class FaultRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A fault to come: see `core.Fault`."""

    path: str
    status: int = 500
    after: int = 0
    times: int = 1
    delay: float = 0.0


def add_routes(app: web.Application, issuer: Issuer) -> None:
    """`/control/…`: tokens, users, keys, faults."""
    control = _Control(issuer)
    app.router.add_post("/control/token", control.token)
    app.router.add_get("/control/users", control.users)
    app.router.add_put("/control/users", control.replace_users)
    app.router.add_put("/control/users/{username}", control.put_user)
    app.router.add_patch("/control/users/{username}", control.change_user)
    app.router.add_delete("/control/users/{username}", control.delete_user)
    app.router.add_post("/control/keys", control.rotate)
    app.router.add_delete("/control/keys/{kid}", control.retire)
    app.router.add_post("/control/faults", control.fault)
    app.router.add_delete("/control/faults", control.no_faults)


class _Control:
    def __init__(self, issuer: Issuer) -> None:
        self._issuer = issuer

    def _admit(self, request: web.Request) -> None:
        given, secret = bearer(request), self._issuer.control_secret
        if not secret or not hmac.compare_digest(given.encode(), secret.encode()):
            raise Unauthenticated("The control secret is needed.")

    async def token(self, request: web.Request) -> web.Response:
        """Mint a token for a user."""
        self._admit(request)
        asked = await json_body(request, TokenRequest)
        try:
            issued = self._issuer.mint(
                asked.user,
                audience=asked.audience,
                scopes=asked.scopes,
                client_id=asked.client,
                lifetime=asked.lifetime,
                groups=asked.groups,
                actor=asked.actor,
                acr=asked.acr,
                auth_time=asked.auth_time,
                claims=asked.claims,
            )
        except UnknownUserError as error:
            raise _unknown(asked.user) from error
        document = {
            "access_token": issued.token,
            "sub": issued.subject,
            "expires_at": issued.expires_at,
        }
        return json_response(document)

    async def users(self, request: web.Request) -> web.Response:
        """All users with their subjects."""
        self._admit(request)
        users = self._issuer.directory.users()
        return json_response([{**msgspec.to_builtins(user), "sub": user.id} for user in users])

    async def replace_users(self, request: web.Request) -> web.Response:
        """Replace everybody; an empty list empties the issuer."""
        self._admit(request)
        users = await json_body(request, tuple[User, ...])
        self._issuer.directory.clear()
        for user in users:
            self._issuer.directory.put(user)
        return web.Response(status=204)

    async def put_user(self, request: web.Request) -> web.Response:
        """Add a user, or replace one."""
        self._admit(request)
        user = await json_body(request, User)
        if user.username != request.match_info["username"]:
            raise _unknown(user.username)
        self._issuer.directory.put(user)
        return json_response({"sub": user.id})

    async def change_user(self, request: web.Request) -> web.Response:
        """Replace some fields of a user."""
        self._admit(request)
        change = await json_body(request, UserChange)
        fields = {
            name: value
            for name in change.__struct_fields__
            if (value := getattr(change, name)) is not msgspec.UNSET
        }
        try:
            user = self._issuer.directory.change(request.match_info["username"], **fields)
        except UnknownUserError as error:
            raise _unknown(request.match_info["username"]) from error
        return json_response({"sub": user.id})

    async def delete_user(self, request: web.Request) -> web.Response:
        """Remove a user."""
        self._admit(request)
        try:
            self._issuer.directory.delete(request.match_info["username"])
        except UnknownUserError as error:
            raise _unknown(request.match_info["username"]) from error
        return web.Response(status=204)

    async def rotate(self, request: web.Request) -> web.Response:
        """Sign with a new key from now on; the old ones stay published."""
        self._admit(request)
        return json_response({"kid": self._issuer.tokens.keys.rotate()})

    async def retire(self, request: web.Request) -> web.Response:
        """Stop publishing a key."""
        self._admit(request)
        self._issuer.tokens.keys.retire(request.match_info["kid"])
        return web.Response(status=204)

    async def fault(self, request: web.Request) -> web.Response:
        """Plan a fault."""
        self._admit(request)
        asked = await json_body(request, FaultRequest)
        self._issuer.faults.append(
            Fault(asked.path, asked.status, asked.after, asked.times, asked.delay)
        )
        return web.Response(status=204)

    async def no_faults(self, request: web.Request) -> web.Response:
        """Forget the planned faults."""
        self._admit(request)
        self._issuer.faults.clear()
        return web.Response(status=204)


def _unknown(username: str) -> Problem:
    return NotFound(f"There is no user {username!r} here.")
