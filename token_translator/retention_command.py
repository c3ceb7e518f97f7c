"""Forgetting at the host's terminal: what is old, from a timer; one person, by hand."""

import argparse
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

from sqlalchemy.ext.asyncio import AsyncEngine

from headgate.clock import Clock
from headgate.identity import Identity
from token_translator.retention import erase, retain

_SENTENCES = {
    "retain": "delete what is older than retention_days, and what has expired",
    "erase": "delete what this database keeps of a person; the ledger is the signer's",
}
VERBS = frozenset(_SENTENCES)


def add_verbs(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the two verbs to a command's own."""
    for name, sentence in _SENTENCES.items():
        verb = verbs.add_parser(name, help=sentence, description=sentence)
        verb.add_argument("--config", type=Path, default=argparse.SUPPRESS, metavar="FILE")
        if name == "erase":
            verb.add_argument("--iss", required=True, help="the issuer, exactly")
            verb.add_argument("--sub", required=True, help="the subject")


async def run(
    options: argparse.Namespace,
    engine: AsyncEngine,
    *,
    age: timedelta,
    seal_max_age: timedelta,
    clock: Clock,
) -> int:
    """Do one of `VERBS`; the exit status is 1 where a hold in force keeps a person known."""
    if options.verb == "retain":
        _say(await retain(engine, now=clock.now(), age=age, seal_max_age=seal_max_age))
        return 0
    removed, holds = await erase(engine, Identity(options.iss, options.sub))
    _say(removed)
    if holds:
        print(f"{holds} holds in force stay: lift them with `headgate-tokens resume` first")  # noqa: T201 - the answer
        return 1
    print("the ledger is left: headgate-signer ledger erase")  # noqa: T201 - what is to be done next
    return 0


def _say(removed: Mapping[str, int]) -> None:
    told = ", ".join(f"{name} {number}" for name, number in sorted(removed.items()) if number)
    print(f"removed: {told or 'nothing'}")  # noqa: T201 - the answer
