"""Bytes through the front door: a stock `ssh` with a token, beside the same one to the node."""

import os
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from bench.table import ROUNDS, Row
from headgate.command import run
from headgate.settings import command_environment
from testbed.site import Site

MEGABYTES = 200
SECONDS = 120.0
LIMIT = 512 * 1024 * 1024
_ASKPASS = """\
#!/bin/sh
cat "$HEADGATE_TOKEN_FILE"
"""


@dataclass(frozen=True, slots=True)
class _Way:
    """One way to the login node: `ssh` with these arguments."""

    arguments: tuple[str, ...]
    environment: dict[str, str]

    async def seconds(self, command: str, stdin: bytes = b"") -> float:
        """How long a command takes, connecting included."""
        argv = ("ssh", "-F", "none", *self.arguments, command)
        began = time.perf_counter()
        done = await run(argv, timeout=SECONDS, limit=LIMIT, env=self.environment, stdin=stdin)
        done.checked()
        return time.perf_counter() - began


async def rows(site: Site, folder: Path) -> list[Row]:
    """One row for each direction, and one for an empty command: what a login costs."""
    token = await site.token("alice")
    through, direct = _through(site, folder, token), await _direct(site, folder, token)
    data = os.urandom(1_000_000) * MEGABYTES
    await direct.seconds("cat > bench-data", data)
    measured: dict[str, tuple[list[float], list[float]]] = {
        f"{MEGABYTES} MB sent through the front door": ([], []),
        f"{MEGABYTES} MB fetched through the front door": ([], []),
        "`ssh … true` through the front door": ([], []),
    }
    commands = (("cat > /dev/null", data), ("cat bench-data", b""), ("true", b""))
    for _ in range(ROUNDS):
        for (command, stdin), (ours, bare) in zip(commands, measured.values(), strict=True):
            bare.append(await direct.seconds(command, stdin))
            ours.append(await through.seconds(command, stdin))
    await direct.seconds("rm bench-data")
    return [
        Row(
            what=what,
            floor="the same `ssh` to the login node, with a certificate",
            ratios=[own / floor for own, floor in zip(ours, bare, strict=True)],
            budget=None,
            words=f"{_words(what, ours)} to {_words(what, bare)}",
        )
        for what, (ours, bare) in measured.items()
    ]


def _words(what: str, seconds: Sequence[float]) -> str:
    median = statistics.median(seconds)
    return f"{MEGABYTES / median:.0f} MB/s" if "MB" in what else f"{median * 1000:.0f} ms"


def _through(site: Site, folder: Path, token: str) -> _Way:
    door = site.addresses.frontdoor
    (folder / "askpass").write_text(_ASKPASS, encoding="ascii")
    (folder / "askpass").chmod(0o700)
    (folder / "token").write_text(token, encoding="ascii")
    return _Way(
        (
            *("-o", f"UserKnownHostsFile={door['known_hosts']}", "-p", str(door["port"])),
            f"site@{door['host']}",
        ),
        command_environment(
            SSH_ASKPASS=str(folder / "askpass"),
            SSH_ASKPASS_REQUIRE="force",
            HEADGATE_TOKEN_FILE=str(folder / "token"),
        ),
    )


async def _direct(site: Site, folder: Path, token: str) -> _Way:
    key, node = folder / "id", site.addresses.ssh
    (
        await run(("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)), timeout=20)
    ).checked()
    url = f"{site.addresses.token_translator}/v1/certificates"
    body = {"public_key": key.with_suffix(".pub").read_text(encoding="ascii")}
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        aiohttp.ClientSession(raise_for_status=True) as session,
        session.post(url, json=body, headers=headers) as response,
    ):
        certificate = str((await response.json())["certificate"])
    (folder / "id-cert.pub").write_text(certificate, encoding="ascii")
    return _Way(
        (
            *("-o", f"UserKnownHostsFile={node['known_hosts']}", "-p", str(node["port"])),
            *("-o", "IdentitiesOnly=yes", "-i", str(key)),
            f"alice@{node['host']}",
        ),
        command_environment(),
    )
