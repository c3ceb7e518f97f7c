"""`headgate-gateway doctor`: what the gateway would use, put together and tried once."""

import argparse
import asyncio
import sys
from pathlib import Path

import aiohttp
import msgspec

from gateway.assembly import cluster_of, connector_of, registry_of, signer_of
from gateway.doctor import Doctor, Finding, Level, Patient, lines, refused
from gateway.settings import ClusterSettings, Settings
from gateway.translator import Translator
from headgate.clock import SystemClock
from headgate.oidc import TokenVerifier
from headgate.problems import Forbidden, Problem
from headgate.settings import SettingsError


def options(parser: argparse.ArgumentParser) -> None:
    """What the verb understands."""
    parser.add_argument("--cluster", default="", help="look at this one alone")
    parser.add_argument(
        "--token-file", type=Path, help="a user's token: log in and run a short job as that user"
    )
    parser.add_argument("--user", default="", help="the account that the token has to be of")
    parser.add_argument(
        "--wait", type=float, default=60.0, metavar="SECONDS", help="how long the job may queue"
    )
    parser.add_argument("--json", action="store_true", help="findings as JSON")


def run(settings: Settings, arguments: argparse.Namespace) -> int:
    """Look, print; the exit status is 1 where anything failed."""
    token = ""
    if arguments.token_file is not None:
        try:
            token = arguments.token_file.read_text(encoding="ascii").strip()
        except (OSError, ValueError) as error:
            raise SettingsError(f"{arguments.token_file}: {error}") from error
    findings = asyncio.run(_look(settings, arguments, token))
    if arguments.json:
        document = {"findings": findings}
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(document)).decode() + "\n")
    else:
        sys.stdout.write(lines(findings))
    return int(any(finding.level is Level.FAILED for finding in findings))


async def _look(settings: Settings, arguments: argparse.Namespace, token: str) -> list[Finding]:
    clusters = [c for c in settings.clusters if arguments.cluster in {"", c.name}]
    if not clusters:
        return [Finding(arguments.cluster, "settings", Level.FAILED, "there is no such cluster")]
    findings = []
    async with aiohttp.ClientSession() as http:
        for cluster in clusters:
            findings += await _look_at(settings, cluster, arguments, token, http)
    return findings


async def _look_at(
    settings: Settings,
    cluster: ClusterSettings,
    arguments: argparse.Namespace,
    token: str,
    http: aiohttp.ClientSession,
) -> list[Finding]:
    clock, signer, connector = SystemClock(), signer_of(settings), connector_of(cluster)
    doctor = Doctor(
        cluster=cluster_of(cluster),
        connector=connector,
        translator=Translator(url=settings.token_translator.url, session=http, signer=signer),
        clock=clock,
        wait=arguments.wait,
    )
    registry = registry_of(settings, http, signer, clock)
    verifier = TokenVerifier(
        issuers=settings.issuers, audience=settings.url, session=http, clock=clock
    )
    try:
        patient = None
        if token:
            principal = await verifier.verify(token)
            account = await registry.active_account(principal.identity, cluster.realm)
            if arguments.user not in {"", account.account}:
                raise Forbidden(f"The token is {account.account}'s, not {arguments.user}'s.")
            patient = Patient(account, token)
        await doctor.look(patient)
    except Problem as problem:
        return [refused(cluster.name, problem)]
    finally:
        await connector.close()
    return doctor.findings
