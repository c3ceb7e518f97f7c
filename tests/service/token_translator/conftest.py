"""A token translator in process, with a real issuer, registry and signer process around it."""

import contextlib
import itertools
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientResponse, web
from aiohttp.test_utils import TestClient, TestServer, unused_port
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from joserfc import jwk, jwt

from headgate.clock import SystemClock
from headgate.peers import PeerSettings, PeerSigner, PeerVerifier
from headgate.settings import load
from tests.service.token_translator.authority_keys import PIN, Agent, Token
from tests.service.token_translator.service_files import (
    AUDIENCE,
    command,
    start_counting,
    write_peer,
    write_signer,
    write_tokens,
)
from token_translator.assembly import assembled
from token_translator.settings import Settings

GATEWAY_AUDIENCE = "https://gateway.site.example/"
DOOR_AUDIENCE = "https://door.site.example/"


@dataclass(slots=True)
class Issuer:
    """An issuer that publishes one RSA key and counts what it is asked."""

    url: str
    key: jwk.RSAKey
    asked: list[str] = field(default_factory=list)

    def token(self, sub: str = "alice", **claims: Any) -> str:
        """An access token, for the translator unless `aud` says otherwise."""
        now = int(time.time())
        document = {
            "iss": self.url,
            "sub": sub,
            "aud": AUDIENCE,
            "exp": now + 3600,
            "iat": now,
            "jti": f"token-of-{sub}",
            "client_id": "laptop",
            **claims,
        }
        header = {"alg": "RS256", "typ": "at+jwt", "kid": "one"}
        known = {name: value for name, value in document.items() if value is not None}
        return jwt.encode(header, known, self.key, algorithms=["RS256"])


@pytest.fixture(scope="session")
async def issuer() -> AsyncIterator[Issuer]:
    """A running issuer."""
    port = unused_port()
    one = Issuer(f"http://127.0.0.1:{port}/", jwk.RSAKey.generate_key(2048, {"kid": "one"}))

    async def discovery(request: web.Request) -> web.Response:
        one.asked.append(request.path)
        return web.json_response({"issuer": one.url, "jwks_uri": f"{one.url}jwk"})

    async def keys(request: web.Request) -> web.Response:
        one.asked.append(request.path)
        return web.json_response({"keys": [one.key.as_dict(private=False)]})

    app = web.Application()
    app.router.add_get("/.well-known/openid-configuration", discovery)
    app.router.add_get("/jwk", keys)
    server = TestServer(app, port=port)
    await server.start_server()
    yield one
    await server.close()


@dataclass(slots=True)
class Registry:
    """A registry that answers what `entries` says of a subject, to callers it knows."""

    url: str
    entries: dict[str, tuple[int, dict[str, Any]]] = field(default_factory=dict)
    asked: int = 0
    issuer: str = ""

    def has(self, sub: str, account: str, *, state: str = "active", **more: Any) -> None:
        """Give a subject an account."""
        entry = {"account": account, "uid": 20001, "gid": 20001, "version": 1, **more}
        self.entries[sub] = (200, {"iss": "", "sub": sub, **entry, "state": state})

    def refuses(self, sub: str, code: str, **members: Any) -> None:
        """Answer 404 for a subject."""
        self.entries[sub] = (404, {"code": code, "detail": "No account.", **members})


@dataclass(slots=True)
class Keys:
    """The peer keys of the services around."""

    tokens: jwk.OKPKey
    gateway: jwk.OKPKey
    stranger: jwk.OKPKey
    frontdoor: jwk.OKPKey


@pytest.fixture(scope="session")
def peer_keys() -> Keys:
    """Fresh Ed25519 keys for the translator and the services of `Keys`."""
    return Keys(*(jwk.OKPKey.generate_key("Ed25519") for _ in fields(Keys)))


