"""`headgate-signer`: serve, init, migrate, verify, check-config; puts the signer together."""

import argparse
import asyncio
import os
import pwd
import secrets
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import structlog
from sqlalchemy import Engine

from headgate import logs
from headgate.clock import SystemClock
from headgate.settings import EX_CONFIG, SettingsError, load, show
from headgate.systemd import notify
from token_translator.database import open_database, require_current, upgrade
from token_translator.signer import authority, server
from token_translator.signer.ceilings import read_ceilings
from token_translator.signer.files import read_private, write_new
from token_translator.signer.ledger import ChainError, Ledger
from token_translator.signer.persons import Persons
from token_translator.signer.settings import SignerSettings
from token_translator.signer.signing import Signing

log = structlog.get_logger(__name__)

INDEX_KEY_BYTES = 32


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb; the exit status is 78 where the settings are wrong."""
    options = _parser().parse_args(argv)
    os.umask(0o077)  # the databases' files too are nobody else's
    try:
        settings = load(options.config, SignerSettings)
        logs.configure(settings.log_level)
        return int(_VERBS[options.verb](settings) or 0)
    except SettingsError as error:
        print(f"headgate-signer: {error}", file=sys.stderr)  # noqa: T201 - the terminal's answer
        return EX_CONFIG


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="headgate-signer", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    for name, sentence in (
        ("serve", "answer on the socket until told to stop"),
        ("init", "make the authority keys, the index key and the tables; touches nothing existing"),
        ("migrate", "bring the tables to this version"),
        ("verify", "walk the ledger's chain"),
        ("check-config", "print what was understood"),
    ):
        verb = verbs.add_parser(name, help=sentence, description=sentence)
        verb.add_argument("--config", type=Path, required=True, metavar="FILE")
    return parser


def _serve(settings: SignerSettings) -> None:
    asyncio.run(_serve_until_stopped(settings))


async def _serve_until_stopped(settings: SignerSettings) -> None:
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    if settings.embedded:
        log.warning("embedded", meaning="one uid runs everything: nothing is kept from it")
    user_ca = [authority.FileAuthority.load(Path(path)) for path in settings.user_ca]
    host_ca = [authority.FileAuthority.load(Path(path)) for path in settings.host_ca]
    if {one.blob for one in user_ca} & {one.blob for one in host_ca}:
        raise SettingsError("user_ca and host_ca share a key")
    ledger_engine, persons_engine = _open(settings)
    signing = Signing(
        user_ca=user_ca,
        host_ca=host_ca,
        ceilings=read_ceilings(Path(settings.ceilings), embedded=settings.embedded),
        ledger=_ledger(settings, ledger_engine, persons_engine),
        clock=SystemClock(),
    )
    try:
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
    finally:
        await signing.close()
        ledger_engine.dispose()
        persons_engine.dispose()


def _init(settings: SignerSettings) -> None:
    for path in (*settings.user_ca, *settings.host_ca):
        if Path(path).exists():
            authority.FileAuthority.load(Path(path))
        else:
            print(f"{path}: {authority.create(Path(path))}")  # noqa: T201 - the answer
    if not Path(settings.index_key).exists():
        write_new(Path(settings.index_key), secrets.token_bytes(INDEX_KEY_BYTES), 0o600)
    _migrate(settings)


def _migrate(settings: SignerSettings) -> None:
    for url, history in ((settings.ledger, "ledger"), (settings.persons, "persons")):
        engine = open_database(url)
        with engine.begin() as connection:
            upgrade(connection, history)
        engine.dispose()


def _verify(settings: SignerSettings) -> int:
    ledger_engine, persons_engine = _open(settings)
    try:
        seq, digest = _ledger(settings, ledger_engine, persons_engine).verify()
    except ChainError as error:
        print(f"broken: {error}")  # noqa: T201 - the answer
        return 1
    finally:
        ledger_engine.dispose()
        persons_engine.dispose()
    print(f"intact: {seq} entries, the last is {digest}")  # noqa: T201 - the answer
    return 0


def _check_config(settings: SignerSettings) -> None:
    print(show(settings))  # noqa: T201 - the answer
    print(show(read_ceilings(Path(settings.ceilings), embedded=settings.embedded)))  # noqa: T201 - the answer
    _uids(settings)


def _open(settings: SignerSettings) -> tuple[Engine, Engine]:
    engines = []
    for url, history in ((settings.ledger, "ledger"), (settings.persons, "persons")):
        engine = open_database(url)
        with engine.connect() as connection:
            require_current(connection, history, "headgate-signer migrate")
        engines.append(engine)
    return engines[0], engines[1]


def _ledger(settings: SignerSettings, ledger: Engine, persons: Engine) -> Ledger:
    index_key = read_private(Path(settings.index_key))
    if len(index_key) != INDEX_KEY_BYTES:
        raise SettingsError(f"{settings.index_key}: not {INDEX_KEY_BYTES} bytes")
    return Ledger(
        engine=ledger,
        persons=Persons(engine=persons, index_key=index_key),
        serial_floor=settings.serial_floor,
    )


def _uids(settings: SignerSettings) -> frozenset[int]:
    try:
        return frozenset(
            user if isinstance(user, int) else pwd.getpwnam(user).pw_uid
            for user in settings.allowed_users
        )
    except KeyError as error:
        raise SettingsError(f"allowed_users: {error.args[0]}") from error


_VERBS = {
    "serve": _serve,
    "init": _init,
    "migrate": _migrate,
    "verify": _verify,
    "check-config": _check_config,
}

if __name__ == "__main__":
    sys.exit(main())
