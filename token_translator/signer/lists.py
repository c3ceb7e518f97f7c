"""The key revocation list: built of the ledger, and vouched for with the users' authorities.

Nodes believe these keys anyway. What is signed is a line that names the list's version, its digest
and the moment: who only passes lists on can neither shorten one nor keep showing an old one.
"""

import asyncio
import hashlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime

import structlog

from headgate.clock import Clock
from token_translator.signer import authorities, revocations, sshsig
from token_translator.signer.authority import AuthorityError
from token_translator.signer.krl import RevocationList
from token_translator.signer.ledger import Ledger

log = structlog.get_logger(__name__)

NAMESPACE = "krl@headgate"
SIGN_AGAIN_SECONDS = 60
BUILD_AGAIN_SECONDS = 300
"""Without any change: expired serials leave it by then."""


@dataclass(frozen=True, slots=True)
class Made:
    """A list as nodes install it; `digest` is the hex SHA-256 of `body`."""

    version: int
    body: bytes
    digest: str


@dataclass(frozen=True, slots=True)
class Vouched:
    """A list, the line that says since when it is the current one, and its signatures."""

    made: Made
    statement: str
    signatures: tuple[bytes, ...]


class Lists:
    """Makes the list anew when something has changed, and signs it when a minute has passed."""

    def __init__(self, *, keys: authorities.Authorities, ledger: Ledger, clock: Clock) -> None:
        self._keys = keys.user
        self._present = keys.present()
        self._ledger = ledger
        self._clock = clock
        self._asking = asyncio.Lock()
        # Its own: no other question may keep the nodes from their list.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="lists")
        self._made_of: tuple[int, int] | None = None
        self._made = Made(0, b"", "")
        self._vouched: Vouched | None = None
        self._good_until = float("-inf")

    async def current(self) -> Vouched:
        """The list of now.

        Raises:
            RestoredError: the ledger went back. AuthorityError: no key signs.
        """
        async with self._asking:
            loop = asyncio.get_running_loop()
            made = await loop.run_in_executor(self._thread, self._make, self._clock.now())
            now = self._clock.monotonic()
            fresh = self._vouched is not None and now < self._good_until
            if self._vouched is None or self._vouched.made is not made or not fresh:
                self._vouched = await self._vouch(made)
                self._good_until = now + SIGN_AGAIN_SECONDS
            return self._vouched

    def close(self) -> None:
        """Finish what is being read."""
        self._thread.shutdown()

    def _make(self, now: datetime) -> Made:
        seconds = int(now.timestamp()) // BUILD_AGAIN_SECONDS * BUILD_AGAIN_SECONDS
        with self._ledger.reading(whole=True) as connection:
            made_of = (revocations.version(connection), seconds)
            if made_of != self._made_of:
                # As of a moment that all signers on this ledger take, so that theirs are the same.
                then = datetime.fromtimestamp(seconds, UTC)
                revoked = revocations.current(connection, then)
                lines = authorities.certifying(connection, then, self._present)
                body = RevocationList.of(revoked, lines).encode()
                digest = hashlib.sha256(body).hexdigest()
                if digest != self._made.digest:
                    self._made = Made(revoked.version, body, digest)
                self._made_of = made_of
        return self._made

    async def _vouch(self, made: Made) -> Vouched:
        at = int(self._clock.now().timestamp())
        statement = f"v1;version={made.version};sha256={made.digest};at={at}"
        signatures = []
        for key in self._keys:
            try:
                data = sshsig.to_be_signed(statement.encode(), NAMESPACE)
                signatures.append(sshsig.blob(key.blob, NAMESPACE, await key.sign(data)))
            except AuthorityError as error:
                log.warning("list_not_signed", ca=key.comment, why=str(error))
        if not signatures:
            raise AuthorityError("no authority of users signs")
        return Vouched(made, statement, tuple(signatures))
