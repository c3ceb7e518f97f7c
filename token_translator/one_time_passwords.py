"""One-time passwords: for whoever can type 26 letters at a prompt, and not a long token."""

import base64
import hashlib
import re
import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta
from hmac import compare_digest

from sqlalchemy import delete, insert
from sqlalchemy.ext.asyncio import AsyncEngine

from headgate.identity import Identity
from token_translator.database import answering
from token_translator.tables import ONE_TIME_PASSWORDS

LIFETIME = timedelta(seconds=60)
LETTERS = 26
SHAPE = re.compile(rf"[A-Z2-7]{{{LETTERS}}}")
"""Base32 (RFC 4648): 130 bits, far from any token, which has dots or is longer."""
_RANDOM_BYTES = 17


@dataclass(frozen=True, slots=True)
class Login:
    """Whom a password lets in, as which account, and on which host alone."""

    identity: Identity
    realm: str
    account: str
    host: str


class OneTimePasswords:
    """Kept in the database by their SHA-256 alone: with 130 random bits nothing slower is needed.

    A password is gone with its first use, whatever came of it: who shows one that is somebody
    else's, or another host's, has seen what they should not have.
    """

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def make(self, login: Login, now: datetime) -> tuple[str, datetime]:
        """A new password and when it ends.

        Raises:
            Unavailable: the database is away.
        """
        password = base64.b32encode(secrets.token_bytes(_RANDOM_BYTES)).decode()[:LETTERS]
        expires_at = now + LIFETIME
        row = {
            "digest": _digest(password),
            "iss": login.identity.iss,
            "sub": login.identity.sub,
            "realm": login.realm,
            "account": login.account,
            "host": login.host,
            "expires_at": int(expires_at.timestamp()),
        }
        expired = ONE_TIME_PASSWORDS.c.expires_at <= int(now.timestamp())
        async with answering(), self._engine.begin() as connection:
            await connection.execute(delete(ONE_TIME_PASSWORDS).where(expired))
            await connection.execute(insert(ONE_TIME_PASSWORDS), row)
        return password, expires_at

    async def use(self, password: str, *, account: str, host: str, now: datetime) -> Login | None:
        """Whom it lets in there, if it does; it is gone before this returns, in any case.

        Raises:
            Unavailable: the database is away.
        """
        taken = (
            delete(ONE_TIME_PASSWORDS)
            .where(ONE_TIME_PASSWORDS.c.digest == _digest(password))
            .returning(*ONE_TIME_PASSWORDS.c)
        )
        async with answering(), self._engine.begin() as connection:
            found = (await connection.execute(taken)).first()
        if found is None:
            return None
        same = (
            compare_digest(found.account.encode(), account.encode()),
            compare_digest(found.host.encode(), host.encode()),
            found.expires_at > now.timestamp(),
        )
        if not all(same):
            return None
        return Login(Identity(found.iss, found.sub), found.realm, found.account, found.host)


def _digest(password: str) -> str:
    return hashlib.sha256(password.encode()).hexdigest()