@pytest.fixture
async def registry(peer_keys: Keys) -> AsyncIterator[Registry]:
    """A running registry in which alice has an account."""
    port = unused_port()
    one = Registry(f"http://127.0.0.1:{port}")
    one.has("alice", "alice")
    verifier = PeerVerifier(
        peers=[peer_settings("tokens", peer_keys.tokens, "registry.read")],
        audience=one.url,
        clock=SystemClock(),
    )

    async def accounts(request: web.Request) -> web.Response:
        verifier.verify(request.headers["Headgate-Peer"]).require("registry.read")
        one.asked += 1
        status, document = one.entries.get(request.query["sub"], (404, {"code": "account_unknown"}))
        return web.json_response(document, status=status)

    async def livez(_: web.Request) -> web.Response:
        return web.Response(text="ok")

    app = web.Application()

    async def by_name(request: web.Request) -> web.Response:
        verifier.verify(request.headers["Headgate-Peer"]).require("registry.read")
        name, realm = request.match_info["account"], request.query["realm"]
        found = [
            {**entry, "iss": one.issuer, "realm": realm}
            for _, entry in one.entries.values()
            if entry.get("account") == name
        ]
        return web.json_response({"accounts": found})

    app.router.add_get("/v1/accounts", accounts)
    app.router.add_get("/v1/accounts/by-name/{account}", by_name)
    app.router.add_get("/livez", livez)
    server = TestServer(app, port=port)
    await server.start_server()
    yield one
    await server.close()


def peer_settings(instance: str, key: jwk.OKPKey, *verbs: str, audience: str = "") -> Any:
    """One entry of a callee's `peers`."""
    public = {name: str(value) for name, value in key.as_dict(private=False).items()}
    return PeerSettings(
        instance=instance, keys=(public,), verbs=frozenset(verbs), audience=audience
    )


@dataclass(slots=True)
class SignerProcess:
    """A signer as its own process; can be killed and started again on the same files."""

    folder: Path
    env: Mapping[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None
    ready: socket.socket | None = None

    @property
    def config(self) -> Path:
        """Its TOML."""
        return self.folder / "signer.toml"

    @property
    def socket(self) -> Path:
        """Where it answers."""
        return self.folder / "signer.sock"

    def start(self) -> None:
        """Start it and wait until it says READY."""
        path = self.folder / "notify.sock"
        path.unlink(missing_ok=True)
        self.ready = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.ready.bind(str(path))
        self.ready.settimeout(30)
        argv = [sys.executable, "-m", "token_translator.signer", "serve", "--config", self.config]
        with (self.folder / "signer.log").open("ab") as log:
            env = {**self.env, "NOTIFY_SOCKET": str(path)}
            self.process = subprocess.Popen(argv, env=env, stderr=log)
        assert self.ready.recv(64) == b"READY=1"

    def kill(self) -> None:
        """End it by SIGKILL."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        self._close()

    def stop(self) -> None:
        """End it by SIGTERM, in peace."""
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            assert self.process.wait(30) == 0
        self._close()

    def _close(self) -> None:
        if self.ready is not None:
            self.ready.close()
            self.ready = None


@pytest.fixture
def make_signer(tmp_path: Path) -> Iterator[Callable[..., SignerProcess]]:
    """Starts signers of a test's own, with given ceilings; all are stopped at the end."""
    with contextlib.ExitStack() as stack:

        def make(
            settings: Mapping[str, str] | None = None,
            env: Mapping[str, str] | None = None,
            name: str = "signer",
            **ceilings: Any,
        ) -> SignerProcess:
            folder = tmp_path / name
            folder.mkdir()
            write_signer(folder, settings, env, **ceilings)
            signer = SignerProcess(folder, env=env or {})
            stack.callback(signer.stop)
            signer.start()
            return signer

        yield make


@pytest.fixture(scope="session")
def signer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SignerProcess]:
    """A running signer with the usual ceilings, shared by the tests that leave it alone."""
    folder = tmp_path_factory.mktemp("signer")
    write_signer(folder, per_minute=100000)
    signer = SignerProcess(folder)
    signer.start()
    yield signer
    signer.stop()


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    """A running agent."""
    one = Agent.start(tmp_path / "agent")
    yield one
    one.kill()


