"""Denial at the host's terminal: suspend, resume, holds, revoke; with or without the service."""

import argparse
import base64
import json
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from uuid import UUID

from headgate.clock import rfc3339
from headgate.identity import Identity
from headgate.problems import Problem, Unavailable
from headgate.settings import SettingsError
from token_translator import listing
from token_translator.account_names import Named
from token_translator.holds import EVERYWHERE, Hold
from token_translator.keys import fingerprint
from token_translator.revocations import Revocation
from token_translator.suspending import MAX_SHOWN, Suspended, Suspending
from token_translator.wire import FINGERPRINT, MAX_REVOKED_AT_ONCE, MAX_SERIAL

EX_TEMPFAIL = 75
LATER = "the signer does not answer: the service revokes as soon as it does"
NOTHING = "nothing to revoke: no unexpired certificate has such a serial, or is of this identity"

_SENTENCES = {
    "suspend": "sign nothing more for an identity, revoke what lives, close its connections",
    "resume": "lift a hold: there are new certificates again",
    "holds": "list the holds in force",
    "revoke": "revoke certificates for good: by serial, key, identity or authority",
}
VERBS = frozenset(_SENTENCES)


class Names(Protocol):
    """Where it is asked who somebody is; all methods raise `Unavailable`."""

    async def whose(self, account: str, realm: str = "") -> Sequence[Named]:
        """Everybody who has an account of that name."""

    async def of(self, identity: Identity) -> Sequence[str]:
        """What there is of an identity, in words; empty: nobody knows it."""


@dataclass(frozen=True, slots=True)
class Whoever:
    """Who is at the terminal, and where they are told who is who."""

    by: str
    root: bool
    names: Names


