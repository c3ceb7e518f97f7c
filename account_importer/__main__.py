"""`headgate-accounts`: reads the source, plans, gets approval, applies, and serves the registry."""

import argparse
import asyncio
import contextlib
import getpass
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from functools import partial
from pathlib import Path

import aiohttp
import msgspec
import structlog
from aiohttp import web

from account_importer import screen
from account_importer.api import Registry, create_app
from account_importer.denying import Denying, TranslatorClient
from account_importer.directory import SourceError, Target, TargetError
from account_importer.executor import (
    Executor,
    ExecutorTarget,
    ObservingTarget,
    RegistryTarget,
    serve_executor,
)
from account_importer.importer import BrakedError, Importer, NoSuchPlanError
from account_importer.migrations import migrate, require_current
from account_importer.policy import Policy, load_policy
from account_importer.privileges import BusyError, become, database_owner, lock, split
from account_importer.scim import ScimSource
from account_importer.screen import say
from account_importer.settings import Settings, check
from account_importer.store import PlanState, Store, StoreError
from account_importer.unix import UnixTools
from headgate import logs
from headgate.clock import Clock, SystemClock
from headgate.peers import PeerSigner, PeerVerifier
from headgate.service import every, serve
from headgate.settings import EX_CONFIG, SettingsError, load, read_secret, show

log = structlog.get_logger(__name__)

EX_TEMPFAIL = 75
EX_BRAKED = 3

Work = Callable[[argparse.Namespace, Settings, Importer, Store], Awaitable[int]]


def main() -> int:
    """Run the command line.

    Exit status: 0 done, 1 refused or failed in part, 3 the brake, 75 try again later (source away,
    another apply), 78 the settings.
    """
    arguments = _parser().parse_args()
    try:
        settings = load(arguments.config, Settings)
        check(settings)
        logs.configure(settings.log_level)
        return _run(arguments, settings)
    except (SettingsError, NoSuchPlanError, BrakedError, SourceError, TargetError) as error:
        say(f"headgate-accounts: {error}", sys.stderr)
        return _STATUS.get(type(error), 1)
    except (BusyError, StoreError) as error:
        say(f"headgate-accounts: {error}", sys.stderr)
        return EX_TEMPFAIL


_STATUS = {SettingsError: EX_CONFIG, BrakedError: EX_BRAKED, SourceError: EX_TEMPFAIL}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="headgate-accounts", description=__doc__)
    usual = Path("/etc/headgate/accounts.toml")
    parser.add_argument("--config", type=Path, default=usual, metavar="FILE")
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("serve", help="answer other services; read the source every pull_seconds")
    pull = verbs.add_parser("pull", help="read the source; block at once who may not act any more")
    pull.add_argument("--allow-denials", type=int, metavar="N", help="let the brake pass so many")
    plan = verbs.add_parser("plan", help="make a plan of the changes, and print it")
    plan.add_argument("--json", action="store_true")
    approve = verbs.add_parser("approve", help="approve a plan by its hash")
    approve.add_argument("hash")
    approve.add_argument("--by", default=getpass.getuser(), metavar="NAME")
    apply = verbs.add_parser("apply", help="carry out what is approved; the one verb for root")
    apply.add_argument("--json", action="store_true")
    shown = verbs.add_parser("show", help="print the registry")
    shown.add_argument("--json", action="store_true")
    verbs.add_parser("check-config", help="print what was understood of the settings")
    verbs.add_parser("migrate", help="bring the database up to date")
    for verb in verbs.choices.values():
        # Behind the verb, too; without a default, which would undo what stands before it.
        verb.add_argument("--config", type=Path, default=argparse.SUPPRESS, metavar="FILE")
    return parser


