"""A site's command line: bring it up, ask how it fares, run commands in it, take it down."""

import argparse
import asyncio
import os
import sys
from typing import NoReturn

import msgspec

from headgate import logs
from headgate.command import CommandError
from testbed import instances
from testbed.control import ControlError
from testbed.instances import InstanceError
from testbed.issuer.client import ControlError as IssuerError
from testbed.launch import SERVICES, Options, up
from testbed.passwd import NoAccountError
from testbed.requirements import require_machine
from testbed.site import Site, take_down
from testbed.slurm import Cluster


def main(argv: list[str] | None = None) -> int:
    """Run one verb; 0 done, 1 it could not be done (said on standard error), 3 no such site."""
    arguments = _parser().parse_args(argv)
    logs.configure("info" if arguments.verbose else "warning")
    try:
        require_machine()
        return asyncio.run(_run(arguments))
    except (InstanceError, CommandError, ControlError, IssuerError, NoAccountError) as error:
        print(f"testbed: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m testbed", description=__doc__)
    parser.add_argument("-v", "--verbose", action="store_true", help="say what is being done")
    parser.add_argument("--name", default="main", help="which site, if there are several")
    verbs = parser.add_subparsers(dest="verb", required=True)
    start = verbs.add_parser("up", help="bring a site up; it lives until `down`")
    start.add_argument("--json", action="store_true", help="print every address as one object")
    start.add_argument("--cluster", default=Cluster().name)
    start.add_argument(
        "--without",
        action="append",
        choices=sorted(SERVICES),
        default=[],
        help="a service of the suite that is not to run",
    )
    start.add_argument("--bare", action="store_true", help="without any of them")
    start.add_argument("--zabbix", action="store_true", help="with a Zabbix server")
    show = verbs.add_parser("status", help="how its components fare")
    show.add_argument("--json", action="store_true")
    verbs.add_parser("down", help="end it; nothing is left")
    verbs.add_parser("accounts", help="make the accounts of whom the site's rules approve")
    inside = verbs.add_parser("exec", help="run a command inside")
    inside.add_argument("--user", default="root")
    inside.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND...")
    token = verbs.add_parser("token", help="print an access token of one of the issuer's users")
    token.add_argument("user")
    token.add_argument("--audience", action="append", default=[], help="else: all services")
    token.add_argument("--lifetime", type=int, default=0, help="seconds; negative: expired")
    token.add_argument("--groups", nargs="+", help="instead of the user's own")
    return parser


async def _run(arguments: argparse.Namespace) -> int:
    match arguments.verb:
        case "up":
            return await _up(arguments)
        case "status":
            return await _status(arguments)
        case "down":
            return await _down(arguments.name)
        case "token":
            return await _token(arguments)
        case "accounts":
            await Site.attach(arguments.name).import_accounts()
            return 0
        case _:
            return await _exec(arguments)


async def _up(arguments: argparse.Namespace) -> int:
    if instances.find(arguments.name):
        found = Site.attach(arguments.name)
    else:
        cluster = Cluster(name=arguments.cluster)
        without = SERVICES if arguments.bare else frozenset(arguments.without)
        options = Options(cluster=cluster, services=SERVICES - without)
        found = await up(arguments.name, options=options)
    if arguments.zabbix:
        await found.start_zabbix()
    document = msgspec.json.format(msgspec.json.encode(found.addresses), indent=2).decode()
    print(document)
    return 0


async def _status(arguments: argparse.Namespace) -> int:
    if not instances.find(arguments.name):
        print(f"no site named {arguments.name!r} is up", file=sys.stderr)
        return 3
    components = (await Site.attach(arguments.name).status()).values()
    if arguments.json:
        print(msgspec.json.format(msgspec.json.encode(list(components)), indent=2).decode())
        return 0
    for component in components:
        print(
            f"{component.name:24} {component.state:9} {component.seconds:6.2f} s  {component.why}"
        )
    return 0


async def _down(name: str) -> int:
    if folder := instances.find(name):
        await take_down(folder)
    instances.sweep()
    return 0


async def _token(arguments: argparse.Namespace) -> int:
    site = Site.attach(arguments.name)
    token = await site.token(
        arguments.user,
        audience=arguments.audience,
        lifetime=arguments.lifetime,
        groups=arguments.groups,
    )
    print(token)
    return 0


async def _exec(arguments: argparse.Namespace) -> NoReturn:
    command = arguments.command
    if command[:1] == ["--"]:
        command = command[1:]
    argv = await Site.attach(arguments.name).entry(command, user=arguments.user)
    os.execvp(argv[0], argv)  # noqa: S606 - an argv list; we become the command, terminal and all
