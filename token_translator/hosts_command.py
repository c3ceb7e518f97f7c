"""Hosts and their certificates at the terminal, and who asked for an account by a PAM wrapper."""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from pathlib import Path

from headgate.clock import Clock, rfc3339
from headgate.settings import SettingsError
from token_translator import listing
from token_translator.account_requests import AccountRequests
from token_translator.enrolments import NAME, Enrolments
from token_translator.explain import add_ceilings, read
from token_translator.signer.ceilings import Ceilings

MAX_NAMES = 16
MAX_HOURS = 7 * 24

_SENTENCES = {
    "enrol-host": "make a token with which one host gets its first certificate, once",
    "hosts": "list the hosts that are enrolled",
    "forget-host": "renew a host's certificate no more; the one it has ends by itself",
    "account-requests": "list who asked for an account by way of a PAM wrapper",
}
VERBS = frozenset(_SENTENCES)


def add_verbs(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the four verbs to a command's own."""
    for name, sentence in _SENTENCES.items():
        verb = verbs.add_parser(name, help=sentence, description=sentence)
        verb.add_argument("--config", type=Path, default=argparse.SUPPRESS, metavar="FILE")
        if name == "enrol-host":
            verb.add_argument("names", nargs="+", metavar="NAME", help="as clients name it to ssh")
            verb.add_argument("--hours", type=int, default=24, help="how long the token is good")
            add_ceilings(verb)
        elif name == "forget-host":
            verb.add_argument("fingerprint", metavar="SHA256:…", help="as `hosts` says")
        else:
            verb.add_argument("--json", action="store_true")


async def run(
    options: argparse.Namespace,
    enrolments: Enrolments,
    requests: AccountRequests,
    *,
    by: str,
    clock: Clock,
) -> int:
    """Do one of `VERBS` in somebody's name; the exit status.

    Raises:
        SettingsError: a name that is none, a time that is too long.
    """
    match options.verb:
        case "enrol-host":
            _within(read(options.ceilings), options.names, options.ceilings)
            _say(await _enrol(enrolments, options.names, options.hours, by, clock.now()))
        case "forget-host":
            gone = await enrolments.forget(options.fingerprint, by=by, now=clock.now())
            _say("forgotten" if gone else "there is no such host")
            return 0 if gone else 1
        case "hosts":
            found = [
                {
                    "names": host.names,
                    "key": host.fingerprint,
                    "enrolled_by": host.enrolled_by,
                    "enrolled_at": rfc3339(host.enrolled_at),
                    "renewed_at": rfc3339(host.renewed_at),
                }
                for host in await enrolments.all()
            ]
            _show(found, as_json=options.json)
        case _:
            asked = [
                {
                    "iss": request.identity.iss,
                    "sub": request.identity.sub,
                    "realm": request.realm,
                    "asked_at": rfc3339(request.asked_at),
                    "asked_again_at": rfc3339(request.asked_again_at),
                }
                for request in await requests.all()
            ]
            _show(asked, as_json=options.json)
    return 0


def _within(ceilings: Ceilings | str, names: Sequence[str], path: Path) -> None:
    """Refuse a token that the signer would never certify anything for, as far as that is known."""
    if isinstance(ceilings, str):
        words = f"the signer's ceilings were not looked at ({ceilings}): give --ceilings FILE"
        print(f"headgate-tokens: {words}", file=sys.stderr)  # noqa: T201 - the terminal's answer
        return
    for name in names:
        if not any(fnmatchcase(name, pattern) for pattern in ceilings.hostnames):
            allowed = ", ".join(ceilings.hostnames) or "none at all"
            raise SettingsError(
                f"{name}: the signer gives no certificate for this name; `hostnames` in {path} "
                f"allows {allowed}"
            )


async def _enrol(
    enrolments: Enrolments, names: Sequence[str], hours: int, by: str, now: datetime
) -> str:
    for name in names:
        if not NAME.fullmatch(name):
            raise SettingsError(f"{name!r} is not a host's name in small letters")
    if len(names) > MAX_NAMES or not 0 < hours <= MAX_HOURS:
        raise SettingsError(f"at most {MAX_NAMES} names, and {MAX_HOURS} hours")
    return await enrolments.make(names, by=by, now=now, lifetime=timedelta(hours=hours))


def _show(rows: Sequence[Mapping[str, object]], *, as_json: bool) -> None:
    if as_json:
        _say(json.dumps(rows))
        return
    headings = [name.replace("_", " ").upper() for name in rows[0]] if rows else []
    cells = [
        [" ".join(v) if isinstance(v, tuple | list) else str(v) for v in row.values()]
        for row in rows
    ]
    for line in listing.table(headings, cells):
        _say(line)


def _say(words: str) -> None:
    print(words)  # noqa: T201 - the terminal's answer
