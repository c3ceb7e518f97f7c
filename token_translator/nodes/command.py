"""`headgate-tokens node-setup`: print what a node is given, or prove that it is so."""

import argparse
import asyncio
import os
import pwd
import shlex
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

import aiohttp
import msgspec

from headgate.clock import Clock, SystemClock
from headgate.settings import EX_CONFIG, SettingsError, load
from token_translator.nodes import effective, host_certificate, lines, places
from token_translator.nodes.findings import Finding, render, skipped, status, warning
from token_translator.nodes.settings import Node

SECONDS = 10.0
PARTS = ("all", "sshd", "principals", "units", "host-certificate")
NEEDED = ("realm", "uid_first", "uid_last")
SAID = (*NEEDED, "tokens", "people_group", "host_certificate")
"""Keys of the node's TOML that have an option of the same name."""
ROOTS = "sshd's files, the principals program, the session program and the host certificate"


class Authorities(msgspec.Struct, frozen=True):
    """The translator's answer about its authorities: OpenSSH lines."""

    user_ca: tuple[str, ...]
    host_ca: tuple[str, ...]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the verb; those of `Node` stand for keys of the node's TOML."""
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--print", dest="part", nargs="?", const="all", choices=PARTS)
    what.add_argument("--check", action="store_true", help="look, as root, on the node")
    parser.add_argument("--node", type=Path, metavar="FILE", help="the node's TOML")
    parser.add_argument("--json", action="store_true", help="as one JSON object")
    parser.add_argument("--account", help="an account of the range to ask for; else the first")
    parser.add_argument("--hostname", default=socket.getfqdn(), help="as people name the node")
    parser.add_argument("--offline", action="store_true", help="do not ask the translator")
    parser.add_argument("--sshd-config", default="", metavar="FILE", help="else sshd's own")
    for name in SAID:
        kind = int if name in {"uid_first", "uid_last"} else str
        help_ = f"{name} of the node's TOML"
        parser.add_argument(f"--{name.replace('_', '-')}", type=kind, help=help_)
    parser.add_argument("--gateway", dest="gateways", action="append", metavar="ADDRESS")


def run(options: argparse.Namespace) -> int:
    """Print or check; the exit status."""
    try:
        node = read(options)
    except SettingsError as error:
        print(f"headgate-tokens: {error}", file=sys.stderr)  # noqa: T201 - the terminal's answer
        return EX_CONFIG
    if options.part:
        print(printed(node, options.part, named(options)), end="")  # noqa: T201 - the answer
        return 0
    findings = asyncio.run(check(node, options, SystemClock()))
    print(render(findings, as_json=options.json))  # noqa: T201 - the answer
    return status(findings)


def read(options: argparse.Namespace) -> Node:
    """The node's TOML with what the options say over it.

    Raises:
        SettingsError: they say too little, or something that cannot be.
    """
    said = {
        name: tuple(value) if isinstance(value, list) else value
        for name in Node.__struct_fields__
        if (value := getattr(options, name, None)) is not None
    }
    try:
        if options.node:
            return msgspec.structs.replace(load(options.node, Node), **said)
        if missing := [name for name in NEEDED if name not in said]:
            words = ", ".join(f"--{name.replace('_', '-')}" for name in missing)
            raise SettingsError(f"the node: say --node FILE, or {words}")
        return msgspec.convert(said, Node)
    except (ValueError, TypeError) as error:
        raise SettingsError(f"the node: {error}") from error


def named(options: argparse.Namespace) -> str:
    """The options that named the node, as a shell reads them."""
    words = ["--node", str(options.node)] if options.node else []
    for name in SAID:
        if (value := getattr(options, name)) is not None:
            words += [f"--{name.replace('_', '-')}", str(value)]
    for address in options.gateways or ():
        words += ["--gateway", address]
    return shlex.join(words)


def printed(node: Node, part: str, named: str) -> str:
    """One part of what the node is given; `named`: the options that name it."""
    match part:
        case "sshd":
            return lines.sshd(node)
        case "principals" if node.principals == "files":
            return lines.principals_files(node)
        case "principals":
            return lines.principals_program(node)
        case "units":
            return lines.units(node)
        case "host-certificate":
            return lines.host_certificate(node)
        case _:
            return lines.everything(node, min(places.release_digests(), default=""), named)


async def check(node: Node, options: argparse.Namespace, clock: Clock) -> list[Finding]:
    """Look at the node we are on; without root, at what everybody can see."""
    known = None if options.offline or not node.tokens else await _authorities(node.tokens)
    found = [] if known is not None else [_unasked(node, offline=options.offline)]
    found += await places.authorities(node, known.user_ca if known else None)
    found += await places.revocation_list(node)
    if os.geteuid() != 0:
        return [*found, skipped("what needs root", f"{ROOTS}: run this as root")]
    account = _account(node, options.account)
    if account is None:
        found.append(skipped("an account of the range", "there is none yet; name one: --account"))
    name = account.pw_name if account else "nobody"
    found += await effective.judged(node, name, config=options.sshd_config)
    found += await places.principals(node, account)
    found += await places.session(node, account)
    if node.host_certificate:
        found += await host_certificate.judged(
            node.host_certificate,
            options.hostname,
            now=clock.now(),
            known=known.host_ca if known else None,
        )
    return found


def _unasked(node: Node, *, offline: bool) -> Finding:
    if offline or not node.tokens:
        return warning("the translator", "not asked: whose authorities these are is unknown")
    return warning("the translator", f"{node.tokens} does not answer: authorities not compared")


async def _authorities(url: str) -> Authorities | None:
    timeout = aiohttp.ClientTimeout(total=SECONDS)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(f"{url.rstrip('/')}/v1/ca", allow_redirects=False) as answer,
        ):
            answer.raise_for_status()
            return msgspec.json.decode(await answer.content.read(65536), type=Authorities)
    except (aiohttp.ClientError, TimeoutError, msgspec.MsgspecError):
        return None


def _account(node: Node, name: str | None) -> pwd.struct_passwd | None:
    accounts: Sequence[pwd.struct_passwd] = pwd.getpwall()
    if name is not None:
        try:
            accounts = [pwd.getpwnam(name)]
        except KeyError:
            return None
    ours = (one for one in accounts if node.principals_of(one.pw_name, one.pw_uid))
    return min(ours, key=lambda one: one.pw_uid, default=None)
