"""The words of `headgate-tokens`: its verbs and their options."""

import argparse
from pathlib import Path

from token_translator import (
    holds_command,
    hosts_command,
    reconcile_command,
    retention_command,
    services_command,
)
from token_translator.explain import add_ceilings
from token_translator.grants import Profile
from token_translator.nodes import command as node_setup
from token_translator.starting import FOLDER


def parser(description: str) -> argparse.ArgumentParser:
    """What reads the command line."""
    command = argparse.ArgumentParser(prog="headgate-tokens", description=description)
    command.add_argument("--config", type=Path, default=FOLDER / "tokens.toml", metavar="FILE")
    verbs = command.add_subparsers(dest="verb", required=True)
    for name, sentence in (
        ("serve", "answer HTTP until told to stop"),
        ("migrate", "bring the database's tables to this version"),
        ("check-config", "print what was understood, and say what cannot work"),
        ("explain", "say what a token would get, and why"),
    ):
        verb = verbs.add_parser(name, help=sentence, description=sentence)
        verb.add_argument("--config", type=Path, default=argparse.SUPPRESS, metavar="FILE")
        if name == "explain":
            verb.add_argument("--token-file", type=Path, required=True, metavar="FILE")
            verb.add_argument("--json", action="store_true", help="as one JSON object")
            verb.add_argument("--profile", choices=list(Profile), default=Profile.PERSON)
            verb.add_argument("--realm", help="the first one unless said")
            verb.add_argument(
                "--public-key",
                "--key-file",
                dest="key_file",
                type=Path,
                metavar="FILE",
                help="the key that would be certified, a .pub",
            )
        if name in {"explain", "check-config"}:
            add_ceilings(verb)
    holds_command.add_verbs(verbs)
    hosts_command.add_verbs(verbs)
    services_command.add_verbs(verbs)
    retention_command.add_verbs(verbs)
    reconcile_command.add_verbs(verbs)
    sentence = "print what a login node is given, or prove on one that it is so"
    node_setup.add_arguments(verbs.add_parser("node-setup", help=sentence, description=sentence))
    return command
