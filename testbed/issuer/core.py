"""The issuer itself: directory, keys, tokens, codes and planned faults, without HTTP."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web

from headgate.clock import Clock
from testbed.issuer.codes import AuthorizationCodes
from testbed.issuer.device import DeviceCodes
from testbed.issuer.directory import Directory
from testbed.issuer.settings import IssuerSettings
from testbed.issuer.sign_in import Session
from testbed.issuer.tokens import Grant, Issued, Keys, Tokens


@dataclass(slots=True)
class Fault:
    """Something that goes wrong for requests whose path starts with `path`.

    After `after` good requests the next `times` ones are late by `delay` seconds, then `action` is
    called (in-process tests change the directory between two pages with it), then the answer is
    `status`; 0 answers as usual, -1 cuts the connection.
    """

    path: str
    status: int = 500
    after: int = 0
    times: int = 1
    delay: float = 0.0
    action: Callable[[], None] | None = None


@dataclass(slots=True)
class Issuer:
    """One issuer's state; `url` is set once it listens and ends in a slash, as IAM's does."""

    settings: IssuerSettings
    directory: Directory
    tokens: Tokens
    devices: DeviceCodes
    codes: AuthorizationCodes
    clock: Clock
    control_secret: str
    url: str = ""
    refresh: dict[str, Grant] = field(default_factory=dict)
    sessions: dict[str, Session] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)

    def mint(
        self,
        username: str,
        *,
        audience: tuple[str, ...] = (),
        scopes: tuple[str, ...] = ("openid", "profile", "email"),
        client_id: str = "testbed",
        lifetime: int = 0,
        groups: tuple[str, ...] | None = None,
        actor: str = "",
        acr: str = "",
        auth_time: int = 0,
        claims: Mapping[str, Any] | None = None,
    ) -> Issued:
        """An access token of a user without any flow; raises UnknownUserError.

        `lifetime` in seconds, 0: the configured one; a negative one makes an expired token.
        `auth_time` is epoch seconds; `claims` are put over all others.
        """
        grant = Grant(client_id, username, scopes, audience, acr, auth_time)
        return self.tokens.mint(
            grant,
            self.directory.user(username),
            issuer=self.url,
            lifetime=lifetime or self.settings.access_token_seconds,
            groups=groups,
            actor=actor,
            claims=claims,
        )

    async def misbehave(self, request: web.Request) -> web.Response | None:
        """Play the first planned fault that this request meets."""
        for fault in self.faults:
            if not request.path.startswith(fault.path):
                continue
            if fault.after > 0:
                fault.after -= 1
                continue
            fault.times -= 1
            if fault.times <= 0:
                self.faults.remove(fault)
            return await _play(fault, request)
        return None


async def _play(fault: Fault, request: web.Request) -> web.Response | None:
    if fault.delay:
        await asyncio.sleep(fault.delay)
    if fault.action:
        fault.action()
    if fault.status < 0 and request.transport:
        request.transport.abort()
    return web.Response(status=fault.status, text="planned fault\n") if fault.status > 0 else None


def create_issuer(
    settings: IssuerSettings, *, clock: Clock, control_secret: str, state: Path | None = None
) -> Issuer:
    """An issuer with the configured people and clients; `state` keeps its keys over restarts."""
    keys = Keys(state / "keys.json" if state else None)
    return Issuer(
        settings=settings,
        directory=Directory(users=settings.users, clients=settings.clients, clock=clock),
        tokens=Tokens(
            keys=keys,
            clock=clock,
            profile=settings.profile,
            authn=settings.include_authn_info,
            scope=settings.include_scope,
        ),
        devices=DeviceCodes(
            clock=clock,
            lifetime=settings.device_code_seconds,
            interval=settings.device_interval_seconds,
        ),
        codes=AuthorizationCodes(clock=clock, lifetime=settings.code_seconds),
        clock=clock,
        control_secret=control_secret,
    )
