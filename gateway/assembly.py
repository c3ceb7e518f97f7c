"""Puts the gateway together from its settings: the one place that knows all its parts."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import aiohttp
from aiohttp import web

from gateway.cleaner import Cleaner
from gateway.clusters import Cluster, Clusters
from gateway.files import Files
from gateway.inquiries import Inquiries
from gateway.jobs import Job
from gateway.metrics import Metrics
from gateway.registry import Registry
from gateway.removal_store import Removals
from gateway.runner.plain import PlainRuntime
from gateway.runner.udocker import UdockerRuntime
from gateway.sender import Sender
from gateway.sessions.local import LocalConnector
from gateway.sessions.pool import Connector, SessionPool
from gateway.sessions.ssh import SshConnector
from gateway.settings import ClusterSettings, Settings
from gateway.store import Store
from gateway.submission import Jobs
from gateway.tracker import Tracker
from gateway.translator import Translator
from gateway.v1.health import operations
from gateway.v1.routes import Api
from gateway.v1.site import Site
from headgate.changes import ChangeFeed
from headgate.clock import Clock, SystemClock
from headgate.oidc import TokenVerifier
from headgate.peers import PeerSigner
from headgate.registry import RegistryClient
from headgate.service import every, tls_context
from headgate.settings import SettingsError, command_environment
from headgate.slurm.cli import CommandReader, command_variables
from headgate.slurm.memory.reader import MemoryReader
from headgate.slurm.model import ClusterReader
from headgate.web import Check

SWEEP_SECONDS = 1.0
PEER_CONNECTIONS = 64
REGISTRY_SECONDS = 5.0

Work = Callable[[], Coroutine[None, None, None]]
"""Something that goes on for ever in the background."""


@dataclass(frozen=True, slots=True)
class Gateway:
    """A gateway that is ready to start: what it answers with, and what it does by itself."""

    store: Store
    application: web.Application
    operations: web.Application
    """Metrics, and health in detail, for a listener of the operators' own."""
    works: Sequence[Work]

    @contextlib.asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        """Background work goes on while the context is open."""
        async with contextlib.AsyncExitStack() as stack:
            for work in self.works:
                stack.push_async_callback(_ended, asyncio.create_task(work()))
            yield


@contextlib.asynccontextmanager
async def assembled(settings: Settings) -> AsyncIterator[Gateway]:
    """Everything, wired; nothing is asked, opened or begun yet.

    Raises:
        SettingsError: something that the settings name cannot be used.
    """
    for listen in filter(None, (settings.listen, settings.metrics)):
        tls_context(listen)
    clock = SystemClock()
    signer = signer_of(settings)
    connectors = {cluster.name: connector_of(cluster) for cluster in settings.clusters}
    async with contextlib.AsyncExitStack() as stack:
        store = Store(settings.database)
        stack.push_async_callback(store.close)
        # A service that hangs must not use up the connections to the others.
        connector = aiohttp.TCPConnector(limit=0, limit_per_host=PEER_CONNECTIONS)
        http = await stack.enter_async_context(aiohttp.ClientSession(connector=connector))
        registry = registry_of(settings, http, signer, clock)
        changes = ChangeFeed(
            url=settings.token_translator.url, session=http, headers=signer.headers, clock=clock
        )
        translator = Translator(url=settings.token_translator.url, session=http, signer=signer)
        clusters = Clusters([cluster_of(cluster) for cluster in settings.clusters], clock=clock)
        stack.push_async_callback(clusters.close)
        pool = SessionPool(
            connectors=connectors,
            realms={cluster.name: cluster.realm for cluster in settings.clusters},
            denials=changes,
            clock=clock,
        )
        stack.push_async_callback(pool.close)
        removals = Removals(settings.database)
        stack.push_async_callback(removals.close)
        cleaners = [
            Cleaner(
                cluster=cluster, removals=removals, pool=pool, translator=translator, clock=clock
            )
            for cluster in clusters
            if cluster.settings.files_days is not None
        ]
        senders = {
            cluster.name: Sender(
                cluster=cluster, store=store, pool=pool, translator=translator, clock=clock
            )
            for cluster in clusters
        }
        trackers = {
            cluster.name: Tracker(
                cluster=cluster,
                store=store,
                inquiries=Inquiries(pool, translator),
                clock=clock,
            )
            for cluster in clusters
        }
        for tracker in trackers.values():
            stack.push_async_callback(tracker.close)

        def wake(job: Job) -> None:
            senders[job.cluster].offer(job)

        checks = {
            "database": store.ready,
            "changes": changes.ready,
            **{f"cluster {name}": _fault_of(tracker) for name, tracker in trackers.items()},
        }
        jobs = Jobs(
            store=store,
            clusters=clusters,
            registry=registry,
            translator=translator,
            pool=pool,
            clock=clock,
            wake=wake,
        )
        api = Api(
            jobs=jobs,
            files=Files(
                jobs=jobs,
                registry=registry,
                translator=translator,
                pool=pool,
                max_upload_bytes=settings.max_upload_bytes,
            ),
            clusters=clusters,
            registry=registry,
            verifier=TokenVerifier(
                issuers=settings.issuers, audience=settings.url, session=http, clock=clock
            ),
            site=Site(
                url=settings.url,
                login=settings.login,
                issuers=settings.issuers,
                notices=settings.notices,
                token_translator=settings.published_token_translator(),
                login_nodes=settings.published_login_nodes(),
            ),
            clock=clock,
        )
        metrics = Metrics(
            store=store,
            sessions=pool.opened,
            ages={name: tracker.age for name, tracker in trackers.items()},
            current=changes.current,
        )
        application = api.application(checks)
        application.middlewares.insert(0, metrics.middleware)
        yield Gateway(
            store=store,
            application=application,
            operations=operations(checks, metrics.show),
            works=[
                changes.follow,
                lambda: every(SWEEP_SECONDS, pool.sweep, clock=clock, name="sessions"),
                *(
                    work
                    for cluster in clusters
                    for work in _works(
                        cluster, changes, senders[cluster.name], trackers[cluster.name], clock
                    )
                ),
                *(partial(_clean, cleaner, changes, clock) for cleaner in cleaners),
            ],
        )


