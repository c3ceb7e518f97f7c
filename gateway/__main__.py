"""The `headgate-gateway` command: serve, and what is done at the host's terminal."""

import argparse
import asyncio
import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from gateway import doctor_command
from gateway.assembly import assembled
from gateway.migrations import DatabaseError, check_tables, upgrade
from gateway.settings import Settings
from headgate import logs
from headgate.service import ListenSettings, listening, serve
from headgate.settings import EX_CONFIG, SettingsError, load, show

CONFIG = Path("/etc/headgate/gateway.toml")
VERBS = {
    "serve": "answer HTTP and send jobs until told to stop",
    "migrate": "bring the database's tables to this release",
    "doctor": "try each cluster as a job would use it, and say what to mend",
    "check-config": "print what was understood, and say what cannot work",
}


class _StartError(Exception):
    """The settings are good, and yet it cannot start: in one sentence, why."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb; the exit status is 78 where the settings are wrong."""
    arguments = _parser().parse_args(argv)
    os.umask(0o077)  # the database holds what users gave their jobs
    try:
        settings = load(arguments.config, Settings)
        if arguments.verb == "check-config":
            asyncio.run(_check(settings))
            sys.stdout.write(show(settings) + "\n")
        elif arguments.verb == "migrate":
            upgrade(settings.database)
        elif arguments.verb == "doctor":
            return doctor_command.run(settings, arguments)
        else:
            logs.configure(settings.log_level)
            asyncio.run(_serve(settings))
    except SettingsError as error:
        return _complain(error, EX_CONFIG)
    except (_StartError, DatabaseError) as error:
        return _complain(error, 1)
    return 0


def _complain(error: Exception, status: int) -> int:
    sys.stderr.write(f"headgate-gateway: {' '.join(str(error).split())}\n")
    return status


def _parser() -> argparse.ArgumentParser:
    """`--config` is understood before the verb and behind it."""
    parser = argparse.ArgumentParser(prog="headgate-gateway", description=__doc__)
    parser.add_argument("--config", type=Path, default=CONFIG, metavar="FILE")
    verbs = parser.add_subparsers(dest="verb", required=True)
    for name, sentence in VERBS.items():
        verb = verbs.add_parser(name, help=sentence, description=sentence)
        # Without a default of its own, which would undo what stands before the verb.
        verb.add_argument("--config", type=Path, default=argparse.SUPPRESS, metavar="FILE")
        if name == "doctor":
            doctor_command.options(verb)
    return parser


async def _check(settings: Settings) -> None:
    """Put together what `serve` would serve, and let go of it."""
    async with assembled(settings):
        pass


async def _serve(settings: Settings) -> None:
    async with assembled(settings) as gateway:
        await check_tables(gateway.store)
        async with contextlib.AsyncExitStack() as stack:
            with _port_of(settings.metrics):
                if settings.metrics is not None:
                    await stack.enter_async_context(listening(gateway.operations, settings.metrics))
            await stack.enter_async_context(gateway.at_work())
            with _port_of(settings.listen):
                await serve(gateway.application, settings.listen)


@contextlib.contextmanager
def _port_of(listen: ListenSettings | None) -> Iterator[None]:
    """Listening fails with the address that is meant."""
    try:
        yield
    except (OSError, OverflowError) as error:
        where = listen and (listen.unix or f"{listen.host}:{listen.port}")
        raise _StartError(f"cannot listen on {where}: {error}") from error


if __name__ == "__main__":
    sys.exit(main())
