"""The `headgate-gateway` command and the one place where the gateway is put together."""

import argparse
import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path

import aiohttp

from gateway.clusters import Cluster, Clusters
from gateway.inquiries import Inquiries
from gateway.jobs import Job
from gateway.migrations import upgrade
from gateway.registry import Registry
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
from gateway.v1.routes import Api
from headgate import logs
from headgate.changes import ChangeFeed
from headgate.clock import SystemClock
from headgate.oidc import TokenVerifier
from headgate.peers import PeerSigner
from headgate.registry import RegistryClient
from headgate.service import every, serve
from headgate.settings import EX_CONFIG, SettingsError, command_environment, load, show
from headgate.slurm.cli import CommandReader, command_variables
from headgate.slurm.memory.reader import MemoryReader
from headgate.slurm.model import ClusterReader
from headgate.web import Check

SWEEP_SECONDS = 1.0
PEER_CONNECTIONS = 64
REGISTRY_SECONDS = 5.0


def main() -> None:
    """Run one verb of the command."""
    parser = argparse.ArgumentParser(prog="headgate-gateway", description=__doc__)
    parser.add_argument("--config", type=Path, default=Path("/etc/headgate/gateway.toml"))
    parser.add_argument("verb", choices=["serve", "migrate", "check-config"])
    arguments = parser.parse_args()
    os.umask(0o077)  # the database holds what users gave their jobs
    try:
        settings = load(arguments.config, Settings)
        if arguments.verb == "check-config":
            _signer(settings)
            for cluster in settings.clusters:
                _connector(cluster)
            sys.stdout.write(show(settings) + "\n")
        elif arguments.verb == "migrate":
            upgrade(settings.database)
        else:
            logs.configure(settings.log_level)
            asyncio.run(_serve(settings))
    except SettingsError as error:
        sys.stderr.write(f"headgate-gateway: {error}\n")
        sys.exit(EX_CONFIG)


async def _serve(settings: Settings) -> None:
    async with _composed(settings) as (api, checks):
        await serve(api.application(checks), settings.listen)


@contextlib.asynccontextmanager
async def _composed(settings: Settings) -> AsyncIterator[tuple[Api, dict[str, Check]]]:
    """Everything, wired; background work runs while the context is open."""
    clock = SystemClock()
    signer = _signer(settings)
    async with contextlib.AsyncExitStack() as stack:
        # A service that hangs must not use up the connections to the others.
        connector = aiohttp.TCPConnector(limit=0, limit_per_host=PEER_CONNECTIONS)
        http = await stack.enter_async_context(aiohttp.ClientSession(connector=connector))
        store = Store(settings.database)
        stack.push_async_callback(store.close)
        registry = Registry(
            client=RegistryClient(
                url=settings.registry.url,
                timeout=REGISTRY_SECONDS,
                session=http,
                headers=signer.headers,
                clock=clock,
            ),
            clock=clock,
        )
        changes = ChangeFeed(
            url=settings.token_translator.url, session=http, headers=signer.headers, clock=clock
        )
        translator = Translator(url=settings.token_translator.url, session=http, signer=signer)
        clusters = Clusters([_cluster(cluster) for cluster in settings.clusters], clock=clock)
        stack.push_async_callback(clusters.close)
        connectors = {cluster.name: _connector(cluster) for cluster in settings.clusters}
        pool = SessionPool(
            connectors=connectors,
            realms={cluster.name: cluster.realm for cluster in settings.clusters},
            denials=changes,
            clock=clock,
        )
        stack.push_async_callback(pool.close)
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

        works: list[Coroutine[None, None, None]] = [changes.follow()]
        for cluster in clusters:
            sender, tracker = senders[cluster.name], trackers[cluster.name]
            works += [
                _once_current(changes, sender),
                every(SWEEP_SECONDS, sender.sweep, clock=clock, name="send"),
                every(cluster.settings.poll_seconds, tracker.turn, clock=clock, name="track"),
            ]
        works.append(every(SWEEP_SECONDS, pool.sweep, clock=clock, name="sessions"))
        for work in works:
            stack.push_async_callback(_ended, asyncio.create_task(work))
        yield (
            Api(
                jobs=Jobs(
                    store=store,
                    clusters=clusters,
                    registry=registry,
                    translator=translator,
                    pool=pool,
                    clock=clock,
                    wake=wake,
                ),
                clusters=clusters,
                registry=registry,
                verifier=TokenVerifier(
                    issuers=settings.issuers, audience=settings.url, session=http, clock=clock
                ),
                login=settings.login,
                url=settings.url,
                token_translator=settings.published_token_translator(),
                login_nodes=settings.published_login_nodes(),
            ),
            {
                "database": store.ready,
                "changes": changes.ready,
                **{f"cluster {name}": _fault_of(tracker) for name, tracker in trackers.items()},
            },
        )


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


def _cluster(settings: ClusterSettings) -> Cluster:
    runtime = UdockerRuntime(settings.udocker) if settings.udocker else PlainRuntime()
    return Cluster(settings=settings, reader=_reader(settings), runtime=runtime)


def _reader(settings: ClusterSettings) -> ClusterReader:
    if settings.memory is not None:
        return MemoryReader(Path(settings.memory.socket))
    return CommandReader(env=command_variables(command_environment(), settings.slurm_conf))


def _connector(settings: ClusterSettings) -> Connector:
    if settings.ssh is not None and settings.local is None:
        return SshConnector(settings.ssh)
    if settings.local is not None and settings.ssh is None:
        return LocalConnector(settings.local)
    raise SettingsError(f"cluster {settings.name}: say one of ssh and local")


def _signer(settings: Settings) -> PeerSigner:
    path = Path(settings.peer_key)
    return PeerSigner.from_file(instance=settings.instance, path=path, clock=SystemClock())


if __name__ == "__main__":
    main()
