"""A front door in process, before a login node of asyncssh's and a translator of a few lines.

The translator here signs with a real authority and keeps a real change feed; that the one of this
package does the same is shown on the real site (tests/integration).
"""

import asyncio
import base64
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncssh
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer, unused_port
from cryptography.hazmat.primitives import serialization
from joserfc import jwk

from headgate.clock import SystemClock
from headgate.oidc import IssuerSettings
from headgate.peers import PeerSettings, PeerVerifier
from token_translator.frontdoor import __main__ as frontdoor
from token_translator.frontdoor.limits import LimitSettings
from token_translator.frontdoor.settings import (
    ListenSettings,
    NodeSettings,
    PeerIdentity,
    Settings,
    TranslatorSettings,
)
from token_translator.frontdoor.targets import Target

AUDIENCE = "ssh://frontdoor.site.example"
REALM = "site1"


@dataclass(slots=True)
class Translator:
    """What the front door asks and hears."""

    url: str
    authority: asyncssh.SSHKey
    accounts: dict[str, str] = field(default_factory=lambda: {"alice": "alice", "bob": "bob"})
    refusal: dict[str, Any] = field(default_factory=dict)
    asked: list[dict[str, Any]] = field(default_factory=list)
    held: dict[str, str] = field(default_factory=dict)
    version: int = 1
    listeners: set["asyncio.Queue[str]"] = field(default_factory=set)
    silent: bool = False

    def deny(self, issuer: str, sub: str, reason: str, realm: str = "") -> None:
        """Hold somebody: said on the feed at once."""
        self.version += 1
        document = {"iss": issuer, "sub": sub, "realm": realm, "reason": reason}
        change = {"version": self.version, "effective": False, **document}
        for queue in self.listeners:
            queue.put_nowait(f"event: change\ndata: {json.dumps(change)}\n\n")


def _subject(request: web.Request) -> str:
    token = request.headers["Authorization"].removeprefix("Bearer ")
    claims = token.split(".")[1]
    return str(json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))["sub"])


@pytest.fixture
async def translator(door_key: jwk.OKPKey) -> AsyncIterator[Translator]:
    """A running translator in which alice and bob have accounts."""
    port = unused_port()
    one = Translator(f"http://127.0.0.1:{port}", asyncssh.generate_private_key("ssh-ed25519"))
    public = {name: str(value) for name, value in door_key.as_dict(private=False).items()}
    verifier = PeerVerifier(
        peers=[
            PeerSettings(
                instance="door",
                keys=(public,),
                verbs=frozenset({"certificates.login", "changes.read"}),
            )
        ],
        audience=one.url,
        clock=SystemClock(),
    )

    async def certificates(request: web.Request) -> web.Response:
        verifier.verify(request.headers["Headgate-Peer"]).require("certificates.login")
        body = await request.json()
        one.asked.append(body)
        if one.refusal:
            return web.json_response(one.refusal, status=one.refusal["status"])
        account = one.accounts[_subject(request)]
        certificate = one.authority.generate_user_certificate(
            asyncssh.import_public_key(body["public_key"]),
            "v1;test",
            serial=7,
            principals=[f"hg:{body['realm']}:{account}"],
            valid_after="-60s",
            valid_before=f"+{body['lifetime']}s",
        )
        until = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + body["lifetime"]))
        answer = {
            "certificate": certificate.export_certificate().decode(),
            "serial": 7,
            "account": account,
            "valid_before": until,
        }
        return web.json_response(answer, status=201)

    async def changes(request: web.Request) -> web.StreamResponse:
        verifier.verify(request.headers["Headgate-Peer"]).require("changes.read")
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        snapshot = {"version": one.version, "held": list(one.held.values())}
        queue: asyncio.Queue[str] = asyncio.Queue()
        one.listeners.add(queue)
        await response.write(f"event: snapshot\ndata: {json.dumps(snapshot)}\n\n".encode())
        try:
            while True:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(3):
                        await response.write((await queue.get()).encode())
                        continue
                if not one.silent:
                    await response.write(b": still here\n\n")
        finally:
            one.listeners.discard(queue)

    app = web.Application()
    app.router.add_post("/v1/certificates", certificates)
    app.router.add_get("/v1/changes", changes)
    server = TestServer(app, port=port)
    await server.start_server(shutdown_timeout=0.1)
    yield one
    await server.close()


