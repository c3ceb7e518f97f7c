"""Puts the HTTP service together: the one place where its parts are made and meet."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path

import aiohttp
from aiohttp import web
from sqlalchemy.ext.asyncio import AsyncEngine

from headgate import service
from headgate.clock import Clock
from headgate.connections import QuietRunner
from headgate.oidc import TokenVerifier
from headgate.peers import PeerSigner, PeerVerifier
from headgate.problems import Unavailable
from headgate.registry import RegistryClient
from token_translator import (
    api,
    routes_changes,
    routes_holds,
    routes_hosts,
    routes_pam,
)
from token_translator.account_names import AccountNames
from token_translator.account_requests import AccountRequests
from token_translator.administrators import Administrators
from token_translator.callers import Callers
from token_translator.changes import Feed
from token_translator.connections import BOUNDS, BoundedRunner, Bounds
from token_translator.continuity import LOOK_SECONDS, Continuity
from token_translator.database import answering, open_async_database, require_current, require_place
from token_translator.delegations import Delegations
from token_translator.enrolments import Enrolments
from token_translator.hold_store import DatabaseHolds
from token_translator.issuing import Issuing, Policy
from token_translator.note_store import DatabaseNotes
from token_translator.one_time_passwords import OneTimePasswords
from token_translator.pam import PamLogins
from token_translator.pam_settings import REQUESTS_KEPT
from token_translator.revocation_store import DatabaseOrders
from token_translator.revocations import RETRY_SECONDS, RevocationLists, Revocations
from token_translator.settings import Settings
from token_translator.signer_client import SignerClient
from token_translator.standing import Standing
from token_translator.stops import Stops
from token_translator.store import DatabaseSeals
from token_translator.suspending import Suspending, Tell, nobody
from token_translator.used_credentials import TokensOnce, UsedCredentials

STOPPED_SECONDS = 0.5
"""A service that is stopped hears nothing more after that."""


@dataclass(frozen=True, slots=True)
class Outside:
    """Who calls, and what is asked over the network."""

    callers: Callers
    registry: RegistryClient
    used: UsedCredentials


@contextlib.asynccontextmanager
async def outside_world(
    settings: Settings, clock: Clock, engine: AsyncEngine
) -> AsyncIterator[Outside]:
    """Callers and registry, with one HTTP session that is closed at the end."""
    used = UsedCredentials(engine)
    peers = PeerVerifier(peers=settings.peers, audience=settings.url, clock=clock)
    signer = PeerSigner.from_file(
        instance=settings.identity.instance, path=Path(settings.identity.key_file), clock=clock
    )
    try:
        async with aiohttp.ClientSession() as session:
            yield Outside(
                used=used,
                callers=Callers(
                    tokens=TokenVerifier(
                        issuers=settings.issuers,
                        audience=settings.audience,
                        session=session,
                        clock=clock,
                        details=settings.rule_book.details
                        | Administrators(settings.administrators, clock).details,
                    ),
                    peers=peers,
                    services=Stops(engine),
                    used=used,
                    clock=clock,
                    issuers=settings.issuers,
                    audience=settings.audience,
                ),
                registry=RegistryClient(
                    url=settings.registry.url,
                    timeout=settings.registry.timeout,
                    session=session,
                    headers=signer.headers,
                    clock=clock,
                ),
            )
    finally:
        await used.close()


@contextlib.asynccontextmanager
async def assembled(
    settings: Settings, clock: Clock, *, at_work: bool = True
) -> AsyncIterator[web.Application]:
    """The application with everything it works with, closed at the end.

    `at_work` False: only put together, nothing is looked at or caught up with.

    Raises:
        SettingsError: a file or the database is not as the settings say.
    """
    engine = await open_database(settings)
    seals = DatabaseSeals(engine)
    signer = SignerClient(path=settings.signer.socket, timeout=settings.signer.timeout)
    continuity = continuity_of(settings, engine, signer, clock)
    feed = Feed(source=DatabaseHolds(engine), clock=clock, whole=continuity)
    lists = RevocationLists(signer=signer, clock=clock)
    revocations = revocations_of(engine, signer, lists, clock)
    try:
        async with outside_world(settings, clock, engine) as outside:
            app = api.create(
                callers=outside.callers,
                issuing=Issuing(
                    policy=policy(settings),
                    accounts=Standing(registry=outside.registry, holds=feed),
                    signer=signer,
                    seals=seals,
                    services=Stops(engine),
                    tokens=TokensOnce(outside.used) if settings.tokens.one_certificate else None,
                    clock=clock,
                ),
                delegations=Delegations(
                    seals=seals,
                    certificates=signer,
                    orders=revocations,
                    clock=clock,
                    max_age=timedelta(seconds=settings.delegation.max_age),
                ),
                authorities=signer,
                clock=clock,
                checks={
                    "signer": signer.ready,
                    "registry": outside.registry.ready,
                    "database": seals.ready,
                    "continuity": continuity.ready,
                },
            )
            runner: type[QuietRunner] = BoundedRunner
            app[service.RUNNER] = runner
            app[BOUNDS] = Bounds(settings.connections)
            _serve_nodes(
                app,
                settings,
                feed,
                continuity,
                engine=engine,
                signer=signer,
                outside=outside,
                clock=clock,
            )
            async with _denying(
                app,
                settings,
                feed,
                continuity,
                engine=engine,
                lists=lists,
                revocations=revocations,
                callers=outside.callers,
                clock=clock,
                at_work=at_work,
            ):
                yield app
    finally:
        await signer.close()
        await seals.close()


@contextlib.asynccontextmanager
async def _denying(
    app: web.Application,
    settings: Settings,
    feed: Feed,
    continuity: Continuity,
    *,
    engine: AsyncEngine,
    lists: RevocationLists,
    revocations: Revocations,
    callers: Callers,
    clock: Clock,
    at_work: bool,
) -> AsyncIterator[None]:
    """Holds, revocations, their list and their feed, at work while the context is open."""
    suspending = suspending_of(settings, engine, revocations, clock, tell=feed.look)
    administrators = Administrators(settings.administrators, clock)
    routes_holds.add(app, callers, administrators, suspending)
    routes_changes.add(app, callers, feed, lists)
    stops, every = Stops(engine), partial(service.every, clock=clock)

    async def send_stopped_away() -> None:
        with contextlib.suppress(Unavailable):  # and then no heartbeat is sent either
            feed.send_away(await stops.instances())

    works = (
        feed.run,
        partial(every, RETRY_SECONDS, revocations.catch_up, name="revocations"),
        partial(every, STOPPED_SECONDS, send_stopped_away, name="stops"),
        partial(every, LOOK_SECONDS, continuity.turn, name="continuity"),
    )
    tasks = [asyncio.create_task(work()) for work in works if at_work]
    try:
        yield
    finally:
        feed.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _serve_nodes(
    app: web.Application,
    settings: Settings,
    feed: Feed,
    continuity: Continuity,
    *,
    engine: AsyncEngine,
    signer: SignerClient,
    outside: Outside,
    clock: Clock,
) -> None:
    hosts = routes_hosts.Hosts(
        settings=settings.hosts,
        key_types=settings.key_types,
        enrolments=Enrolments(engine),
        signer=signer,
        whole=continuity,
        clock=clock,
    )
    routes_hosts.add(app, hosts)
    if settings.pam is not None:
        standing = Standing(registry=outside.registry, holds=feed)
        logins = PamLogins(
            settings=settings.pam,
            rules=settings.rule_book,
            accounts=standing,
            registered=outside.registry,
            passwords=OneTimePasswords(engine),
            requests=account_requests_of(settings, engine),
            ledger=signer,
            clock=clock,
        )
        told = routes_pam.Info([issuer.url for issuer in settings.issuers], settings.audience)
        routes_pam.add(app, outside.callers, logins, told)


def continuity_of(
    settings: Settings, engine: AsyncEngine, signer: SignerClient, clock: Clock
) -> Continuity:
    """What notices that the database went back."""
    return Continuity(
        notes=DatabaseNotes(engine),
        ledger=signer,
        clock=clock,
        instance=settings.identity.instance,
    )


def account_requests_of(settings: Settings, engine: AsyncEngine) -> AccountRequests:
    """Where requests for an account are kept."""
    kept = REQUESTS_KEPT if settings.pam is None else settings.pam.requests_kept
    return AccountRequests(engine, kept=timedelta(seconds=kept))


def revocations_of(
    engine: AsyncEngine, signer: SignerClient, lists: RevocationLists, clock: Clock
) -> Revocations:
    """What revokes; the service's own and the terminal's share the orders in the database."""
    return Revocations(orders=DatabaseOrders(engine), signer=signer, lists=lists, clock=clock)


def suspending_of(
    settings: Settings,
    engine: AsyncEngine,
    revocations: Revocations,
    clock: Clock,
    *,
    tell: Tell = nobody,
) -> Suspending:
    """What suspends; `tell` is called when the feed has something new."""
    return Suspending(
        holds=DatabaseHolds(engine),
        revocations=revocations,
        clock=clock,
        realms=settings.realms,
        issuers=[issuer.url for issuer in settings.issuers],
        tell=tell,
    )


@contextlib.asynccontextmanager
async def account_names(settings: Settings, clock: Clock) -> AsyncIterator[AccountNames]:
    """The registry, as an administrator at the terminal asks it."""
    signer = PeerSigner.from_file(
        instance=settings.identity.instance, path=Path(settings.identity.key_file), clock=clock
    )
    url, seconds = settings.registry.url, settings.registry.timeout
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=seconds)) as session:
        registry = RegistryClient(
            url=url, timeout=seconds, session=session, headers=signer.headers, clock=clock
        )
        yield AccountNames(
            url=url,
            session=session,
            headers=signer.headers,
            registry=registry,
            realms=settings.realms,
        )


async def open_database(settings: Settings) -> AsyncEngine:
    """The service's database.

    Raises:
        SettingsError: its tables are of another version. Unavailable: it is away.
    """
    engine = open_async_database(settings.database)
    try:
        require_place(engine)
        async with answering(), engine.connect() as connection:
            await connection.run_sync(require_current, "seals", "headgate-tokens migrate")
    except BaseException:
        await engine.dispose()
        raise
    return engine


@contextlib.asynccontextmanager
async def database(settings: Settings) -> AsyncIterator[AsyncEngine]:
    """The same while the context is open."""
    engine = await open_database(settings)
    try:
        yield engine
    finally:
        await engine.dispose()


def policy(settings: Settings) -> Policy:
    """The site's policy, as the settings have it."""
    delegation = settings.delegation
    return Policy(
        rules=settings.rule_book,
        realms=settings.realms,
        key_types=settings.key_types,
        session_program=settings.session_program,
        per_minute=settings.per_minute,
        seal_max_age=timedelta(seconds=delegation.max_age),
        sealed_lifetime=timedelta(seconds=delegation.lifetime),
        sealed_per_minute=delegation.per_minute,
        sealed_per_minute_of_service=delegation.per_minute_of_service,
        sealed_source_addresses=delegation.source_addresses or (),
    )
