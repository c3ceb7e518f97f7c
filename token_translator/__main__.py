"""`headgate-tokens`: serve, check-config, migrate, explain; puts the HTTP service together."""

import argparse
import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import aiohttp
from aiohttp import web

from headgate import logs, service
from headgate.clock import Clock, SystemClock
from headgate.oidc import TokenVerifier
from headgate.peers import PeerSigner, PeerVerifier
from headgate.settings import EX_CONFIG, SettingsError, load, show
from token_translator import api, explain
from token_translator.callers import Callers
from token_translator.database import open_async_database, require_current, upgrade
from token_translator.issuing import Issuing, Policy
from token_translator.registry import Registry
from token_translator.settings import Settings
from token_translator.signer_client import SignerClient
from token_translator.store import DatabaseSeals


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb; the exit status is 78 where the settings are wrong."""
    options = _parser().parse_args(argv)
    os.umask(0o077)  # seals say who is here
    try:
        settings = load(options.config, Settings)
        logs.configure(settings.log_level)
        match options.verb:
            case "serve":
                asyncio.run(_serve(settings))
            case "migrate":
                asyncio.run(_migrate(settings))
            case "explain":
                return asyncio.run(_explain(settings, options.token_file, as_json=options.json))
            case _:
                print(show(settings))  # noqa: T201 - the answer
    except SettingsError as error:
        print(f"headgate-tokens: {error}", file=sys.stderr)  # noqa: T201 - the terminal's answer
        return EX_CONFIG
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="headgate-tokens", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    for name, sentence in (
        ("serve", "answer HTTP until told to stop"),
        ("migrate", "bring the database's tables to this version"),
        ("check-config", "print what was understood"),
        ("explain", "say what a token would get, and why"),
    ):
        verb = verbs.add_parser(name, help=sentence, description=sentence)
        verb.add_argument("--config", type=Path, required=True, metavar="FILE")
        if name == "explain":
            verb.add_argument("--token-file", type=Path, required=True, metavar="FILE")
            verb.add_argument("--json", action="store_true", help="as one JSON object")
    return parser


@dataclass(frozen=True, slots=True)
class _Outside:
    """Who calls, and what is asked over the network."""

    callers: Callers
    registry: Registry


@contextlib.asynccontextmanager
async def _outside(settings: Settings, clock: Clock) -> AsyncIterator[_Outside]:
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
                ),
                peers=PeerVerifier(peers=settings.peers, audience=settings.url, clock=clock),
                issuers=settings.issuers,
                audience=settings.audience,
            ),
            registry=Registry(
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
    seals = await _open_seals(settings)
    signer = SignerClient(path=settings.signer.socket, timeout=settings.signer.timeout)
    try:
        async with _outside(settings, clock) as outside:
            yield api.create(
                callers=outside.callers,
                issuing=Issuing(
                    policy=policy(settings),
                    accounts=outside.registry,
                    signer=signer,
                    seals=seals,
                    clock=clock,
                ),
                authorities=signer,
                checks={
                    "signer": signer.ready,
                    "registry": outside.registry.ready,
                    "database": seals.ready,
                },
            )
    finally:
        await signer.close()
        await seals.close()


async def _serve(settings: Settings) -> None:
    async with assembled(settings, SystemClock()) as app:
        await service.serve(app, settings.listen)


async def _open_seals(settings: Settings) -> DatabaseSeals:
    engine = open_async_database(settings.database)
    async with engine.connect() as connection:
        await connection.run_sync(require_current, "seals", "headgate-tokens migrate")
    return DatabaseSeals(engine)


async def _migrate(settings: Settings) -> None:
    engine = open_async_database(settings.database)
    async with engine.begin() as connection:
        await connection.run_sync(upgrade, "seals")
    await engine.dispose()


async def _explain(settings: Settings, token_file: Path, *, as_json: bool) -> int:
    clock = SystemClock()
    async with _outside(settings, clock) as outside:
        decision = await explain.explain(
            _read_token(token_file),
            callers=outside.callers,
            accounts=outside.registry,
            policy=policy(settings),
            clock=clock,
        )
    print(explain.render(decision, as_json=as_json))  # noqa: T201 - the answer
    return 0 if decision.granted else 1


def _read_token(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path}: {error}") from error


def policy(settings: Settings) -> Policy:
    """The site's policy, as the settings have it."""
    delegation = settings.delegation
    return Policy(
        rules=settings.rules,
        realms=settings.realms,
        key_types=settings.key_types,
        session_program=settings.session_program,
        seal_max_age=timedelta(seconds=delegation.max_age),
        sealed_lifetime=timedelta(seconds=delegation.lifetime),
        sealed_per_minute=delegation.per_minute,
        sealed_source_addresses=delegation.source_addresses,
    )


if __name__ == "__main__":
    sys.exit(main())