def _run(arguments: argparse.Namespace, settings: Settings) -> int:
    if arguments.verb == "check-config":
        return _check_config(settings)
    owner = database_owner(settings)
    if arguments.verb == "apply" and settings.mode == "unix":
        return _apply_as_root(arguments, settings)
    become(owner)
    if arguments.verb == "migrate":
        return asyncio.run(_migrate(settings))
    if arguments.verb == "serve":
        return asyncio.run(_serve(settings))
    target = RegistryTarget() if settings.mode == "mapping" else ObservingTarget()
    return asyncio.run(_with_importer(_VERBS[arguments.verb], arguments, settings, target))


def _check_config(settings: Settings) -> int:
    say(show(settings))
    read_secret(Path(settings.source.client_secret_file))
    if settings.mode == "unix" and os.geteuid() == 0:
        say(show(load_policy(Path(settings.policy))))
    return 0


def _apply_as_root(arguments: argparse.Namespace, settings: Settings) -> int:
    if os.geteuid() != 0:
        raise SettingsError('apply makes accounts: it needs root (mode = "mapping" does not)')
    owner = database_owner(settings)
    if owner.pw_uid == 0:
        raise SettingsError(
            "database: its folder must belong to a user without rights, not to root"
        )
    policy = load_policy(Path(settings.policy))
    lock(Path(settings.policy).resolve())

    def work(connection: socket.socket) -> int:
        async def apply() -> int:
            target = await ExecutorTarget.connect(connection)
            try:
                return await _with_importer(_apply, arguments, settings, target)
            finally:
                await target.close()

        try:
            return asyncio.run(apply())
        except (SettingsError, BrakedError, SourceError, TargetError, StoreError) as error:
            say(f"headgate-accounts: {error}", sys.stderr)
            return _STATUS.get(type(error), 1)

    def execute(connection: socket.socket) -> None:
        # A change that has begun is finished: the other part, told to stop, ends our input.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        asyncio.run(serve_executor(connection, _executor(policy)))

    return split(work, execute, owner)


def _executor(policy: Policy) -> Executor:
    tools = UnixTools(home_mode=policy.home_mode, skeleton=Path(policy.skeleton))
    return Executor(policy=policy, tools=tools)


@contextlib.asynccontextmanager
async def _opened(settings: Settings) -> AsyncIterator[Store]:
    store = Store(settings.database)
    try:
        yield store
    finally:
        await store.close()


async def _migrate(settings: Settings) -> int:
    async with _opened(settings) as store:
        await migrate(store)
    return 0


async def _with_importer(
    work: Work, arguments: argparse.Namespace, settings: Settings, target: Target
) -> int:
    async with _opened(settings) as store, aiohttp.ClientSession() as session:
        await require_current(store)
        importer = _importer(settings, store, session, target, SystemClock())
        return await work(arguments, settings, importer, store)


def _importer(
    settings: Settings,
    store: Store,
    session: aiohttp.ClientSession,
    target: Target,
    clock: Clock,
) -> Importer:
    secret = read_secret(Path(settings.source.client_secret_file))
    source = ScimSource(settings=settings.source, secret=secret, session=session)
    return Importer(settings=settings, store=store, source=source, target=target, clock=clock)


async def _serve(settings: Settings) -> int:
    clock = SystemClock()
    async with _opened(settings) as store, aiohttp.ClientSession() as session:
        await require_current(store)
        registry = Registry(
            store=store,
            peers=PeerVerifier(peers=settings.peers, audience=settings.audience, clock=clock),
            clock=clock,
            realm=settings.realm,
            how_to_ask=settings.how_to_ask,
        )
        app = create_app(registry)
        denying = _denying(settings, store, session, clock)
        if denying is not None and settings.translator is not None:
            turn = partial(every, settings.translator.seconds, denying.turn)
            app.cleanup_ctx.append(_at_work(partial(turn, clock=clock, name="deny")))
        if settings.source.pull_seconds:
            target = RegistryTarget() if settings.mode == "mapping" else ObservingTarget()
            importer = _importer(settings, store, session, target, clock)
            app.cleanup_ctx.append(_at_work(partial(_pulling, importer, denying, settings, clock)))
        await serve(app, settings.listen)
    return 0


