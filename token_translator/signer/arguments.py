"""The command line of `headgate-signer`."""

import argparse
import base64
import re
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from headgate.identity import Identity
from token_translator.keys import MAX_LINE, fingerprint
from token_translator.signer import commands
from token_translator.signer.revocations import Wanted
from token_translator.signer.search import Sought
from token_translator.signer.signatures import string
from token_translator.starting import FOLDER
from token_translator.wire import FINGERPRINT, MAX_REASON, MAX_SERIAL

Parser = argparse.ArgumentParser
_FORMS = "SHA256:… (as ssh-keygen -l shows it), a public key's line, or its file"
_VERBS = (
    ("serve", "answer on the socket until told to stop"),
    ("init", "make the authority keys, the index key and the tables; touches nothing existing"),
    ("migrate", "bring the tables to this version"),
    ("check-config", "print what was understood"),
    ("authorities", "list the authorities, and what is signed by each"),
    ("revoke", "revoke certificates, keys or an authority, for good"),
    ("reconcile", "after a restore from a backup: put back and revoke what was lost"),
    ("verify", "walk the ledger's chain (as `ledger verify`)"),
)
_LEDGER = (
    ("verify", "walk the chain, and hold a copy against it"),
    ("search", "print the entries that are sought"),
    ("erase", "delete a person's key: what the ledger says of them is noise from then on"),
    ("retain", "delete entries older than retention_days"),
)


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The options of a command; one that says nothing sensible ends here, with status 2."""
    options = parser().parse_args(argv)
    if options.verb == "revoke":
        named = (options.serial, options.key, options.user, options.authority)
        if not any(named):
            options.complain("name a serial, a key, a user or an authority")
    return options


def parser() -> Parser:
    """All verbs and their options; `verb` is `ledger …` for those of the ledger."""
    whole = Parser(prog="headgate-signer", description=__doc__)
    whole.add_argument("--config", type=Path, default=FOLDER / "signer.toml", metavar="FILE")
    verbs = whole.add_subparsers(dest="verb", required=True)
    for name, sentence in _VERBS:
        _options(_verb(verbs, name, name, sentence), name)
    sentence = "look into the ledger, and forget what is to be forgotten"
    ledger = verbs.add_parser("ledger", help=sentence, description=sentence)
    under = ledger.add_subparsers(required=True)
    for name, sentence in _LEDGER:
        _options(_verb(under, name, f"ledger {name}", sentence), name)
    return whole


def identity(options: argparse.Namespace) -> Identity:
    """The identity of `erase`."""
    return Identity(*options.user)


def sought(options: argparse.Namespace) -> Sought:
    """What `search` looks for."""
    return Sought(
        identity=Identity(*options.user) if options.user else None,
        serial=options.serial,
        key=options.key or "",
        row=options.row,
        account=options.account,
        since=options.since,
        until=options.until,
    )


def wanted(options: argparse.Namespace, by: Identity) -> Wanted:
    """What `revoke` revokes."""
    return Wanted(
        reason=options.reason,
        by=by,
        serials=options.serial,
        identity=Identity(*options.user) if options.user else None,
        keys=options.key,
        authority=options.authority or "",
        active_too=options.active,
        here=True,
    )


def _verb(
    verbs: "argparse._SubParsersAction[Parser]", name: str, whole_name: str, sentence: str
) -> Parser:
    verb = verbs.add_parser(name, help=sentence, description=sentence)
    verb.add_argument("--config", type=Path, default=argparse.SUPPRESS, metavar="FILE")
    verb.set_defaults(verb=whole_name)
    return verb


def _options(verb: Parser, name: str) -> None:
    if name not in {"serve", "init", "migrate", "check-config"}:
        verb.add_argument("--json", action="store_true", help="as JSON, an object a line")
    match name:
        case "verify" | "reconcile":
            verb.add_argument(
                "--copy", type=Path, metavar="FILE", help="what the syslog server kept"
            )
        case "erase":
            _user(verb, required=True)
        case "search":
            _search(verb)
        case "revoke":
            _revoke(verb)
    if name == "reconcile":
        verb.add_argument(
            "--serial", type=_serial, default=0, help="the highest that was seen anywhere"
        )
        verb.add_argument(
            "--list-version",
            type=_serial,
            default=0,
            metavar="N",
            help="the highest of a revocation list that was seen anywhere (ssh-keygen -Q -l -f …)",
        )


def _search(verb: Parser) -> None:
    _user(verb, required=False)
    verb.add_argument("--serial", type=int)
    verb.add_argument("--key", type=_key, metavar="KEY", help=f"certified: {_FORMS}")
    verb.add_argument("--row", default="", metavar="UUID", help="of a job")
    verb.add_argument("--account", default="", metavar="NAME", help="that it was signed for")
    for name in ("--since", "--until"):
        verb.add_argument(name, type=_moment, metavar="TIME", help="RFC 3339, or a date")


def _revoke(verb: Parser) -> None:
    _user(verb, required=False)
    verb.add_argument("--serial", type=_serial, action="append", default=[])
    verb.add_argument(
        "--key",
        type=_key,
        action="append",
        default=[],
        metavar="KEY",
        help=f"of a person: {_FORMS}",
    )
    verb.add_argument("--authority", type=_key, metavar="KEY", help=_FORMS)
    verb.add_argument("--active", action="store_true", help="also an authority that is in use")
    verb.add_argument("--reason", type=_reason, required=True)
    verb.set_defaults(complain=verb.error)


def _key(word: str) -> str:
    """The fingerprint of a key, however it is named."""
    if re.fullmatch(FINGERPRINT, word):
        return word
    line = word
    if len(word.split()) == 1 and Path(word).is_file():
        with Path(word).open(encoding="utf-8", errors="replace") as file:
            line = file.read(MAX_LINE)
    try:
        kind, encoded = line.split()[:2]
        blob = base64.b64decode(encoded, validate=True)
    except ValueError:
        kind, blob = "", b""
    # Whatever its type: what gets no certificate any more can be revoked all the same.
    if not kind or "-cert-" in kind or not blob.startswith(string(kind.encode())):
        raise argparse.ArgumentTypeError(f"not a public key: {word[:40]!r}; {_FORMS}")
    return fingerprint(blob)


def _serial(word: str) -> int:
    if not re.fullmatch(r"[0-9]{1,19}", word) or not 1 <= int(word) <= MAX_SERIAL:
        raise argparse.ArgumentTypeError(f"not a serial: {word[:40]!r}")
    return int(word)


def _moment(word: str) -> datetime:
    try:
        return commands.moment(word)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"not a time: {word[:40]!r}; it is 2026-11-21, or 2026-11-21T18:00:00Z"
        ) from None


def _reason(word: str) -> str:
    if not 1 <= len(word) <= MAX_REASON:
        raise argparse.ArgumentTypeError(f"from 1 to {MAX_REASON} characters")
    return word


def _user(verb: Parser, *, required: bool) -> None:
    verb.add_argument("--user", nargs=2, required=required, metavar=("ISS", "SUB"))
