"""The site's authorities: opened where their keys are, apart for users and hosts, and on record."""

import contextlib
import json
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, insert, select, update

from headgate.identity import Identity
from headgate.settings import SettingsError
from token_translator.keys import fingerprint
from token_translator.signer import revocations, signatures
from token_translator.signer.authority import Authority, AuthorityError, FileAuthority, public_line
from token_translator.signer.ceilings import MAX_HOST_LIFETIME
from token_translator.signer.entries import Record
from token_translator.signer.ledger import Writing
from token_translator.signer.settings import AgentKey, Key, SignerSettings, TokenKey
from token_translator.signer.tables import AUTHORITIES, LEDGER

if TYPE_CHECKING:
    from token_translator.signer.pkcs11 import Token

USER = "user"
HOST = "host"


@dataclass(frozen=True, slots=True)
class Authorities:
    """The keys that sign and are trusted now; the first of each kind signs."""

    user: Sequence[Authority]
    host: Sequence[Authority]

    def each(self) -> list[tuple[str, str, Authority]]:
        """Role, state (`signs` or `trusted`) and key of each."""
        return [
            (role, "trusted" if position else "signs", authority)
            for role, some in ((USER, self.user), (HOST, self.host))
            for position, authority in enumerate(some)
        ]

    def present(self) -> dict[str, tuple[str, str]]:
        """Role and line of each, by fingerprint."""
        return {fingerprint(one.blob): (role, public_line(one)) for role, _, one in self.each()}


@contextlib.asynccontextmanager
async def opened(settings: SignerSettings) -> AsyncIterator[Authorities]:
    """The authorities of the settings, each proved by a signature, closed at the end.

    Raises:
        SettingsError: a key is not there, does not sign, or is named for both users and hosts.
    """
    async with contextlib.AsyncExitStack() as stack:
        tokens: dict[tuple[str, str, str], Token] = {}

        async def open_one(key: Key) -> Authority:
            authority = await _open(key, tokens, stack)
            stack.push_async_callback(authority.close)
            await _prove(authority)
            return authority

        found = Authorities(
            user=[await open_one(key) for key in settings.user_ca],
            host=[await open_one(key) for key in settings.host_ca],
        )
        blobs = [authority.blob for _, _, authority in found.each()]
        if {one.blob for one in found.user} & {one.blob for one in found.host}:
            raise SettingsError("user_ca and host_ca share a key")
        if len(set(blobs)) != len(blobs):
            raise SettingsError("user_ca or host_ca names a key twice")
        yield found


def register(writing: Writing, authorities: Authorities, *, by: Identity) -> None:
    """Record each authority that is new, has changed its part, or is no longer there.

    Raises:
        SettingsError: a key was once the other kind's, or is revoked.
    """
    known = {row.fingerprint: row for row in writing.connection.execute(select(AUTHORITIES))}
    present = {fingerprint(one.blob): (role, state, one) for role, state, one in authorities.each()}
    for name, (role, state, authority) in present.items():
        before = known.get(name)
        if before is None:
            line = public_line(authority)
            _record(writing, by, name, role, state, line=line)
            values = {"fingerprint": name, "role": role, "state": state, "line": line}
            writing.connection.execute(insert(AUTHORITIES).values(**values))
            continue
        if before.role != role:
            raise SettingsError(f"{name} was the authority of {before.role} certificates")
        if before.revoked is not None:
            raise SettingsError(f"{name} is revoked: no certificate of it is accepted")
        if before.state != state:
            _set_state(writing, by, name, role, state)
    for name, row in known.items():
        if name not in present and row.state != "retired":
            _set_state(writing, by, name, row.role, "retired")
    _prolong_retired(writing)


def apply(connection: Connection, document: Mapping[str, Any]) -> None:
    """Keep what an entry that was put back says of an authority, if its key is known at all."""
    name, retired = document["ca"], document["state"] == "retired"
    # Counted exactly at the next start.
    until = int(datetime.fromisoformat(document["at"]).timestamp()) + MAX_HOST_LIFETIME
    values = {"state": document["state"], "last_expires": until if retired else None}
    changed = update(AUTHORITIES).where(AUTHORITIES.c.fingerprint == name)
    if not connection.execute(changed.values(**values)).rowcount and "line" in document:
        known = {"fingerprint": name, "role": document["role"], "line": document["line"]}
        connection.execute(insert(AUTHORITIES).values(**known, **values))