def _denying(
    settings: Settings, store: Store, session: aiohttp.ClientSession, clock: Clock
) -> Denying | None:
    """Who tells the translator of blocks, where the settings name one."""
    told = settings.translator
    if told is None:
        return None
    signer = PeerSigner.from_file(instance=told.instance, path=Path(told.key_file), clock=clock)
    translator = TranslatorClient(url=told.url, session=session, headers=signer.headers)
    return Denying(store=store, translator=translator, realm=settings.realm, clock=clock)


async def _pulling(
    importer: Importer, denying: Denying | None, settings: Settings, clock: Clock
) -> None:
    """Read and plan for ever; whoever is blocked by it is told of at once."""

    async def turn() -> None:
        try:
            await importer.pull()
        except (SourceError, BrakedError) as error:
            log.warning("pull_failed", error=str(error))
            return
        if denying is not None:
            await denying.turn()
        await importer.plan()

    await every(settings.source.pull_seconds, turn, clock=clock, name="pull")


def _at_work(
    work: Callable[[], Coroutine[None, None, None]],
) -> Callable[[web.Application], AsyncIterator[None]]:
    """Do this for as long as the service runs."""

    async def context(_: web.Application) -> AsyncIterator[None]:
        task = asyncio.create_task(work())
        yield
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    return context


async def _pull(
    arguments: argparse.Namespace, settings: Settings, importer: Importer, store: Store
) -> int:
    del settings, store
    pull = await importer.pull(allow=arguments.allow_denials)
    say(f"{pull.seen} users, {pull.denied} blocked")
    return 0


async def _plan(
    arguments: argparse.Namespace, settings: Settings, importer: Importer, store: Store
) -> int:
    del settings, store
    found = await importer.plan()
    if arguments.json:
        document = {
            "hash": found.plan.digest,
            "state": found.state.value,
            "approved_by": found.approved_by,
            "changes": found.plan.changes,
            "refused": [
                {"iss": r.identity.iss, "sub": r.identity.sub, "reason": r.reason}
                for r in found.refusals
            ],
        }
        say(_json(document))
    else:
        say(screen.planned(found))
    return 0


async def _approve(
    arguments: argparse.Namespace, settings: Settings, importer: Importer, store: Store
) -> int:
    del settings, store
    stored = await importer.approve(arguments.hash, arguments.by)
    say(f"plan {stored.digest}: approved by {arguments.by}")
    return 0


async def _apply(
    arguments: argparse.Namespace, settings: Settings, importer: Importer, store: Store
) -> int:
    del settings, store
    results = await importer.apply()
    if arguments.json:
        plans = [
            {
                "hash": result.digest,
                "state": result.state.value,
                "made": result.made,
                "problems": result.problems,
            }
            for result in results
        ]
        say(_json({"plans": plans}))
    else:
        say(screen.applied(results))
    return int(any(result.state is not PlanState.APPLIED for result in results))


async def _show(
    arguments: argparse.Namespace, settings: Settings, importer: Importer, store: Store
) -> int:
    del importer
    async with store.reading(settings.realm) as book:
        entries, people = await book.entries(), await book.people()
        pull = await book.last_pull()
    if arguments.json:
        accounts = [
            {
                "iss": entry.identity.iss,
                "sub": entry.identity.sub,
                "realm": settings.realm,
                "account": entry.account,
                "uid": entry.uid,
                "gid": entry.gid,
                "home": entry.home,
                "state": entry.state.value,
                "reason": entry.reason,
                "version": entry.version,
            }
            for entry in entries.values()
        ]
        say(_json({"accounts": accounts, "last_pull": pull}))
    else:
        say(screen.registry(entries.values(), people.values(), pull))
    return 0


def _json(document: object) -> str:
    return msgspec.json.encode(document).decode()


_VERBS: dict[str, Work] = {
    "pull": _pull,
    "plan": _plan,
    "approve": _approve,
    "apply": _apply,
    "show": _show,
}


if __name__ == "__main__":
    sys.exit(main())