@pytest.fixture
def token(tmp_path: Path) -> Token:
    """An initialised token."""
    one = Token(tmp_path / "token")
    (one.folder / "tokens").mkdir(parents=True)
    (one.folder / "conf").write_text(f"directories.tokendir = {one.folder}/tokens\n")
    (one.folder / "pin").write_text(PIN)
    (one.folder / "pin").chmod(0o600)
    initialise = ("--init-token", "--free", "--label", "headgate", "--so-pin", "1234")
    argv = ("softhsm2-util", *initialise, "--pin", PIN)
    subprocess.run(argv, check=True, capture_output=True, env=one.env)
    return one


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database that `headgate-tokens migrate` made."""
    folder = tmp_path_factory.mktemp("database")
    lines = write_tokens(folder, url="http://127.0.0.1:1", registry="", socket="", issuer="")
    (folder / "tokens.toml").write_text(lines)
    command("token_translator", "migrate", folder / "tokens.toml")
    return folder / "tokens.sqlite"


@pytest.fixture(scope="session")
def counted() -> Iterator[int]:
    """How many databases there were before."""
    return itertools.count(1)


@dataclass(slots=True)
class Site:
    """The translator under test and everything around it."""

    client: TestClient[web.Request, web.Application]
    url: str
    issuer: Issuer
    registry: Registry
    signer: SignerProcess
    keys: Keys

    def peer(self, name: str = "gateway") -> dict[str, str]:
        """The header of one call by a service."""
        signer = PeerSigner(instance=name, key=getattr(self.keys, name), clock=SystemClock())
        return signer.headers(self.url)

    async def post(
        self,
        path: str,
        body: Any,
        *,
        token: str | None = None,
        peer: Mapping[str, str] | None = None,
    ) -> ClientResponse:
        """POST a JSON body with credentials."""
        headers = dict(peer or {})
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        return await self.client.post(path, json=body, headers=headers)


Start = Callable[..., contextlib.AbstractAsyncContextManager[Site]]


@pytest.fixture
def folder(tmp_path: Path, peer_keys: Keys, empty_database: Path, counted: Iterator[int]) -> Path:
    """The translator's files: its peer key and an empty database."""
    key_file = tmp_path / "peer.pem"
    key_file.write_bytes(
        peer_keys.tokens.private_key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    key_file.chmod(0o600)
    shutil.copy(empty_database, tmp_path / "tokens.sqlite")
    # The signer is shared: a database that counts from 0 again would be an old one to it.
    start_counting(tmp_path / "tokens.sqlite", next(counted) * 10_000)
    return tmp_path


@pytest.fixture
def start(
    folder: Path, issuer: Issuer, registry: Registry, signer: SignerProcess, peer_keys: Keys
) -> Start:
    """Starts a translator whose TOML has `more` at its end."""

    @contextlib.asynccontextmanager
    async def start_one(
        more: str = "", own: SignerProcess | None = None, per_minute: int = 0
    ) -> AsyncIterator[Site]:
        port = unused_port()
        url = f"http://127.0.0.1:{port}"
        config = folder / "tokens.toml"
        behind = own or signer
        verbs = '["seals", "certificates.session", "certificates.delegated"]'
        config.write_text(
            write_tokens(
                folder, url=url, registry=registry.url, socket=behind.socket, issuer=issuer.url
            )
            + write_peer("gateway", peer_keys.gateway, verbs, GATEWAY_AUDIENCE)
            + write_peer("stranger", peer_keys.stranger, "[]", "")
            + write_peer("frontdoor", peer_keys.frontdoor, '["certificates.login"]', DOOR_AUDIENCE)
            + more
        )
        if per_minute:
            text = config.read_text()
            config.write_text(text.replace("per_minute = 100000", f"per_minute = {per_minute}"))
        settings = load(config, Settings)
        async with (
            assembled(settings, SystemClock()) as app,
            TestClient(TestServer(app, port=port)) as client,
        ):
            yield Site(client, url, issuer, registry, behind, peer_keys)

    return start_one


@pytest.fixture
async def site(start: Start) -> AsyncIterator[Site]:
    """A running translator with the usual settings."""
    async with start() as one:
        yield one


@pytest.fixture
def key_line() -> str:
    """A fresh Ed25519 public key, as a line."""
    key = Ed25519PrivateKey.generate().public_key()
    line = key.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return f"{line.decode()} somebody@laptop"