def certifying(
    connection: Connection, now: datetime, present: Mapping[str, tuple[str, str]]
) -> list[str]:
    """The lines of those whose certificates may be accepted by somebody, but for revoked ones.

    A retired one is among them until the last certificate that it may have signed has expired.
    Those that are `present` (role and line by fingerprint) always are: we need not believe the
    table.
    """
    expired = revocations.expired(now)
    found = dict(present)
    for row in connection.execute(select(AUTHORITIES)):
        counts = row.state != "retired" or (row.last_expires or 0) > expired
        if row.revoked is not None:
            found.pop(row.fingerprint, None)
        elif counts and row.fingerprint not in found:
            found[row.fingerprint] = (row.role, row.line)
    # Users' first, and so on all signers.
    ordered = sorted(found.items(), key=lambda one: (one[1][0] == HOST, one[0]))
    return [line for _, (_, line) in ordered]


def lines(connection: Connection) -> list[Any]:
    """Every authority there ever was: fingerprint, role, line, state, revoked (entry or None)."""
    return list(connection.execute(select(AUTHORITIES).order_by(AUTHORITIES.c.role.desc())))


async def _open(
    key: Key, tokens: dict[tuple[str, str, str], "Token"], stack: contextlib.AsyncExitStack
) -> Authority:
    if isinstance(key, AgentKey):
        # Late: the process that holds keys loads what speaks SSH only where it needs it.
        from token_translator.signer.agent import AgentAuthority  # noqa: PLC0415 - said above

        return await AgentAuthority.connect(Path(key.socket), key.fingerprint)
    if isinstance(key, TokenKey):
        name = (key.module, key.token, key.pin_file)
        if name not in tokens:
            tokens[name] = _token(key)
            stack.push_async_callback(tokens[name].close)
        return await tokens[name].authority(key.label)
    return FileAuthority.load(Path(key))


def _token(key: TokenKey) -> "Token":
    try:
        from token_translator.signer.pkcs11 import Token  # noqa: PLC0415 - an extra of its own
    except ImportError as error:
        raise SettingsError("a pkcs11 key needs the extra: pip install headgate[pkcs11]") from error
    return Token(Path(key.module), key.token, Path(key.pin_file))


async def _prove(authority: Authority) -> None:
    data = secrets.token_bytes(32)
    try:
        signature = await authority.sign(data)
        signatures.verify(signatures.load(authority.blob), data, signature)
    except (AuthorityError, signatures.SignatureError) as error:
        raise SettingsError(f"the key {authority.comment} does not sign: {error}") from error


def _set_state(writing: Writing, by: Identity, name: str, role: str, state: str) -> None:
    _record(writing, by, name, role, state)
    # Long enough to be looked at by `_prolong_retired`.
    last = int(writing.now.timestamp()) if state == "retired" else None
    changed = update(AUTHORITIES).where(AUTHORITIES.c.fingerprint == name)
    writing.connection.execute(changed.values(state=state, last_expires=last))


def _prolong_retired(writing: Writing) -> None:
    """Of retired authorities that still count: until the last certificate of theirs has expired.

    Another signer on this ledger may have had one for longer; it comes by here when it restarts.
    """
    expired = revocations.expired(writing.now)
    connection = writing.connection
    counts = select(AUTHORITIES.c.fingerprint).where(AUTHORITIES.c.last_expires > expired)
    retired = list(connection.scalars(counts))
    if not retired:
        return
    writing.flush()
    last: dict[str, int] = {}
    unexpired = select(LEDGER.c.entry, LEDGER.c.valid_before).where(LEDGER.c.valid_before > expired)
    for row in connection.execute(unexpired):
        # Nobody knows by which authority what a restore lost was signed.
        ca = json.loads(row.entry).get("ca", "")
        last[ca] = max(last.get(ca, 0), row.valid_before)
    for name in retired:
        changed = update(AUTHORITIES).where(AUTHORITIES.c.fingerprint == name)
        until = max(last.get(name, 0), last.get("", 0))
        connection.execute(changed.values(last_expires=until))


def _record(writing: Writing, by: Identity, name: str, role: str, state: str, **more: str) -> None:
    public = {"ca": name, "role": role, "state": state, **more}
    writing.append(Record("authority", by, public, {"by": by.sub}))