@pytest.fixture(scope="session")
def door_key() -> jwk.OKPKey:
    """The front door's own key."""
    return jwk.OKPKey.generate_key("Ed25519")


@dataclass(slots=True)
class Node:
    """A login node: what it was asked, and how many connections it has."""

    port: int
    known_hosts: Path
    logins: list[str] = field(default_factory=list)
    sessions: list[asyncssh.SSHServerProcess[bytes]] = field(default_factory=list)
    connections: set[asyncssh.SSHServerConnection] = field(default_factory=set)


class _NodeServer(asyncssh.SSHServer):
    def __init__(self, node: Node) -> None:
        self._node = node

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._connection = conn
        self._node.connections.add(conn)

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._node.connections.discard(self._connection)

    def begin_auth(self, username: str) -> bool:
        self._node.logins.append(username)
        return True


@pytest.fixture
async def node(translator: Translator, tmp_path: Path) -> AsyncIterator[Node]:
    """A running login node that trusts the translator's authority."""
    key = asyncssh.generate_private_key("ssh-ed25519")
    authority = translator.authority.export_public_key().decode().strip()
    trusted = tmp_path / "trusted"
    lines = [
        f'cert-authority,principals="hg:site1:{name}" {authority}' for name in ("alice", "bob")
    ]
    trusted.write_text("\n".join(lines))
    one = Node(0, tmp_path / "known_hosts")

    async def run(process: asyncssh.SSHServerProcess[bytes]) -> None:
        one.sessions.append(process)
        await run_on_node(process)

    server = await asyncssh.listen(
        "127.0.0.1",
        0,
        server_factory=lambda: _NodeServer(one),
        server_host_keys=[key],
        authorized_client_keys=str(trusted),
        process_factory=run,
        sftp_factory=True,
        encoding=None,
        config=None,
    )
    one.port = server.get_port()
    public = key.export_public_key().decode().strip()
    one.known_hosts.write_text(f"[127.0.0.1]:{one.port} {public}\n")
    yield one
    server.close()
    for connection in tuple(one.connections):
        connection.abort()
    await server.wait_closed()


async def run_on_node(process: asyncssh.SSHServerProcess[bytes]) -> None:
    """The commands that this node knows; `sh` is a real shell's."""
    command = process.command or ""
    word, _, rest = command.partition(" ")
    match word:
        case "environment":
            process.stdout.write(json.dumps(dict(process.env)).encode())
            process.exit(0)
        case "terminal":
            size = process.term_size
            process.stdout.write(f"{process.term_type} {size[0]}x{size[1]}".encode())
            process.exit(0)
        case "resized":
            await _until_resized(process)
        case "signalled":
            await _until_signalled(process)
        case "killed":
            process.exit_with_signal(rest, core_dumped=False, msg="by the test")
        case "wait":
            process.stdout.write(b"here\n")
            await process.wait_closed()
        case "zeros":
            await _zeros(process, int(rest))
        case _:
            await _shell(process, command)


async def _until_resized(process: asyncssh.SSHServerProcess[bytes]) -> None:
    process.stdout.write(b"ready\n")
    try:
        await process.stdin.read()
    except asyncssh.TerminalSizeChanged as change:
        process.stdout.write(f"{change.width}x{change.height}".encode())
    process.exit(0)


async def _until_signalled(process: asyncssh.SSHServerProcess[bytes]) -> None:
    process.stdout.write(b"ready\n")
    try:
        await process.stdin.read()
    except asyncssh.SignalReceived as received:
        process.stdout.write(received.signal.encode())
    process.exit(0)


