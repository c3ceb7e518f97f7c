"""A token translator that signs for whoever has a token of one issuer, and asks what it is told."""

import asyncio
import contextlib
import time
from base64 import b64decode
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from aiohttp import web
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    SSHCertificateBuilder,
    SSHCertificateType,
    load_ssh_public_key,
)

from headgate.clock import rfc3339
from headgate.problems import Forbidden, NotFound, Unauthenticated
from headgate.web import bearer_token, create_app
from testbed.issuer.core import Issuer
from testbed.issuer.tokens import Issued
from token_translator.signer.krl import RevocationList


@dataclass
class FakeTranslator:
    """What it wants of a login, what it gives, and what it was asked."""

    issuer: Issuer
    url: str = ""
    acr: str = ""
    lifetime: int = 3600
    other_key: bool = False
    suspended: bool = False
    known_hosts: str | None = None
    delegations: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)
    certificates: list[str] = field(default_factory=list)
    answered: str = ""
    page: int = 1000
    holds: list[dict[str, Any]] = field(default_factory=list)
    revoked: set[int] = field(default_factory=set)
    list_bytes: bytes | None = b""
    lists_asked: int = 0
    lists_sent: int = 0
    gate: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        """Let everybody in, until a test closes the gate."""
        self.gate.set()

    authority: Ed25519PrivateKey = field(default_factory=Ed25519PrivateKey.generate)

    def admit(self, request: web.Request) -> Issued:
        """The token's own record, if it is for us and its login strong enough."""
        token = bearer_token(request)
        issued = self.issuer.tokens.find(token)
        self.tokens.append(token)
        if issued is None or self.url not in issued.grant.audience:
            raise Unauthenticated("The token is not for this service.")
        if self.acr and issued.grant.acr != self.acr:
            challenge = f'Bearer error="insufficient_user_authentication", acr_values="{self.acr}"'
            raise Unauthenticated(
                "A second factor is needed here.",
                code="insufficient_user_authentication",
                headers={"WWW-Authenticate": challenge},
            )
        return issued

    async def certify(self, request: web.Request) -> web.Response:
        """A certificate for the account that is named as the token's person is."""
        account = self.admit(request).grant.user or "alice"
        if self.suspended:
            raise Forbidden("Your account is suspended: misuse.", code="suspended")
        body = await request.json()
        self.keys.append(body["public_key"])
        await self.gate.wait()
        key = load_ssh_public_key(body["public_key"].encode())
        if self.other_key:
            key = Ed25519PrivateKey.generate().public_key()
        now = int(time.time())
        certificate = (
            SSHCertificateBuilder()
            .public_key(key)
            .serial(len(self.keys))
            .type(SSHCertificateType.USER)
            .key_id(b"id")
            .valid_principals([f"hg:hpc:{account}".encode()])
            .valid_after(now - 60)
            .valid_before(now + self.lifetime)
            .sign(self.authority)
        )
        self.certificates.append(certificate.public_bytes().decode())
        return web.json_response(
            {
                "certificate": certificate.public_bytes().decode(),
                "serial": len(self.keys),
                "key_id": "id",
                "principals": [f"hg:hpc:{account}"],
                "account": account,
                "realm": body.get("realm", "hpc"),
                "valid_after": _time(now - 60),
                "valid_before": self.answered or _time(now + self.lifetime),
            },
            status=201,
        )

    async def hosts(self, _: web.Request) -> web.Response:
        """The host keys, if there are any."""
        if self.known_hosts is None:
            raise NotFound("There are none.")
        return web.Response(text=self.known_hosts)

    async def revocation_list(self, request: web.Request) -> web.Response:
        """What is revoked, as sshd reads it; `list_bytes` None: there is none, or these bytes."""
        self.lists_asked += 1
        if self.list_bytes is None:
            raise NotFound("There is none.")
        etag = f"{sorted(self.revoked)}"
        if any(tag.value == etag for tag in request.if_none_match or ()):
            return web.Response(status=304, headers={"ETag": f'"{etag}"'})
        self.lists_sent += 1
        authority = b64decode(self.host_line("x").split()[3])
        ranges = tuple((serial, serial) for serial in sorted(self.revoked))
        made = RevocationList(
            len(ranges), datetime.fromtimestamp(0, UTC), certifying=(authority,), serials=ranges
        )
        return web.Response(body=self.list_bytes or made.encode(), headers={"ETag": f'"{etag}"'})

    async def list_delegations(self, request: web.Request) -> web.Response:
        """As it was told."""
        self.admit(request)
        at = int(request.query.get("cursor", "0"))
        page: dict[str, Any] = {"delegations": self.delegations[at : at + self.page]}
        if at + self.page < len(self.delegations):
            page["next"] = str(at + self.page)
        return web.json_response(page)

    async def own_holds(self, request: web.Request) -> web.Response:
        """As it was told."""
        self.admit(request)
        return web.json_response({"holds": self.holds})

    async def end_delegation(self, request: web.Request) -> web.Response:
        """End one."""
        self.admit(request)
        for delegation in self.delegations:
            if delegation["row"] == request.match_info["row"]:
                delegation["state"] = "ended"
                return web.Response(status=204)
        raise NotFound("There is no such delegation of yours.", code="seal_unknown")

    def host_line(self, host: str) -> str:
        """A line of known_hosts that makes our authority the hosts' own."""
        key = self.authority.public_key().public_bytes(
            serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
        )
        return f"@cert-authority {host} {key.decode()}\n"


def _time(epoch: int) -> str:
    return rfc3339(datetime.fromtimestamp(epoch, UTC))


@contextlib.asynccontextmanager
async def running(issuer: Issuer) -> AsyncIterator[FakeTranslator]:
    """A listening one on a free loopback port."""
    translator = FakeTranslator(issuer)
    app = create_app()
    app.router.add_post("/v1/certificates", translator.certify)
    app.router.add_get("/v1/known_hosts", translator.hosts)
    app.router.add_get("/v1/krl", translator.revocation_list)
    app.router.add_get("/v1/holds/mine", translator.own_holds)
    app.router.add_get("/v1/delegations", translator.list_delegations)
    app.router.add_delete("/v1/delegations/{row}", translator.end_delegation)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        translator.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield translator
    finally:
        await runner.cleanup()
