"""Which hosts may have a certificate: one-time enrolment tokens, and the keys that used one."""

import base64
import hashlib
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

from sqlalchemy import Row, delete, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from headgate.problems import Conflict, Unauthenticated
from token_translator import note_store, notes
from token_translator.database import READ_ONLY, answering
from token_translator.notes import Note
from token_translator.tables import HOST_ENROLMENTS, HOSTS

PREFIX = "hgenrol-"
_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
NAME = re.compile(rf"(?=.{{1,253}}\Z){_LABEL}(?:\.{_LABEL})*|[0-9a-f:]{{2,39}}")
"""A host's name in small letters, or an address."""
ISSUER = "urn:headgate:hosts"
"""Whose subjects the hosts are in the ledger."""
_TOKEN_BYTES = 20


@dataclass(frozen=True, slots=True)
class Host:
    """A host key that has, or had, a certificate; by whom it was enrolled, as holds name people."""

    fingerprint: str
    names: tuple[str, ...]
    enrolled_by: str
    enrolled_at: datetime
    renewed_at: datetime


class Enrolments:
    """Kept in the database; a token is stored hashed, and is gone with its first use."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        self._reader = engine.execution_options(**READ_ONLY)

    async def make(
        self, names: Sequence[str], *, by: str, now: datetime, lifetime: timedelta
    ) -> str:
        """A token that enrols one host key under these names, once."""
        random = base64.b32encode(secrets.token_bytes(_TOKEN_BYTES)).decode().lower()
        token = f"{PREFIX}{random}"
        row = {
            "digest": _digest(token),
            "names": " ".join(names),
            "made_by": by,
            "expires_at": int((now + lifetime).timestamp()),
        }
        async with self._engine.begin() as connection:
            expired = HOST_ENROLMENTS.c.expires_at <= int(now.timestamp())
            await connection.execute(delete(HOST_ENROLMENTS).where(expired))
            await connection.execute(insert(HOST_ENROLMENTS), row)
        return token

    async def redeem(self, token: str, fingerprint: str, now: datetime) -> Host:
        """Enrol a key with a token, which is used up by that; committed before this returns.

        Raises:
            Unauthenticated: `enrolment_unknown`: no such token, used, or expired.
            Conflict: `host_enrolled`: the key is another host's; the token is not used up.
            Unavailable: the database is away.
        """
        taken = (
            delete(HOST_ENROLMENTS)
            .where(HOST_ENROLMENTS.c.digest == _digest(token))
            .returning(
                HOST_ENROLMENTS.c.names, HOST_ENROLMENTS.c.made_by, HOST_ENROLMENTS.c.expires_at
            )
        )
        async with answering(), self._engine.begin() as connection:
            found = (await connection.execute(taken)).first()
            if found is not None and found.expires_at > now.timestamp():
                moment = int(now.timestamp())
                row = {
                    "fingerprint": fingerprint,
                    "names": found.names,
                    "enrolled_by": found.made_by,
                    "enrolled_at": moment,
                    "renewed_at": moment,
                }
                mine = HOSTS.c.fingerprint == fingerprint
                known = await connection.scalar(select(HOSTS.c.names).where(mine))
                if known is not None and set(known.split()) != set(found.names.split()):
                    raise _enrolled(known, fingerprint)
                await connection.execute(delete(HOSTS).where(mine))
                await connection.execute(insert(HOSTS), row)
                host = _host(row)
                await _note(connection, "host_enrolled", host, found.made_by, now)
                return host
        raise _unknown()

    async def require_known(self, token: str) -> None:
        """Look before anything is locked: everybody may bring a token.

        Raises:
            Unauthenticated: `enrolment_unknown`. Unavailable: the database is away.
        """
        mine = HOST_ENROLMENTS.c.digest == _digest(token)
        wanted = select(HOST_ENROLMENTS.c.digest).where(mine)
        async with answering(), self._reader.connect() as connection:
            if await connection.scalar(wanted) is None:
                raise _unknown()

    async def find(self, fingerprint: str) -> Host | None:
        """The enrolled host with that key; raises `Unavailable` if the database is away."""
        async with answering(), self._reader.connect() as connection:
            wanted = select(HOSTS).where(HOSTS.c.fingerprint == fingerprint)
            found = (await connection.execute(wanted)).first()
        return None if found is None else _from_row(found)

    async def renewed(self, fingerprint: str, now: datetime) -> None:
        """Note that a host has a new certificate."""
        change = update(HOSTS).where(HOSTS.c.fingerprint == fingerprint)
        async with answering(), self._engine.begin() as connection:
            await connection.execute(change.values(renewed_at=int(now.timestamp())))

    async def all(self) -> Sequence[Host]:
        """Every enrolled host, by name."""
        async with self._reader.connect() as connection:
            rows = await connection.execute(select(HOSTS).order_by(HOSTS.c.names))
            return [_from_row(row) for row in rows]

    async def forget(self, fingerprint: str, *, by: str, now: datetime) -> bool:
        """No more certificates for that key; False if it was not enrolled."""
        gone = delete(HOSTS).where(HOSTS.c.fingerprint == fingerprint).returning(HOSTS)
        async with self._engine.begin() as connection:
            found = (await connection.execute(gone)).first()
            if found is not None:
                await _note(connection, "host_forgotten", _from_row(found), by, now)
        return found is not None


async def _note(
    connection: AsyncConnection, event: str, host: Host, by: str, now: datetime
) -> None:
    number = await note_store.count(connection)
    note = Note(
        id=uuid4(),
        at=now,
        event=event,
        mark="denials",
        number=number,
        iss=ISSUER,
        sub=host.fingerprint,
        detail=notes.detail(by, " ".join(host.names)),
    )
    await note_store.write(connection, note)


def _unknown() -> Unauthenticated:
    return Unauthenticated(
        "This enrolment token is unknown, used or expired: ask for another one.",
        code="enrolment_unknown",
    )


def _enrolled(names: str, fingerprint: str) -> Conflict:
    return Conflict(
        f"This host key is enrolled as {names}: `headgate-tokens forget-host {fingerprint}` first.",
        code="host_enrolled",
    )


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def _from_row(row: Row[Any]) -> Host:
    return _host(row._asdict())


def _host(row: dict[str, Any]) -> Host:
    return Host(
        fingerprint=row["fingerprint"],
        names=tuple(row["names"].split()),
        enrolled_by=row["enrolled_by"],
        enrolled_at=datetime.fromtimestamp(row["enrolled_at"], UTC),
        renewed_at=datetime.fromtimestamp(row["renewed_at"], UTC),
    )
