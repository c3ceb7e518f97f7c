"""The gateway's interface in front of a real database, with people who say who they are."""

import contextlib
import dataclasses
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from aiohttp.test_utils import TestClient, TestServer

from gateway.clusters import Cluster, Clusters, Queue
from gateway.sessions.session import SessionUnavailable
from gateway.settings import NoticeSettings
from gateway.submission import Jobs
from gateway.v1.routes import Api
from gateway.v1.site import Site
from headgate.identity import Identity, Principal
from headgate.oidc import IssuerSettings
from headgate.problems import Unauthenticated
from headgate.registry import Account, Standing
from testbed.caller import Caller
from tests.unit.gateway.recovery_world import World

QUEUE = Queue(
    name="main",
    is_default=True,
    state="UP",
    nodes=2,
    max_duration=3600,
    cores_per_node=8,
    memory_per_node=8 * 1024**3,
    gpus_per_node=2,
    gpu_types=("tesla",),
)


class People:
    """Verifies tokens that are names."""

    async def verify(self, token: str) -> Principal:
        """Whose token it is."""
        if token not in {"alice", "bob"}:
            raise Unauthenticated("The token is not valid.")
        return Principal(
            identity=Identity("https://iam/", token),
            audience=frozenset(),
            expires_at=datetime(2027, 1, 1, tzinfo=UTC),
        )


class Accounts:
    """Everybody has the account of their name."""

    async def active_account(self, identity: Identity, realm: str) -> Account:
        """The account."""
        del realm
        return Account(account=identity.sub, uid=1000, gid=1000, state="active", version=1)

    async def standing(self, identity: Identity, realm: str) -> Standing:
        """The same, as `GET /v1/me` shows it."""
        return Standing("active", await self.active_account(identity, realm), {})


@dataclass
class Seals:
    """Seals everything; `gate` is awaited first, if it is set."""

    gate: Any = None
    sealed: list[str] = field(default_factory=list)

    async def seal(self, sealed: Any, realm: str, token: str) -> None:
        """Seal a job."""
        del realm, token
        if self.gate is not None:
            await self.gate.wait()
        self.sealed.append(sealed.row)

    def with_token(self, token: str, realm: str) -> Any:
        """A right."""
        return token, realm


@contextlib.asynccontextmanager
async def nobody_home(*_: object) -> AsyncIterator[None]:
    """No login node answers here."""
    raise SessionUnavailable("no login node")
    yield


class Offers(Clusters):
    """Clusters that are known without being read."""

    async def offers(self, cluster: Cluster) -> tuple[Queue, ...]:
        """One queue."""
        del cluster
        return (QUEUE,)


class Edge:
    """One gateway; `caller` makes requests as somebody."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.seals = Seals()
        self.woken: list[str] = []
        world.pool.offer = lambda *_: None
        world.pool.with_token = nobody_home
        accounts: Any = Accounts()
        people: Any = People()
        seals: Any = self.seals
        clusters = Offers([world.cluster], clock=world.clock)
        self.api = Api(
            jobs=Jobs(
                store=world.store,
                clusters=clusters,
                registry=accounts,
                translator=seals,
                pool=world.pool,
                clock=world.clock,
                wake=lambda job: self.woken.append(job.id),
            ),
            clusters=clusters,
            registry=accounts,
            verifier=people,
            site=Site(
                url="https://hpc.example.org",
                issuers=(IssuerSettings(url="https://iam/", required_scopes=("compute.create",)),),
                notices=(
                    NoticeSettings(text="New GPUs."),
                    NoticeSettings(text="Over.", until=datetime(2025, 1, 1, tzinfo=UTC)),
                ),
            ),
            clock=world.clock,
        )

    def with_files(self) -> Api:
        """The same with the routes to files, which nobody reaches here."""
        nowhere: Any = None
        return dataclasses.replace(self.api, files=nowhere or object())

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[dict[str, Caller]]:
        """Callers of everybody, and of nobody as ``."""
        async with TestClient(TestServer(self.api.application({}))) as client:
            url = str(client.make_url("")).rstrip("/")
            yield {name: Caller(client.session, url, name) for name in ("alice", "bob", "")}
