"""`headgate-frontdoor`: serve, check-config; puts the front door together."""

import argparse
import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import asyncssh
import msgspec
import structlog

from headgate import logs
from headgate.changes import ChangeFeed
from headgate.clock import Clock, SystemClock
from headgate.oidc import TokenVerifier
from headgate.peers import PeerSigner
from headgate.settings import load, read_secret, show
from headgate.systemd import notify
from token_translator.frontdoor.admission import Admission
from token_translator.frontdoor.attempts import Attempts, check_place
from token_translator.frontdoor.descriptors import fitted, raised
from token_translator.frontdoor.devices import DeviceFlow
from token_translator.frontdoor.door import Door, listening, options
from token_translator.frontdoor.limits import Places
from token_translator.frontdoor.nodes import Nodes, check_known_hosts
from token_translator.frontdoor.settings import Settings
from token_translator.frontdoor.stay import Stays
from token_translator.frontdoor.targets import Targets
from token_translator.frontdoor.tokens import Tokens
from token_translator.frontdoor.translator import Translator
from token_translator.frontdoor.visit import House
from token_translator.starting import FOLDER, said

log = structlog.get_logger(__name__)

START_SECONDS = 3.0
"""How long the translator may take to tell us who is held, before we answer without it."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb; the exit status is 78 where the settings are wrong, 1 for a busy address."""
    chosen = _parser().parse_args(argv)
    os.umask(0o077)  # the state says from where people come
    return said("headgate-frontdoor", lambda: _run(chosen))


def _run(chosen: argparse.Namespace) -> int:
    settings = load(chosen.config, Settings)
    logs.configure(settings.log_level)
    # What asyncssh says below a warning names commands and addresses; we say what is needed.
    asyncssh.set_log_level("WARNING")
    if chosen.verb == "serve":
        asyncio.run(_serve(settings))
    else:
        _check(settings)
        print(show(settings))  # noqa: T201 - the answer
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="headgate-frontdoor", description=__doc__)
    parser.add_argument("--config", type=Path, default=FOLDER / "frontdoor.toml", metavar="FILE")
    verbs = parser.add_subparsers(dest="verb", required=True)
    for name, sentence in (
        ("serve", "answer SSH until told to stop"),
        ("check-config", "print what was understood"),
    ):
        verb = verbs.add_parser(name, help=sentence, description=sentence)
        verb.add_argument("--config", type=Path, default=argparse.SUPPRESS, metavar="FILE")
    return parser


def _check(settings: Settings) -> None:
    options(settings)
    _signer(settings, SystemClock())
    check_known_hosts(settings.nodes)
    check_place(Path(settings.state))
    _client_secret(settings)


def _signer(settings: Settings, clock: Clock) -> PeerSigner:
    path = Path(settings.identity.key_file)
    return PeerSigner.from_file(instance=settings.identity.instance, path=path, clock=clock)


@dataclass(frozen=True, slots=True)
class Running:
    """A front door that answers at this port."""

    port: int
    feed: ChangeFeed


@contextlib.asynccontextmanager
async def assembled(settings: Settings, clock: Clock) -> AsyncIterator[Running]:
    """The front door, open while the context is; at its end every connection is ended.

    Raises:
        SettingsError: a file is not as the settings say.
        StartError: the address cannot be listened at.
    """
    _check(settings)
    async with contextlib.AsyncExitStack() as stack:
        session = await stack.enter_async_context(aiohttp.ClientSession())
        attempts = Attempts(path=Path(settings.state), limits=settings.limits, clock=clock)
        stack.callback(attempts.close)
        feed = ChangeFeed(
            url=settings.token_translator.url,
            session=session,
            headers=_signer(settings, clock).headers,
            clock=clock,
        )
        house = _house(settings, session, attempts, feed, clock)
        seconds = settings.limits.login_seconds
        door = Door(house=house, options=options(settings), seconds=seconds, clock=clock)
        sock = await stack.enter_async_context(
            listening(settings.listen.host, settings.listen.port)
        )
        stack.push_async_callback(door.close)
        stack.push_async_callback(_ended, asyncio.create_task(feed.follow()))
        # Who comes in the first moment waits; later the door is open and says why nobody enters.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(START_SECONDS):
                await feed.until_current()
        stack.push_async_callback(_ended, asyncio.create_task(door.serve(sock)))
        yield Running(int(sock.getsockname()[1]), feed)


def _house(
    settings: Settings,
    session: aiohttp.ClientSession,
    attempts: Attempts,
    feed: ChangeFeed,
    clock: Clock,
) -> House:
    places = Places(settings.limits)
    translator = settings.token_translator
    # What is no JWT is no token here: strangers would have the issuer asked with every guess.
    issuers = [msgspec.structs.replace(issuer, introspection=None) for issuer in settings.issuers]
    verifier = TokenVerifier(
        issuers=issuers, audience=settings.audience, session=session, clock=clock
    )
    tokens = Tokens(
        verifier=verifier,
        issuers=settings.issuers,
        audiences=(settings.audience, translator.audience or translator.url),
    )
    stays = Stays(
        translator=Translator(
            url=translator.url,
            realm=settings.realm,
            source_address=settings.source_address,
            timeout=translator.timeout,
            session=session,
            headers=_signer(settings, clock).headers,
        ),
        nodes=Nodes(settings.nodes),
        usernames=settings.usernames,
        clock=clock,
    )
    return House(
        admission=Admission(
            tokens=tokens, attempts=attempts, places=places, feed=feed, realm=settings.realm
        ),
        attempts=attempts,
        places=places,
        stays=stays,
        targets=Targets(settings.jump_targets),
        channels=settings.limits.channels,
        banner=settings.banner,
        devices=_devices(settings, session, clock),
    )


def _devices(settings: Settings, session: aiohttp.ClientSession, clock: Clock) -> DeviceFlow | None:
    flow = settings.device_flow
    if flow is None:
        return None
    secret = _client_secret(settings)
    return DeviceFlow(flow, secret=secret, audience=settings.audience, session=session, clock=clock)


def _client_secret(settings: Settings) -> str:
    flow = settings.device_flow
    if flow is None or not flow.client_secret_file:
        return ""
    return read_secret(Path(flow.client_secret_file)).decode()


async def _serve(settings: Settings) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    descriptors = raised()
    limits = fitted(settings.limits, descriptors)
    # Whoever runs this has to see it: a unit's LimitNOFILE is easily forgotten.
    (log.info if limits == settings.limits else log.warning)(
        "room",
        descriptors=descriptors,
        connections=limits.connections,
        half_open=limits.half_open,
        wanted=settings.limits.connections,
    )
    settings = msgspec.structs.replace(settings, limits=limits)
    async with assembled(settings, SystemClock()) as running:
        log.info("listening", host=settings.listen.host, port=running.port)
        notify("READY=1")
        await stopped.wait()
        notify("STOPPING=1")
        log.info("stopping")


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


if __name__ == "__main__":
    sys.exit(main())
