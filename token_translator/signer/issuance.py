"""What the ledger is told of each request: issued or refused, for whom, by which authority."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from sqlalchemy import insert, select

from headgate.identity import Identity
from token_translator import wire
from token_translator.grants import SFTP_COMMAND
from token_translator.keys import KeyRefusedError, PublicKey
from token_translator.signer.ceilings import CeilingError
from token_translator.signer.entries import Entry, Record
from token_translator.signer.ledger import DeclinedError, TooLongError, Writing
from token_translator.signer.tables import HOST_KEYS

USER_PROFILES = frozenset({"person", "session", "sealed"})
HOST_PROFILES = frozenset({"host"})
MOST_KEPT = 8
LONGEST_KEPT = 255
"""Of a list, and in characters: what was refused may be anything, its entry stays short."""

Refusal = Callable[[str, str], Record]
"""Makes the record of a refusal, of its code and its words."""


class HostKeyError(DeclinedError, KeyRefusedError):
    """A host's key, for which somebody wants a user certificate."""


class RevokedKeyError(DeclinedError, KeyRefusedError):
    """A revoked key: whoever brings it may be who stole it, and not every host has the list."""


def identity(subject: wire.Subject) -> Identity:
    """Whom an entry is about; a service that asks for itself is its instance."""
    if subject.sub:
        return Identity(subject.iss, subject.sub)
    return Identity("", f"peer:{subject.instance}")


def require_profile(request: wire.Sign) -> None:
    """Return if a certificate does what its profile says: the ledger tells only the truth.

    Raises:
        CeilingError: it does something else.
    """
    command = request.grant.force_command
    if not command or command == SFTP_COMMAND:
        profile = "person"
    else:
        profile = "sealed" if " --only " in command else "session"
    if request.subject.profile != profile:
        raise CeilingError(f"a certificate of the profile {profile} that is said to be another's")


def issued_user(request: wire.Sign, key: PublicKey, ca: str) -> Record:
    """The record of a user certificate."""
    return Record(
        kind="issued",
        identity=identity(request.subject),
        public={**_about_user(request), "ca": ca},
        personal={**_personal_user(request), "public_key": key.fingerprint},
        valid_before=int(request.grant.valid_before.timestamp()),
    )


def refused_user(request: wire.Sign, code: str, detail: str) -> Record:
    """The record of a user certificate that was refused."""
    public = {**_about_user(request), "code": code, "detail": detail}
    return Record("refused", identity(request.subject), public, _cut(_personal_user(request)))


def issued_host(request: wire.SignHost, key: PublicKey, ca: str) -> Record:
    """The record of a host certificate; a host's name and key are nobody's personal fields."""
    return Record(
        kind="issued",
        identity=identity(request.subject),
        public={**_about_host(request), "ca": ca, "key": key.fingerprint},
        personal={**msgspec.to_builtins(request.subject), "key_id": request.key_id},
        valid_before=int(request.valid_before.timestamp()),
    )


def refused_host(request: wire.SignHost, code: str, detail: str) -> Record:
    """The record of a host certificate that was refused."""
    personal = {**msgspec.to_builtins(request.subject), "key_id": request.key_id}
    public = {**_about_host(request), "code": code, "detail": detail}
    # What was asked for may be anything: it is kept out of what is in clear.
    names = public.pop("hostnames")
    personal = _cut({**personal, "hostnames": names})
    return Record("refused", identity(request.subject), public, personal)


def refused_by_policy(request: wire.Refuse, more: int) -> Record:
    """The record of a refusal that the asking process decided; `more` were not recorded before."""
    public: dict[str, Any] = {"profile": request.subject.profile[:32], "code": request.code}
    if more:
        public["suppressed"] = more
    personal = msgspec.to_builtins(request.subject)
    return Record("refused", identity(request.subject), public, personal)


def issue_to_user(writing: Writing, *, record: Record, key: PublicKey, refused: Refusal) -> int:
    """Append a user certificate's entry; its serial.

    Raises:
        RevokedKeyError, HostKeyError: the key is revoked, or a host's; the refusal is recorded.
    """
    _require_unrevoked(writing, key, refused)
    if key.fingerprint in writing.host_keys:
        raise _recorded(writing, HostKeyError("This is the key of a host of this site."), refused)
    return _appended(writing, record, refused).serial or 0


def issue_to_host(writing: Writing, *, record: Record, key: PublicKey, refused: Refusal) -> int:
    """Append a host certificate's entry, and remember its key as a host's; its serial.

    Raises:
        RevokedKeyError: the key is revoked; the refusal is recorded.
    """
    _require_unrevoked(writing, key, refused)
    entry = _appended(writing, record, refused)
    keep_host_key(writing, entry.seq, key.fingerprint)
    return entry.serial or 0


def keep_host_key(writing: Writing, seq: int, fingerprint: str) -> None:
    """Remember a host's key; that of a certificate renewed is there already."""
    writing.host_keys.add(fingerprint)
    known = select(HOST_KEYS.c.seq).where(HOST_KEYS.c.fingerprint == fingerprint)
    if writing.connection.execute(known).first() is None:
        writing.connection.execute(insert(HOST_KEYS).values(fingerprint=fingerprint, seq=seq))


def _appended(writing: Writing, record: Record, refused: Refusal) -> Entry:
    try:
        return writing.append(record)
    except TooLongError as error:
        writing.append(refused("ceiling", str(error)))
        raise


def _require_unrevoked(writing: Writing, key: PublicKey, refused: Refusal) -> None:
    if key.fingerprint in writing.revoked_keys:
        raise _recorded(writing, RevokedKeyError("this key was revoked; make a new one"), refused)


def _recorded(writing: Writing, error: KeyRefusedError, refused: Refusal) -> KeyRefusedError:
    writing.append(refused("key_refused", str(error)))
    return error


def _cut(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields with no more of each than is kept, and how much more there was of a list."""
    kept: dict[str, Any] = {}
    for name, value in fields.items():
        if isinstance(value, str):
            kept[name] = value if name == "iss" else value[:LONGEST_KEPT]
            continue
        kept[name] = [one[:LONGEST_KEPT] for one in value[:MOST_KEPT]]
        if len(value) > MOST_KEPT:
            kept[f"{name}_more"] = len(value) - MOST_KEPT
    return kept


def _about_user(request: wire.Sign) -> dict[str, Any]:
    grant = msgspec.to_builtins(request.grant)
    return {
        "profile": request.subject.profile[:32],
        "valid_after": grant["valid_after"],
        "valid_before": grant["valid_before"],
    }


def _personal_user(request: wire.Sign) -> dict[str, Any]:
    grant = msgspec.to_builtins(request.grant)
    del grant["valid_after"], grant["valid_before"]
    return {**msgspec.to_builtins(request.subject), **grant, "key_id": request.key_id}


def _about_host(request: wire.SignHost) -> dict[str, Any]:
    moments = msgspec.to_builtins((request.valid_after, request.valid_before))
    return {
        "profile": "host",
        "hostnames": request.hostnames,
        "valid_after": moments[0],
        "valid_before": moments[1],
    }
