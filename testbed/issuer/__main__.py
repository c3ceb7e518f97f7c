"""`python -m testbed.issuer`: serve the issuer, or mint a token from a running one."""

import argparse
import asyncio
import json
import secrets
import signal
import sys
from pathlib import Path

import aiohttp

from headgate import logs
from headgate.settings import EX_CONFIG, SettingsError, load, read_secret
from headgate.systemd import notify
from testbed.issuer.app import running
from testbed.issuer.client import ControlError, IssuerControl
from testbed.issuer.settings import IssuerSettings

LOOPBACK = ("127.0.0.1", "::1", "localhost")


def main() -> int:
    """Run the command line; the exit status."""
    arguments = _parser().parse_args()
    logs.configure("warning")
    try:
        if arguments.verb == "serve":
            return asyncio.run(_serve(load(arguments.config, IssuerSettings)))
        return asyncio.run(_token(arguments))
    except SettingsError as error:
        print(error, file=sys.stderr)
        return EX_CONFIG
    except ControlError as error:
        print(error, file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m testbed.issuer", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    serve = verbs.add_parser("serve", help="listen; prints one JSON line with the URL")
    serve.add_argument("--config", type=Path, required=True)
    token = verbs.add_parser("token", help="print an access token of a user")
    token.add_argument("user")
    token.add_argument("--audience", action="append", default=[])
    token.add_argument("--lifetime", type=int, default=0, help="seconds")
    token.add_argument("--groups", nargs="+", help="force a groups claim")
    token.add_argument("--client", default="testbed")
    token.add_argument("--scopes", nargs="+", default=["openid", "profile", "email"])
    token.add_argument("--config", type=Path, help="the issuer's file: tells where its state is")
    token.add_argument("--url", help="the issuer, if not the one in the state folder")
    token.add_argument("--secret-file", type=Path, help="the control secret, instead of --config")
    return parser


async def _serve(settings: IssuerSettings) -> int:
    if settings.listen.host not in LOOPBACK:
        raise SettingsError("listen: this issuer asks for no passwords; it binds loopback only")
    state = Path(settings.state_dir)
    state.mkdir(mode=0o700, parents=True, exist_ok=True)
    secret = state / "control.secret"
    if not secret.exists():
        secret.touch(mode=0o600)
        secret.write_text(secrets.token_urlsafe(32) + "\n")
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    control_secret = read_secret(secret).decode()
    async with running(settings, control_secret=control_secret, state=state) as issuer:
        fresh = state / "url.new"
        fresh.write_text(issuer.url + "\n")
        fresh.replace(state / "url")
        print(json.dumps({"issuer": issuer.url, "control_secret": str(secret)}), flush=True)
        notify("READY=1")
        await stopped.wait()
        notify("STOPPING=1")
    return 0


async def _token(arguments: argparse.Namespace) -> int:
    secret_file, url = arguments.secret_file, arguments.url
    if arguments.config:
        state = Path(load(arguments.config, IssuerSettings).state_dir)
        secret_file = secret_file or state / "control.secret"
        try:
            url = url or (state / "url").read_text().strip()
        except OSError as error:
            raise SettingsError(f"{state / 'url'}: {error.strerror}; is it serving?") from error
    if not secret_file or not url:
        raise SettingsError("give --config, or --url and --secret-file")
    async with aiohttp.ClientSession() as session:
        control = IssuerControl(
            session=session, url=url.rstrip("/") + "/", secret=read_secret(secret_file).decode()
        )
        print(
            await control.token(
                arguments.user,
                audience=arguments.audience,
                lifetime=arguments.lifetime,
                groups=arguments.groups,
                client=arguments.client,
                scopes=arguments.scopes,
            )
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
