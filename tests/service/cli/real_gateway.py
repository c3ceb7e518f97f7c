"""The gateway's own interface, use cases and store; what lies behind them is played here."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from gateway.clusters import Cluster, Clusters
from gateway.jobs import State
from gateway.migrations import upgrade
from gateway.runner.plain import PlainRuntime
from gateway.settings import ClusterSettings, LoginSettings
from gateway.store import Store
from gateway.submission import Jobs
from gateway.v1.routes import Api
from gateway.v1.site import Site
from headgate.clock import SystemClock
from headgate.oidc import IssuerSettings, TokenVerifier
from headgate.problems import Forbidden
from headgate.registry import Account, Standing
from headgate.service import ListenSettings, listening
from headgate.slurm.model import Gres, Node, NodeState, Partition

OUTPUT = b"hello from the node\n" * 200_000
ACCOUNT = Account("alice", 20001, 20001, "active", 1)


class Registry:
    """Everybody is alice, until the test blocks her."""

    def __init__(self) -> None:
        self.state = "active"

    async def active_account(self, *_: object) -> Account:
        """The account, if it is active."""
        if self.state != "active":
            raise Forbidden("Your account on this site is blocked.", code="account_blocked")
        return ACCOUNT

    async def standing(self, *_: object) -> Standing:
        """How everybody stands."""
        return Standing(self.state, ACCOUNT, {"reason": "Left."} if self.state != "active" else {})


class Translator:
    """Seals everything."""

    async def seal(self, *_: object) -> None:
        """Done."""

    def with_token(self, *_: object) -> None:
        """No certificate is needed: no session is real."""


class Pool:
    """Sessions in which every job has printed the same."""

    def offer(self, *_: object) -> None:
        """No session is opened ahead."""

    @contextlib.asynccontextmanager
    async def with_token(self, *_: object) -> AsyncIterator["Pool"]:
        """A session."""
        yield self

    async def read(
        self, *_: object, offset: int, limit: int, **__: object
    ) -> AsyncGenerator[bytes]:
        """The file in the session's chunks."""
        wanted = OUTPUT[offset : offset + limit]
        for start in range(0, len(wanted), 1 << 18):
            yield wanted[start : start + (1 << 18)]


class Reader:
    """A cluster of one node with four GPUs."""

    async def partitions(self) -> Sequence[Partition]:
        """One queue."""
        queue = Partition("gpu", "UP", True, False, False, "n1", 1, 8, 60, 10, None, 1, None, None)  # noqa: FBT003 - a record, field by field
        return [queue]

    async def nodes(self) -> Sequence[Node]:
        """One node."""
        gpus = (Gres("gpu", "tesla", 4),)
        state = NodeState("IDLE")
        return [
            Node("n1", state, 8, 8, 0, 1, 8, 1, 4096, 0, "x86", "Linux", ("gpu",), (), gpus, ())
        ]


@dataclass
class RealGateway:
    """A listening gateway and what the test may move behind it."""

    url: str
    store: Store
    registry: Registry

    async def end(self, row: str, code: int) -> None:
        """What the tracker does when a job has ended."""
        job = await self.store.job(row)
        now = SystemClock().now()
        state = State.FAILED if code else State.COMPLETED
        facts = {"exit_code": code, "native_id": 7, "started_at": now, "nodes": "n1"}
        await self.store.update(job, job.ended(state, now, None, facts))


@contextlib.asynccontextmanager
async def running(folder: Path, issuer: str, login: str) -> AsyncIterator[RealGateway]:
    """A gateway that trusts one issuer, for the audience `gateway`."""
    database = f"sqlite+aiosqlite:///{folder}/gateway.db"
    await asyncio.to_thread(upgrade, database)  # it runs a loop of its own
    clock, store, registry = SystemClock(), Store(database), Registry()
    settings = ClusterSettings(name="hpc", realm="site")
    clusters = Clusters([Cluster(settings, Reader(), PlainRuntime())], clock=clock)
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(store.close)
        session = await stack.enter_async_context(aiohttp.ClientSession())
        jobs = Jobs(
            store=store,
            clusters=clusters,
            registry=registry,
            translator=Translator(),
            pool=Pool(),
            clock=clock,
            wake=lambda _: None,
        )
        known = LoginSettings(issuer=issuer, client_id=login, audiences=("gateway", "tokens"))
        api = Api(
            jobs=jobs,
            clusters=clusters,
            registry=registry,
            verifier=TokenVerifier(
                issuers=[IssuerSettings(url=issuer)],
                audience="gateway",
                session=session,
                clock=clock,
            ),
            site=Site(url="gateway", login=[known]),
            clock=clock,
        )
        address = await stack.enter_async_context(listening(api.application({}), ListenSettings()))
        yield RealGateway(address, store, registry)
