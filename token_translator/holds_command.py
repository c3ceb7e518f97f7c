"""Denial at the host's terminal: suspend, resume, holds, revoke; with or without the service."""

import argparse
import base64
import json
from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

from headgate.clock import rfc3339
from headgate.identity import Identity
from headgate.problems import Problem, Unavailable
from headgate.settings import SettingsError
from token_translator.holds import EVERYWHERE, Hold
from token_translator.keys import fingerprint
from token_translator.revocations import Revocation
from token_translator.suspending import MAX_SHOWN, Suspending
from token_translator.wire import MAX_REVOKED_AT_ONCE, MAX_SERIAL

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


def add_verbs(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the four verbs to a command's own."""
    for name, sentence in _SENTENCES.items():
        verb = verbs.add_parser(name, help=sentence, description=sentence)
        verb.add_argument("--config", type=Path, default=argparse.SUPPRESS, metavar="FILE")
        if name == "resume":
            verb.add_argument("hold", metavar="HOLD", type=_uuid, help="its id, as `holds` says")
            verb.add_argument("--force", action="store_true", help="root's word for another's hold")
            continue
        verb.add_argument("--iss", required=name == "suspend", help="the issuer, exactly")
        verb.add_argument("--sub", required=name == "suspend", help="the subject")
        if name == "holds":
            verb.add_argument("--json", action="store_true")
            continue
        verb.add_argument("--reason", required=True, help="told to the person, kept in the ledger")
        if name == "suspend":
            verb.add_argument("--realm", default=EVERYWHERE, help="this one only")
        else:
            _add_revocable(verb)


def _add_revocable(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "--serial", dest="serials", action="append", default=[], metavar="N[-M]", type=_serials
    )
    verb.add_argument(
        "--key", dest="keys", action="append", default=[], metavar="SHA256:…|FILE", type=_key
    )
    verb.add_argument("--authority", default="", metavar="SHA256:…", help="with all it ever signed")


async def run(options: argparse.Namespace, suspending: Suspending, *, by: str, root: bool) -> int:
    """Do one of `VERBS` in somebody's name; the exit status is 75 where something has to wait.

    Raises:
        SettingsError: the words of the command contradict each other.
    """
    try:
        return await _run(options, suspending, by=by, root=root)
    except Problem as problem:
        _say(f"headgate-tokens: {problem.detail}")
        for fault in problem.faults:
            _say(f"  {fault.pointer.removeprefix('/')}: {fault.detail}")
        return EX_TEMPFAIL if isinstance(problem, Unavailable) else 1


async def _run(options: argparse.Namespace, suspending: Suspending, *, by: str, root: bool) -> int:
    match options.verb:
        case "suspend":
            identity = Identity(options.iss, options.sub)
            done = await suspending.suspend(identity, options.realm, reason=options.reason, by=by)
            _say(_line(done.hold))
            return 0 if done.revoked else _later()
        case "resume":
            if options.force and not root:
                raise SettingsError("--force is for root")
            lifted = await suspending.resume(options.hold, by=by, force=options.force)
            _say(f"lifted: {_line(lifted)}")
            return 0
        case "holds":
            holds = await suspending.in_force(owner=None, identity=_identity(options))
            _show(holds, as_json=options.json)
            return 0
        case _:
            return await _revoke(options, suspending, by)


async def _revoke(options: argparse.Namespace, suspending: Suspending, by: str) -> int:
    wanted = Revocation(
        reason=options.reason,
        by=by,
        serials=tuple(serial for serials in options.serials for serial in serials),
        identity=_identity(options),
        keys=tuple(options.keys),
        authority=options.authority,
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
    _say(f"{done}, entry {revoked.version} of the ledger; serials: {len(revoked.serials)}")
    return 0


def _later() -> int:
    _say(LATER)
    return EX_TEMPFAIL


def _identity(options: argparse.Namespace) -> Identity | None:
    if bool(options.iss) != bool(options.sub):
        raise SettingsError("--iss and --sub come together")
    return Identity(options.iss, options.sub) if options.iss else None


def _show(holds: Sequence[Hold], *, as_json: bool) -> None:
    if not as_json:
        for hold in holds:
            _say(_line(hold))
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


def _line(hold: Hold) -> str:
    where = hold.realm or "all realms"
    since = rfc3339(hold.created_at)
    return f"{hold.id}  {hold.identity} in {where}, by {hold.owner} since {since}: {hold.reason}"


def _uuid(word: str) -> UUID:
    return UUID(word)


def _serials(word: str) -> range:
    first, _, last = word.partition("-")
    found = range(int(first), int(last or first) + 1)
    if not found or found[0] < 1 or found[-1] > MAX_SERIAL or len(found) > MAX_REVOKED_AT_ONCE:
        raise ValueError(word)
    return found


def _key(word: str) -> str:
    """A fingerprint as it is, that of a public key's file otherwise."""
    if word.startswith("SHA256:"):
        return word
    try:
        # Not `accept`: a key too weak to be certified is one to be revoked.
        blob = Path(word).read_bytes().split()[1]
        return fingerprint(base64.b64decode(blob, validate=True))
    except (OSError, IndexError, ValueError) as error:
        raise argparse.ArgumentTypeError(f"{word}: no public key: {error}") from error


def _say(line: str) -> None:
    print(line)  # noqa: T201 - the terminal's answer
