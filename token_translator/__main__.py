"""`headgate-tokens`: serve, check-config, migrate, explain; puts the HTTP service together."""

import argparse
import asyncio
import contextlib
import os
import pwd
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import aiohttp
from aiohttp import web
from sqlalchemy import make_url
from sqlalchemy.ext.asyncio import AsyncEngine

from headgate import logs, privileges, service
from headgate.clock import Clock, SystemClock
from headgate.oidc import TokenVerifier
from headgate.peers import PeerSigner, PeerVerifier
from headgate.registry import RegistryClient
from headgate.settings import EX_CONFIG, SettingsError, load, show
from token_translator import (
    api,
    command_line,
    explain,
    holds_command,
    hosts_command,
    routes_changes,
    routes_holds,
    routes_hosts,
    routes_pam,
    services_command,
)
from token_translator.account_requests import AccountRequests
from token_translator.administrators import Administrators
from token_translator.callers import Callers, Services
from token_translator.changes import Feed
from token_translator.database import open_async_database, require_current, upgrade
from token_translator.delegations import Delegations
from token_translator.enrolments import Enrolments
from token_translator.grants import Profile
from token_translator.hold_store import DatabaseHolds
from token_translator.issuing import Issuing, Policy
from token_translator.nodes import command as node_setup
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


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb; the exit status is 78 where the settings are wrong."""
    options = command_line.parser(__doc__ or "").parse_args(argv)
    if options.verb == "node-setup":
        return node_setup.run(options)  # a node has no settings of this service
    os.umask(0o077)  # seals say who is here
    try:
        settings = load(options.config, Settings)
        logs.configure(settings.log_level)
        if options.verb == "check-config":
            print(show(settings))  # noqa: T201 - the answer
            return 0
        return asyncio.run(_VERBS[options.verb](settings, options)) or 0
    except SettingsError as error:
        print(f"headgate-tokens: {error}", file=sys.stderr)  # noqa: T201 - the terminal's answer
        return EX_CONFIG


@dataclass(frozen=True, slots=True)
class _Outside:
    """Who calls, and what is asked over the network."""

    callers: Callers
    registry: RegistryClient


@contextlib.asynccontextmanager
async def _outside(settings: Settings, clock: Clock, services: Services) -> AsyncIterator[_Outside]:
    signer = PeerSigner.from_file(
        instance=settings.identity.instance, path=Path(settings.identity.key_file), clock=clock
    )
    async with aiohttp.ClientSession() as session:
        yield _Outside(
            callers=Callers(
                tokens=TokenVerifier(
                    issuers=settings.issuers,
                    audience=settings.audience,
                    session=session,
                    clock=clock,
                    details=settings.rule_book.details
                    | Administrators(settings.administrators, clock).details,
                ),
                peers=PeerVerifier(peers=settings.peers, audience=settings.url, clock=clock),
                services=services,
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


@contextlib.asynccontextmanager
async def assembled(settings: Settings, clock: Clock) -> AsyncIterator[web.Application]:
    """The application with everything it works with, closed at the end.

    Raises:
        SettingsError: a file or the database is not as the settings say.
    """
    engine = await _open_database(settings)
    seals = DatabaseSeals(engine)
    feed = Feed(source=DatabaseHolds(engine), clock=clock)
    signer = SignerClient(path=settings.signer.socket, timeout=settings.signer.timeout)
    try:
        async with _outside(settings, clock, Stops(engine)) as outside:
            app = api.create(
                callers=outside.callers,
                issuing=Issuing(
                    policy=policy(settings),
                    accounts=Standing(registry=outside.registry, holds=feed),
                    signer=signer,
                    seals=seals,
                    clock=clock,
                ),
                delegations=Delegations(
                    seals=seals,
                    certificates=signer,
                    clock=clock,
                    max_age=timedelta(seconds=settings.delegation.max_age),
                ),
                authorities=signer,
                clock=clock,
                checks={
                    "signer": signer.ready,
                    "registry": outside.registry.ready,
                    "database": seals.ready,
                },
            )
            _serve_nodes(app, settings, engine=engine, signer=signer, outside=outside, clock=clock)
            async with _denying(
                app,
                settings,
                feed,
                engine=engine,
                signer=signer,
                callers=outside.callers,
                clock=clock,
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
    *,
    engine: AsyncEngine,
    signer: SignerClient,
    callers: Callers,
    clock: Clock,
) -> AsyncIterator[None]:
    """Holds, revocations, their list and their feed, at work while the context is open."""
    lists = RevocationLists(signer=signer, clock=clock)
    revocations = _revocations(engine, signer, lists, clock)
    suspending = _suspending(settings, engine, revocations, clock, tell=feed.look)
    administrators = Administrators(settings.administrators, clock)
    routes_holds.add(app, callers, administrators, suspending)
    routes_changes.add(app, callers, feed, lists)
    works = (
        feed.run(),
        service.every(RETRY_SECONDS, revocations.catch_up, clock=clock, name="revocations"),
    )
    tasks = [asyncio.create_task(work) for work in works]
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
    *,
    engine: AsyncEngine,
    signer: SignerClient,
    outside: _Outside,
    clock: Clock,
) -> None:
    hosts = routes_hosts.Hosts(
        settings=settings.hosts,
        key_types=settings.key_types,
        enrolments=Enrolments(engine),
        signer=signer,
        clock=clock,
    )
    routes_hosts.add(app, hosts)
    if settings.pam is not None:
        standing = Standing(registry=outside.registry, holds=DatabaseHolds(engine))
        logins = PamLogins(
            settings=settings.pam,
            rules=settings.rule_book,
            accounts=standing,
            registered=outside.registry,
            passwords=OneTimePasswords(engine),
            requests=_account_requests(settings, engine),
            clock=clock,
        )
        told = routes_pam.Info([issuer.url for issuer in settings.issuers], settings.audience)
        routes_pam.add(app, outside.callers, logins, told)


def _revocations(
    engine: AsyncEngine, signer: SignerClient, lists: RevocationLists, clock: Clock
) -> Revocations:
    return Revocations(orders=DatabaseOrders(engine), signer=signer, lists=lists, clock=clock)


def _suspending(
    settings: Settings,
    engine: AsyncEngine,
    revocations: Revocations,
    clock: Clock,
    *,
    tell: Tell = nobody,
) -> Suspending:
    return Suspending(
        holds=DatabaseHolds(engine),
        revocations=revocations,
        clock=clock,
        realms=settings.realms,
        issuers=[issuer.url for issuer in settings.issuers],
        tell=tell,
    )


async def _serve(settings: Settings) -> None:
    async with assembled(settings, SystemClock()) as app:
        await service.serve(app, settings.listen)


async def _open_database(settings: Settings) -> AsyncEngine:
    engine = open_async_database(settings.database)
    async with engine.connect() as connection:
        await connection.run_sync(require_current, "seals", "headgate-tokens migrate")
    return engine


@contextlib.asynccontextmanager
async def _database(settings: Settings) -> AsyncIterator[AsyncEngine]:
    engine = await _open_database(settings)
    try:
        yield engine
    finally:
        await engine.dispose()


async def _migrate(settings: Settings) -> None:
    engine = open_async_database(settings.database)
    async with engine.begin() as connection:
        await connection.run_sync(upgrade, "seals")
    await engine.dispose()


def _question(options: argparse.Namespace) -> explain.Question:
    key_file: Path | None = options.key_file
    return explain.Question(
        token=_read_text(options.token_file),
        profile=Profile(options.profile),
        realm=options.realm,
        public_key=None if key_file is None else _read_text(key_file),
    )


async def _explain(settings: Settings, question: explain.Question, *, as_json: bool) -> int:
    clock = SystemClock()
    async with _database(settings) as engine, _outside(settings, clock, Stops(engine)) as outside:
        decision = await explain.explain(
            question,
            callers=outside.callers,
            accounts=Standing(registry=outside.registry, holds=DatabaseHolds(engine)),
            policy=policy(settings),
            clock=clock,
        )
    print(explain.render(decision, as_json=as_json))  # noqa: T201 - the answer
    return 0 if decision.granted else 1


def _account_requests(settings: Settings, engine: AsyncEngine) -> AccountRequests:
    kept = REQUESTS_KEPT if settings.pam is None else settings.pam.requests_kept
    return AccountRequests(engine, kept=timedelta(seconds=kept))


async def _host(settings: Settings, options: argparse.Namespace) -> int:
    by = _become_owner(settings)
    async with _database(settings) as engine:
        enrolments, requests = Enrolments(engine), _account_requests(settings, engine)
        return await hosts_command.run(options, enrolments, requests, by=by, clock=SystemClock())


def _become_owner(settings: Settings) -> str:
    by = f"local:{pwd.getpwuid(os.getuid()).pw_name}"
    if settings.database.startswith("sqlite"):
        # Its files stay the service's; and the signer listens to nobody else.
        privileges.become(
            privileges.owner_of(Path(make_url(settings.database).database or "").parent)
        )
    return by


async def _hold(settings: Settings, options: argparse.Namespace) -> int:
    root, by = os.getuid() == 0, _become_owner(settings)
    clock = SystemClock()
    signer = SignerClient(path=settings.signer.socket, timeout=settings.signer.timeout)
    lists = RevocationLists(signer=signer, clock=clock)
    try:
        async with _database(settings) as engine:
            revocations = _revocations(engine, signer, lists, clock)
            suspending = _suspending(settings, engine, revocations, clock)
            return await holds_command.run(options, suspending, by=by, root=root)
    finally:
        await signer.close()


async def _service(settings: Settings, options: argparse.Namespace) -> int:
    by = _become_owner(settings)
    known = [peer.instance for peer in settings.peers]
    async with _database(settings) as engine:
        return await services_command.run(
            options, Stops(engine), known=known, by=by, clock=SystemClock()
        )


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path}: {error}") from error


def policy(settings: Settings) -> Policy:
    """The site's policy, as the settings have it."""
    delegation = settings.delegation
    return Policy(
        rules=settings.rule_book,
        realms=settings.realms,
        key_types=settings.key_types,
        session_program=settings.session_program,
        seal_max_age=timedelta(seconds=delegation.max_age),
        sealed_lifetime=timedelta(seconds=delegation.lifetime),
        sealed_per_minute=delegation.per_minute,
        sealed_per_minute_of_service=delegation.per_minute_of_service,
        sealed_source_addresses=delegation.source_addresses or (),
    )


_VERBS: Mapping[
    str, Callable[[Settings, argparse.Namespace], Coroutine[None, None, int | None]]
] = {
    "serve": lambda settings, _: _serve(settings),
    "migrate": lambda settings, _: _migrate(settings),
    "explain": lambda settings, it: _explain(settings, _question(it), as_json=it.json),
    **dict.fromkeys(holds_command.VERBS, _hold),
    **dict.fromkeys(hosts_command.VERBS, _host),
    **dict.fromkeys(services_command.VERBS, _service),
}


if __name__ == "__main__":
    sys.exit(main())