async def _zeros(process: asyncssh.SSHServerProcess[bytes], size: int) -> None:
    with contextlib.suppress(BrokenPipeError):
        for _ in range(size // 65536):
            process.stdout.write(bytes(65536))
            await process.stdout.drain()
        process.exit(0)


async def _shell(process: asyncssh.SSHServerProcess[bytes], command: str) -> None:
    child = await asyncio.create_subprocess_exec(
        "sh", "-c", command, stdin=-1, stdout=-1, stderr=-1
    )
    feeding = asyncio.create_task(_pass_on(process.stdin, child.stdin))
    try:
        await asyncio.gather(
            _pass_on(child.stdout, process.stdout), _pass_on(child.stderr, process.stderr)
        )
        process.stdout.write_eof()
        process.exit(await child.wait())
    finally:
        feeding.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await feeding


async def _pass_on(source: Any, target: Any) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await source.read(65536):
            target.write(data)
            await target.drain()
        if isinstance(target, asyncio.StreamWriter):
            target.close()


@dataclass(slots=True)
class Door:
    """The front door under test."""

    port: int
    issuer: Any
    host_key: asyncssh.SSHKey
    settings: Settings

    def token(self, sub: str = "alice", **claims: Any) -> str:
        """A token for the front door, unless `aud` says otherwise."""
        return str(self.issuer.token(sub, **{"aud": AUDIENCE, **claims}))

    def connect(self, token: str = "", *, username: str = "site", **options: Any) -> Any:
        """A connection with a token as password."""
        return asyncssh.connect(
            "127.0.0.1",
            self.port,
            username=username,
            **{
                "password": token or self.token(),
                "known_hosts": ([self.host_key.convert_to_public()], [], []),
                "config": None,
                "agent_path": None,
                "x509_trusted_certs": None,
                "x509_trusted_cert_paths": [],
                "client_keys": None,
                "encoding": None,
                **options,
            },
        )


OpenDoor = Callable[..., contextlib.AbstractAsyncContextManager[Door]]


@pytest.fixture
def open_door(
    issuer: Any, translator: Translator, node: Node, door_key: jwk.OKPKey, tmp_path: Path
) -> OpenDoor:
    """Opens front doors with settings of a test's own; they share one state file."""
    host_key = asyncssh.generate_private_key("ssh-ed25519")
    write_private(tmp_path / "host_key", host_key.export_private_key())
    write_private(
        tmp_path / "peer.pem",
        door_key.private_key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
    )

    @contextlib.asynccontextmanager
    async def opened(clock: Any = None, **changes: Any) -> AsyncIterator[Door]:
        usual: dict[str, Any] = {
            "audience": AUDIENCE,
            "realm": REALM,
            "host_key": str(tmp_path / "host_key"),
            "state": str(tmp_path / "state.db"),
            "issuers": (IssuerSettings(url=issuer.url),),
            "identity": PeerIdentity(instance="door", key_file=str(tmp_path / "peer.pem")),
            "token_translator": TranslatorSettings(url=translator.url, timeout=2.0),
            "nodes": (
                NodeSettings(host="127.0.0.1", port=node.port, known_hosts=str(node.known_hosts)),
            ),
            "jump_targets": (
                Target(host="login.site.example", port=node.port, address="127.0.0.1"),
            ),
            "limits": LimitSettings(),
            "listen": ListenSettings(port=0),
        }
        settings = Settings(**{**usual, **changes})
        async with frontdoor.assembled(settings, clock or SystemClock()) as running:
            async with asyncio.timeout(10):
                await running.feed.until_current()
            yield Door(running.port, issuer, host_key, settings)

    return opened


def write_private(path: Path, content: bytes) -> None:
    """A file for its owner's eyes."""
    path.write_bytes(content)
    path.chmod(0o600)


@pytest.fixture
async def door(open_door: OpenDoor) -> AsyncIterator[Door]:
    """A front door with the usual settings."""
    async with open_door() as one:
        yield one
