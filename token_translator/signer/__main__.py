"""`headgate-signer`: signs, and looks after keys and ledger; puts the signer together."""

import argparse
import asyncio
import contextlib
import json
import os
import pwd
import secrets
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import structlog

from headgate import logs
from headgate.clock import SystemClock
from headgate.settings import SettingsError, load, show
from headgate.systemd import notify
from token_translator.database import open_database, upgrade
from token_translator.signer import (
    arguments,
    authorities,
    authority,
    commands,
    restore,
    retiring,
    server,
)
from token_translator.signer.books import INDEX_KEY_BYTES, Books, open_current, opened, position
from token_translator.signer.ceilings import Ceilings, read_ceilings
from token_translator.signer.copied import Copied
from token_translator.signer.copying import Copy
from token_translator.signer.entries import Head
from token_translator.signer.files import write_new
from token_translator.signer.ledger import end_of
from token_translator.signer.position import Position
from token_translator.signer.settings import AgentKey, SignerSettings, TokenKey
from token_translator.signer.signing import Signing
from token_translator.signer.syslog import transport
from token_translator.starting import said

log = structlog.get_logger(__name__)

Options = argparse.Namespace


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb; the exit status is 78 where the settings are wrong."""
    options = arguments.parse(argv)
    os.umask(0o077)  # the databases' files too are nobody else's
    return said("headgate-signer", lambda: _run(options))


def _run(options: Options) -> int:
    settings = load(options.config, SignerSettings)
    logs.configure(settings.log_level)
    return _VERBS[options.verb](settings, options)


def _serve(settings: SignerSettings, _: Options) -> int:
    asyncio.run(_serve_until_stopped(settings))
    return 0


async def _serve_until_stopped(settings: SignerSettings) -> None:
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    if settings.embedded:
        log.warning("embedded", meaning="one uid runs everything: nothing is kept from it")
    clock = SystemClock()
    async with authorities.opened(settings) as keys:
        with opened(settings) as books:
            restore.require_persons(books.ledger, books.persons, clock.now())
            for words in retiring.look(books.ledger, keys, clock.now()):
                log.warning("authority_left_out", meaning=words)
            with books.ledger.writing(clock.now()) as writing:
                authorities.register(writing, keys, by=commands.whoever_is_here())
            async with _copying(settings, books) as wake:
                signing = Signing(
                    authorities=keys,
                    ceilings=_ceilings(settings),
                    ledger=books.ledger,
                    persons=books.persons,
                    clock=clock,
                    written=wake,
                )
                try:
                    await _listen(settings, signing, stopped)
                finally:
                    await signing.close()


async def _listen(settings: SignerSettings, signing: Signing, stopped: asyncio.Event) -> None:
    async with server.listening(
        signing,
        Path(settings.socket),
        allowed_uids=_uids(settings),
        group=settings.socket_group,
    ):
        log.info("listening", socket=settings.socket)
        notify("READY=1")
        await stopped.wait()
        notify("STOPPING=1")


@contextlib.asynccontextmanager
async def _copying(settings: SignerSettings, books: Books) -> AsyncIterator[Callable[[], None]]:
    """Send the ledger off the host while open; gives what to call after each commit."""
    if settings.syslog is None:
        log.warning("no_copy", meaning="who takes this host can rewrite the ledger: set [syslog]")
        yield lambda: None
        return
    sent = Position(position(settings.sent_file, Head()))
    copy = Copy(settings.syslog, books.ledger, sent, SystemClock())
    try:
        # Should following fail in a way nobody thought of, the signer ends: that is seen.
        async with asyncio.TaskGroup() as group:
            following = group.create_task(copy.follow())
            try:
                yield copy.wake
            finally:
                following.cancel()
    finally:
        await copy.close()
        sent.close()


def _init(settings: SignerSettings, _: Options) -> int:
    for key in (*settings.user_ca, *settings.host_ca):
        if isinstance(key, AgentKey | TokenKey):
            continue  # made where it is kept, by that one's own tools
        if Path(key).exists():
            authority.FileAuthority.load(Path(key))
        else:
            print(f"{key}: {authority.create(Path(key))}")  # noqa: T201 - the answer
    if not Path(settings.index_key).exists():
        write_new(Path(settings.index_key), secrets.token_bytes(INDEX_KEY_BYTES), 0o600)
    _migrate(settings, _)
    engine = open_current(settings.ledger, "ledger")
    with engine.connect() as connection:
        position(settings.position_file, end_of(connection))
    engine.dispose()
    return 0


def _migrate(settings: SignerSettings, _: Options) -> int:
    for url, history in ((settings.ledger, "ledger"), (settings.persons, "persons")):
        engine = open_database(url)
        with engine.begin() as connection:
            upgrade(connection, history)
        engine.dispose()
    return 0


def _check_config(settings: SignerSettings, _: Options) -> int:
    ceilings = _ceilings(settings)
    _uids(settings)
    server.require_place(Path(settings.socket), settings.socket_group)
    if settings.syslog is not None:
        transport(settings.syslog)
    asyncio.run(_check_books(settings))
    print(show(settings))  # noqa: T201 - the answer
    print(show(ceilings))  # noqa: T201 - the answer
    return 0


async def _check_books(settings: SignerSettings) -> None:
    """Open what `serve` opens, and write nothing."""
    now = SystemClock().now()
    async with authorities.opened(settings) as keys:
        with opened(settings) as books:
            restore.require_persons(books.ledger, books.persons, now)
            for words in retiring.look(books.ledger, keys, now):
                print(f"headgate-signer: warning: {words}", file=sys.stderr)  # noqa: T201 - the terminal's answer


def _authorities(settings: SignerSettings, options: Options) -> int:
    with opened(settings) as books:
        found = commands.list_authorities(books.ledger, SystemClock().now())
    if not found and not options.json:
        none = "none is written down yet: `serve` does that with those of the settings"
        print(none, file=sys.stderr)  # noqa: T201 - the terminal's answer
    for one in found:
        if options.json:
            print(json.dumps(one))  # noqa: T201 - the answer
        else:
            words = [str(one[name]) for name in ("role", "state", "fingerprint")]
            last = one["last_expires"] and f", the last until {one['last_expires']}"
            print(*words, f"{one['live_certificates']} unexpired{last or ''}")  # noqa: T201 - the answer
    return 0


def _verify(settings: SignerSettings, options: Options) -> int:
    with opened(settings, whole=False) as books:
        status, found = commands.verify(books.ledger, options.copy, SystemClock().now())
    if options.json:
        print(json.dumps(found))  # noqa: T201 - the answer
    elif status:
        print(f"broken: {found['broken']}")  # noqa: T201 - the answer
    else:
        same = f", {found['same_in_copy']} of the copy" if "same_in_copy" in found else ""
        until, last = found["entries_until"], found["hash"]
        print(f"intact: until entry {until}{same}, its hash is {last}")  # noqa: T201 - the answer
    return status


def _search(settings: SignerSettings, options: Options) -> int:
    damaged: list[int] = []
    with opened(settings, whole=False) as books:
        found, sought = 0, arguments.sought(options)
        for found, document in enumerate(  # noqa: B007 - whether there was one
            commands.find(books.ledger, books.persons, sought, damaged.append), 1
        ):
            print(json.dumps(document) if options.json else commands.line(document))  # noqa: T201 - the answer
    for seq in damaged:
        words = f"entry {seq} is not what was written, and was left out: see `ledger verify`"
        print(f"headgate-signer: {words}", file=sys.stderr)  # noqa: T201 - the terminal's answer
    if not found and not options.json:
        print("nothing found", file=sys.stderr)  # noqa: T201 - the terminal's answer
    return 0 if found and not damaged else 1


def _erase(settings: SignerSettings, options: Options) -> int:
    with opened(settings) as books:
        identity = arguments.identity(options)
        return _tell(
            options, *commands.erase(books.ledger, books.persons, identity, SystemClock().now())
        )


def _retain(settings: SignerSettings, options: Options) -> int:
    sent = None
    if settings.syslog is not None:
        reached = Position(position(settings.sent_file, Head()))
        sent = reached.read().seq
        reached.close()
    with opened(settings) as books:
        gone = commands.retain(
            books.ledger,
            books.persons,
            days=settings.retention_days,
            sent=sent,
            now=SystemClock().now(),
        )
    return _tell(options, 0, gone)


def _revoke(settings: SignerSettings, options: Options) -> int:
    wanted = arguments.wanted(options, commands.whoever_is_here())
    with opened(settings) as books:
        return _tell(
            options, *commands.revoke(books.ledger, books.persons, wanted, SystemClock().now())
        )


def _reconcile(settings: SignerSettings, options: Options) -> int:
    ceilings = _ceilings(settings)
    position(settings.position_file, Head())
    with opened(settings, whole=False) as books:
        lost = restore.Lost(
            remembered=books.position.read(),
            serial=options.serial,
            copy=commands.read_copy(options.copy) if options.copy else Copied(),
            version=options.list_version,
            hosts=bool(ceilings.hostnames),
        )
        done = commands.reconcile(books.ledger, books.persons, lost, SystemClock().now())
    return _tell(options, 0, done)


def _tell(options: Options, status: int, found: Mapping[str, Any]) -> int:
    if options.json:
        print(json.dumps(found))  # noqa: T201 - the answer
    else:
        for name, value in found.items():
            print(f"{name.replace('_', ' ')}: {_plain(value)}")  # noqa: T201 - the answer
    return status


def _plain(value: object) -> str:
    """A value in a person's words."""
    match value:
        case bool():
            return "yes" if value else "no"
        case list() | tuple():
            return ", ".join(map(str, value)) or "none"
    return str(value)


def _ceilings(settings: SignerSettings) -> Ceilings:
    return read_ceilings(Path(settings.ceilings), embedded=settings.embedded)


def _uids(settings: SignerSettings) -> frozenset[int]:
    try:
        return frozenset(
            user if isinstance(user, int) else pwd.getpwnam(user).pw_uid
            for user in settings.allowed_users
        )
    except KeyError as error:
        raise SettingsError(f"allowed_users: {error.args[0]}") from error


_VERBS: Mapping[str, Callable[[SignerSettings, Options], int]] = {
    "serve": _serve,
    "init": _init,
    "migrate": _migrate,
    "check-config": _check_config,
    "authorities": _authorities,
    "revoke": _revoke,
    "reconcile": _reconcile,
    "verify": _verify,
    "ledger verify": _verify,
    "ledger search": _search,
    "ledger erase": _erase,
    "ledger retain": _retain,
}

if __name__ == "__main__":
    sys.exit(main())
