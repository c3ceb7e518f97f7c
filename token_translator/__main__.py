"""`headgate-tokens`: serve, and what is done at the host's terminal."""

import argparse
import asyncio
import os
import pwd
import socket
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import timedelta
from pathlib import Path

from sqlalchemy import make_url

from headgate import logs, privileges, service
from headgate.clock import SystemClock
from headgate.settings import SettingsError, load, show
from token_translator import (
    checking,
    command_line,
    explain,
    holds_command,
    hosts_command,
    reconcile_command,
    retention_command,
    services_command,
)
from token_translator.assembly import (
    account_names,
    account_requests_of,
    assembled,
    database,
    outside_world,
    policy,
    revocations_of,
    suspending_of,
)
from token_translator.database import open_async_database, require_place, upgrade
from token_translator.enrolments import Enrolments
from token_translator.grants import Profile
from token_translator.hold_store import DatabaseHolds
from token_translator.nodes import command as node_setup
from token_translator.note_store import DatabaseNotes
from token_translator.revocations import RevocationLists
from token_translator.settings import Settings
from token_translator.signer_client import SignerClient
from token_translator.standing import Standing
from token_translator.starting import StartError, said
from token_translator.stops import Stops
from token_translator.store import DatabaseSeals


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb; the exit status is 78 where the settings are wrong."""
    options = command_line.parser(__doc__ or "").parse_args(argv)
    if options.verb == "node-setup":
        return node_setup.run(options)  # a node has no settings of this service
    os.umask(0o077)  # seals say who is here
    return said("headgate-tokens", lambda: _run(options))


def _run(options: argparse.Namespace) -> int:
    settings = load(options.config, Settings)
    # What is done at the terminal says so itself, and the ledger keeps it.
    quiet = options.verb in holds_command.VERBS
    logs.configure("error" if quiet else settings.log_level)
    return asyncio.run(_VERBS[options.verb](settings, options)) or 0


async def _serve(settings: Settings) -> None:
    async with assembled(settings, SystemClock()) as app:
        try:
            await service.serve(app, settings.listen)
        except (OSError, OverflowError) as error:
            raise _deaf(settings, error) from error


async def _check(settings: Settings, options: argparse.Namespace) -> None:
    """Put together what `serve` would serve, do nothing with it, and print what was understood."""
    _become_owner(settings)
    _check_address(settings)
    ceilings = explain.read(options.ceilings)
    async with assembled(settings, SystemClock(), at_work=False):
        print(show(settings))  # noqa: T201 - the answer
    known = None if isinstance(ceilings, str) else ceilings
    for words in checking.in_vain(settings, known):
        print(f"headgate-tokens: warning: {words}", file=sys.stderr)  # noqa: T201 - the terminal's answer
    if known is None and options.ceilings != explain.CEILINGS:
        words = f"ceilings: not looked at: {ceilings}"
        print(f"headgate-tokens: {words}", file=sys.stderr)  # noqa: T201 - the terminal's answer


def _check_address(settings: Settings) -> None:
    """Whether the address is one of ours; not the port, where the service itself may be now."""
    listen = settings.listen
    service.tls_context(listen)
    if listen.unix:
        return
    try:
        if not 0 <= listen.port < 2**16:
            raise SettingsError(f"listen: there is no port {listen.port}")
        found = socket.getaddrinfo(listen.host, 0, type=socket.SOCK_STREAM)
        for family, _, _, _, address in found:
            socket.create_server(address[:2], family=family).close()
    except OSError as error:
        raise _deaf(settings, error) from error


def _deaf(settings: Settings, error: Exception) -> StartError:
    listen = settings.listen
    where = listen.unix or f"{listen.host}:{listen.port}"
    return StartError(f"cannot listen on {where}: {getattr(error, 'strerror', None) or error}")


async def _migrate(settings: Settings) -> None:
    engine = open_async_database(settings.database)
    require_place(engine)
    try:
        async with engine.begin() as connection:
            await connection.run_sync(upgrade, "seals")
    finally:
        await engine.dispose()


def _question(options: argparse.Namespace) -> explain.Question:
    key_file: Path | None = options.key_file
    return explain.Question(
        token=_read_text(options.token_file),
        profile=Profile(options.profile),
        realm=options.realm,
        public_key=None if key_file is None else _read_text(key_file),
    )


async def _explain(settings: Settings, options: argparse.Namespace) -> int:
    clock = SystemClock()
    async with (
        database(settings) as engine,
        outside_world(settings, clock, engine) as outside,
    ):
        decision = await explain.explain(
            _question(options),
            callers=outside.callers,
            accounts=Standing(registry=outside.registry, holds=DatabaseHolds(engine)),
            policy=policy(settings),
            clock=clock,
            ceilings=explain.read(options.ceilings),
        )
    print(explain.render(decision, as_json=options.json))  # noqa: T201 - the answer
    return 0 if decision.granted else 1


async def _host(settings: Settings, options: argparse.Namespace) -> int:
    by = _become_owner(settings)
    async with database(settings) as engine:
        enrolments, requests = Enrolments(engine), account_requests_of(settings, engine)
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
        async with database(settings) as engine:
            revocations = revocations_of(engine, signer, lists, clock)
            suspending = suspending_of(settings, engine, revocations, clock)
            async with account_names(settings, clock) as names:
                who = holds_command.Whoever(by=by, root=root, names=names)
                return await holds_command.run(options, suspending, who)
    finally:
        await signer.close()


async def _service(settings: Settings, options: argparse.Namespace) -> int:
    by = _become_owner(settings)
    known = [peer.instance for peer in settings.peers]
    async with database(settings) as engine:
        return await services_command.run(
            options, Stops(engine), known=known, by=by, clock=SystemClock()
        )


async def _forget(settings: Settings, options: argparse.Namespace) -> int:
    _become_owner(settings)
    async with database(settings) as engine:
        return await retention_command.run(
            options,
            engine,
            age=timedelta(days=settings.retention_days),
            seal_max_age=timedelta(seconds=settings.delegation.max_age),
            clock=SystemClock(),
        )


async def _reconcile(settings: Settings, options: argparse.Namespace) -> int:
    by = _become_owner(settings)
    signer = SignerClient(path=settings.signer.socket, timeout=settings.signer.timeout)
    try:
        async with database(settings) as engine:
            stores = reconcile_command.Stores(
                DatabaseNotes(engine),
                DatabaseHolds(engine),
                DatabaseSeals(engine),
                Stops(engine),
                Enrolments(engine),
            )
            return await reconcile_command.run(options, stores, signer, by=by, clock=SystemClock())
    finally:
        await signer.close()


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise SettingsError(f"{path}: not what it should be: it is no ASCII") from error


_VERBS: Mapping[
    str, Callable[[Settings, argparse.Namespace], Coroutine[None, None, int | None]]
] = {
    "serve": lambda settings, _: _serve(settings),
    "check-config": _check,
    "migrate": lambda settings, _: _migrate(settings),
    "explain": _explain,
    **dict.fromkeys(holds_command.VERBS, _hold),
    **dict.fromkeys(hosts_command.VERBS, _host),
    **dict.fromkeys(services_command.VERBS, _service),
    **dict.fromkeys(retention_command.VERBS, _forget),
    **dict.fromkeys(reconcile_command.VERBS, _reconcile),
}


if __name__ == "__main__":
    sys.exit(main())