def add_verbs(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the four verbs to a command's own."""
    for name, sentence in _SENTENCES.items():
        verb = verbs.add_parser(name, help=sentence, description=sentence)
        verb.add_argument("--config", type=Path, default=argparse.SUPPRESS, metavar="FILE")
        if name == "resume":
            verb.add_argument("hold", metavar="HOLD", type=_uuid, help="its id, as `holds` says")
            verb.add_argument("--force", action="store_true", help="root's word for another's hold")
            continue
        verb.add_argument("--iss", help="the issuer, exactly")
        verb.add_argument("--sub", help="the subject")
        if name == "holds":
            verb.add_argument("--json", action="store_true")
            continue
        verb.add_argument("--reason", required=True, help="told to the person, kept in the ledger")
        if name == "suspend":
            verb.add_argument("--realm", default=EVERYWHERE, help="this one only")
            words = "instead of --iss and --sub: whose this account is in the registry"
            verb.add_argument("--account", default="", metavar="NAME", help=words)
        else:
            _add_revocable(verb)


def _add_revocable(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "--serial", dest="serials", action="append", default=[], metavar="N[-M]", type=_serials
    )
    verb.add_argument(
        "--key", dest="keys", action="append", default=[], metavar="SHA256:…|FILE", type=_key
    )
    verb.add_argument(
        "--authority",
        type=_fingerprint,
        metavar="SHA256:…",
        help="with all it ever signed",
    )


async def run(options: argparse.Namespace, suspending: Suspending, who: Whoever) -> int:
    """Do one of `VERBS` in somebody's name; the exit status is 75 where something has to wait.

    Raises:
        SettingsError: the words of the command contradict each other.
    """
    try:
        return await _run(options, suspending, who)
    except Problem as problem:
        root_can = problem.stable_code == "not_owner"
        _say(f"headgate-tokens: {problem.detail}{' Root can, with --force.' if root_can else ''}")
        for fault in problem.faults:
            _say(f"  {fault.pointer.removeprefix('/')}: {fault.detail}")
        return EX_TEMPFAIL if isinstance(problem, Unavailable) else 1


async def _run(options: argparse.Namespace, suspending: Suspending, who: Whoever) -> int:
    match options.verb:
        case "suspend":
            return await _suspend(options, suspending, who)
        case "resume":
            if options.force and not who.root:
                raise SettingsError("--force is for root")
            lifted = await suspending.resume(options.hold, by=who.by, force=options.force)
            _say(f"lifted: {_line(lifted)}")
            return 0
        case "holds":
            holds = await suspending.in_force(owner=None, identity=_identity(options))
            _show(holds, as_json=options.json)
            return 0
        case _:
            return await _revoke(options, suspending, who.by)


async def _suspend(options: argparse.Namespace, suspending: Suspending, who: Whoever) -> int:
    identity = _identity(options)
    if bool(identity) == bool(options.account):
        raise SettingsError("name somebody by --iss and --sub, or by --account")
    if identity is None:
        found = {Identity(one.iss, one.sub) for one in await _whose(options, who)}
        if len(found) != 1:
            return _not_one(options.account, sorted(found))
        (identity,) = found
    done = await suspending.suspend(identity, options.realm, reason=options.reason, by=who.by)
    # Denied before anything is asked: whoever is slow to answer holds up no suspension.
    _say(_line(done.hold))
    if done.revoked:
        _say(f"certificates revoked: {done.certificates}")
    await _say_who(identity, done, who.names)
    return 0 if done.revoked else _later()


async def _whose(options: argparse.Namespace, who: Whoever) -> Sequence[Named]:
    return await who.names.whose(options.account, options.realm)


def _not_one(account: str, found: Sequence[Identity]) -> int:
    if not found:
        _complain(f"nobody has the account {account}; see headgate-accounts show")
        return 1
    _complain(f"{account} is the account of {len(found)} people: say whom by --iss and --sub")
    for one in found:
        _complain(f"  --iss {listing.harmless(one.iss)} --sub {listing.harmless(one.sub)}")
    return 1


async def _say_who(identity: Identity, done: Suspended, names: Names) -> None:
    try:
        found = await names.of(identity)
    except Unavailable as problem:
        _complain(f"who that is cannot be said: {problem.detail}")
        return
    for words in found:
        _say(f"account: {words}")
    if not found:
        _complain(
            "WARNING: the registry knows nobody of this subject"
            + ("" if done.certificates else ", and it has no unexpired certificate")
            + f". Is it spelled right? To take it back: headgate-tokens resume {done.hold.id}"
        )


async def _revoke(options: argparse.Namespace, suspending: Suspending, by: str) -> int:
    wanted = Revocation(
        reason=options.reason,
        by=by,
        serials=tuple(serial for serials in options.serials for serial in serials),
        identity=_identity(options),
        keys=tuple(options.keys),
        authority=options.authority or "",
    )
    if len(wanted.serials) > MAX_REVOKED_AT_ONCE:
        raise SettingsError(f"at most {MAX_REVOKED_AT_ONCE} serials at once")
    _, revoked = await suspending.revoke(wanted)
    if revoked is None:
        return _later()
    if revoked.effect == "nothing":
        _say(NOTHING)
        return 1
    done = "was revoked already" if revoked.effect == "already" else "revoked"
    _say(f"{done}, entry {revoked.version} of the ledger: {_what(wanted, len(revoked.serials))}")
    return 0


def _what(wanted: Revocation, certificates: int) -> str:
    """What a revocation was of."""
    keys = len(wanted.keys)
    parts = [f"{keys} key{'' if keys == 1 else 's'}, whatever is certified for it"] * bool(keys)
    parts += ["an authority with all it ever signed"] * bool(wanted.authority)
    if certificates or not parts:
        parts.append(f"{certificates} certificate{'' if certificates == 1 else 's'}")
    return ", ".join(parts)


def _later() -> int:
    _say(LATER)
    return EX_TEMPFAIL


def _identity(options: argparse.Namespace) -> Identity | None:
    if bool(options.iss) != bool(options.sub):
        raise SettingsError("--iss and --sub come together")
    return Identity(options.iss, options.sub) if options.iss else None


def _show(holds: Sequence[Hold], *, as_json: bool) -> None:
    if not as_json:
        headings = ("HOLD", "WHO", "REALM", "BY", "SINCE", "REASON")
        for line in listing.table(headings, [_cells(hold) for hold in holds]):
            _say(line)
        if len(holds) == MAX_SHOWN:
            _say(f"(the newest {MAX_SHOWN}; ask for one with --iss and --sub)")
        return
    documents = [
        {
            "id": str(hold.id),
            "iss": hold.identity.iss,
            "sub": hold.identity.sub,
            "realm": hold.realm,
            "owner": hold.owner,
            "reason": hold.reason,
            "created_at": rfc3339(hold.created_at),
        }
        for hold in holds
    ]
    _say(json.dumps({"holds": documents}))


def _cells(hold: Hold) -> tuple[str, ...]:
    realm, since = hold.realm or "(all)", rfc3339(hold.created_at)
    return (str(hold.id), str(hold.identity), realm, hold.owner, since, hold.reason)


def _line(hold: Hold) -> str:
    where = hold.realm or "all realms"
    since = rfc3339(hold.created_at)
    words = f"{hold.identity} in {where}, by {hold.owner} since {since}: {hold.reason}"
    return f"{hold.id}  {listing.harmless(words)}"


def _uuid(word: str) -> UUID:
    try:
        return UUID(word)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{word[:40]!r} is no hold's id; `headgate-tokens holds` lists them"
        ) from None


def _serials(word: str) -> range:
    numbers = re.fullmatch(r"([0-9]{1,19})(?:-([0-9]{1,19}))?", word)
    first, last = (int(numbers[1]), int(numbers[2] or numbers[1])) if numbers else (0, 0)
    if not 1 <= first <= last <= MAX_SERIAL:
        raise argparse.ArgumentTypeError(
            f"{word[:40]!r} is no serial, and no range of serials such as 10-20"
        )
    if last - first >= MAX_REVOKED_AT_ONCE:
        raise argparse.ArgumentTypeError(f"at most {MAX_REVOKED_AT_ONCE} serials at once")
    return range(first, last + 1)


def _fingerprint(word: str) -> str:
    if not re.fullmatch(FINGERPRINT, word):
        raise argparse.ArgumentTypeError(
            f"{word[:60]!r} is no fingerprint: SHA256: and 43 characters, as ssh-keygen -l shows it"
        )
    return word


def _key(word: str) -> str:
    """A fingerprint as it is, that of a public key's file otherwise."""
    if word.startswith("SHA256:"):
        return _fingerprint(word)
    try:
        # Not `accept`: a key too weak to be certified is one to be revoked.
        blob = Path(word).read_bytes().split()[1]
        return fingerprint(base64.b64decode(blob, validate=True))
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{word}: {error.strerror}") from error
    except (IndexError, ValueError) as error:
        raise argparse.ArgumentTypeError(f"{word}: not a public key's file") from error


def _complain(line: str) -> None:
    print(line, file=sys.stderr)  # noqa: T201 - the terminal's answer


def _say(line: str) -> None:
    print(line)  # noqa: T201 - the terminal's answer