def _works(
    cluster: Cluster, changes: ChangeFeed, sender: Sender, tracker: Tracker, clock: Clock
) -> list[Work]:
    """What goes on for one cluster."""
    seconds = cluster.settings.poll_seconds
    return [
        lambda: _once_current(changes, sender),
        lambda: every(SWEEP_SECONDS, sender.sweep, clock=clock, name="send"),
        lambda: every(seconds, tracker.turn, clock=clock, name="track"),
    ]


async def _clean(cleaner: Cleaner, changes: ChangeFeed, clock: Clock) -> None:
    await changes.until_current()
    await every(cleaner.interval, cleaner.sweep, clock=clock, name="clean")


async def _once_current(changes: ChangeFeed, sender: Sender) -> None:
    """Send nothing before it is known who may act: no try can succeed."""
    await changes.until_current()
    await sender.run()


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


def _fault_of(tracker: Tracker) -> Check:
    async def check() -> str:
        return tracker.fault

    return check


def cluster_of(settings: ClusterSettings) -> Cluster:
    """A cluster, how it is read and what runs its jobs."""
    runtime = UdockerRuntime(settings.udocker) if settings.udocker else PlainRuntime()
    return Cluster(settings=settings, reader=reader_of(settings), runtime=runtime)


def reader_of(settings: ClusterSettings) -> ClusterReader:
    """How a cluster is read."""
    if settings.memory is not None:
        return MemoryReader(Path(settings.memory.socket))
    return CommandReader(env=command_variables(command_environment(), settings.slurm_conf))


def connector_of(settings: ClusterSettings) -> Connector:
    """How sessions on a cluster are opened; raises `SettingsError`."""
    if settings.ssh is not None and settings.local is None:
        return SshConnector(settings.ssh, SystemClock())
    if settings.local is not None and settings.ssh is None:
        return LocalConnector(settings.local, SystemClock())
    raise SettingsError(f"cluster {settings.name}: say one of ssh and local")


def signer_of(settings: Settings) -> PeerSigner:
    """The gateway's own name towards other services; raises `SettingsError`."""
    path = Path(settings.peer_key)
    signer = PeerSigner.from_file(instance=settings.instance, path=path, clock=SystemClock())
    try:
        signer.headers("")
    except Exception as error:  # whatever the libraries make of a key that cannot sign
        raise SettingsError(f"{path}: not an Ed25519 private key") from error
    return signer


def registry_of(
    settings: Settings, http: aiohttp.ClientSession, signer: PeerSigner, clock: Clock
) -> Registry:
    """Who has which account here, asked in the gateway's name."""
    client = RegistryClient(
        url=settings.registry.url,
        timeout=REGISTRY_SECONDS,
        session=http,
        headers=signer.headers,
        clock=clock,
    )
    return Registry(client=client, clock=clock)
