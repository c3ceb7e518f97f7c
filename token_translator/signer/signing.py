"""One request, from frame to answer: ceilings, key, ledger, signature, in that order."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

import structlog

from headgate.clock import Clock
from headgate.identity import Identity
from token_translator import wire
from token_translator.group_commit import GroupCommit
from token_translator.keys import KeyRefusedError, PublicKey, accept, fingerprint
from token_translator.signer import certificate, issuance, live, notes, revocations
from token_translator.signer.authorities import Authorities
from token_translator.signer.authority import Authority, AuthorityError, public_line
from token_translator.signer.ceilings import CeilingError, Ceilings, Rate, check, check_host
from token_translator.signer.entries import Record
from token_translator.signer.ledger import DeclinedError, Ledger, RestoredError, Writing
from token_translator.signer.lists import Lists
from token_translator.signer.persons import Persons
from token_translator.signer.refusals import Refusals

log = structlog.get_logger(__name__)

T = TypeVar("T")

REVOCATIONS_PER_MINUTE = 600
"""What is revoked stays in the ledger, keys for ever: even revoking has a bound."""
MARKS_PER_MINUTE = 600
LOGIN = "pam_accepted"
"""A note of somebody let in: whatever is not recorded is refused, and nobody let in unrecorded."""


@dataclass(frozen=True, slots=True)
class _Change:
    """What one request does to the ledger, the persons it is about, and its key's fingerprint."""

    apply: Callable[[Writing], Any]
    identities: tuple[Identity, ...]
    key: str


class Signing:
    """Answers requests. The ledger is written by one thread, in groups, before anything is signed.

    A serial without a certificate is harmless; a certificate without an entry must not exist.
    `written` is called after each commit.
    """

    def __init__(
        self,
        *,
        authorities: Authorities,
        ceilings: Ceilings,
        ledger: Ledger,
        persons: Persons,
        clock: Clock,
        written: Callable[[], None] = lambda: None,
    ) -> None:
        self._authorities = authorities
        self._reserved = frozenset(one.blob for _, _, one in authorities.each())
        self._ceilings = ceilings
        self._clock = clock
        self._rate = Rate(ceilings.per_minute, now=clock.monotonic())
        self._revocations = Rate(REVOCATIONS_PER_MINUTE, now=clock.monotonic())
        self._marks = Rate(MARKS_PER_MINUTE, now=clock.monotonic())
        self._logins = Rate(ceilings.per_minute, now=clock.monotonic())
        self._refusals = Refusals()
        self._notes = Refusals()
        self._ledger = ledger
        self._persons = persons
        self._written = written
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="ledger")
        self._reader = ThreadPoolExecutor(max_workers=1, thread_name_prefix="reader")
        self._lists = Lists(keys=authorities, ledger=ledger, clock=clock)
        self._group = GroupCommit[_Change, Any](self._commit)

    async def close(self) -> None:
        """Finish what is being written."""
        await self._group.close()
        self._thread.shutdown()
        self._reader.shutdown()
        self._lists.close()

    async def answer(self, request: wire.Request) -> wire.Answer:
        """The answer to one request; failures of ours are logged and answered as `failed`."""
        try:
            return await self._answer(request)
        except KeyRefusedError as error:
            return wire.Refused(request.id, "key_refused", str(error))
        except (CeilingError, DeclinedError) as error:
            return wire.Refused(request.id, "ceiling", str(error))
        except (RestoredError, AuthorityError) as error:
            log.error("refused", request=type(request).__name__, why=str(error))  # noqa: TRY400 - its words say it all
            return wire.Refused(request.id, "failed", "The signer has to be looked after.")
        except _RateError:
            return wire.Refused(request.id, "rate", "Too many of these in this minute.")
        except Exception:
            log.exception("not_answered", request=type(request).__name__)
            return wire.Refused(request.id, "failed", "The signer could not record this.")

    async def _answer(self, request: wire.Request) -> wire.Answer:
        match request:
            case wire.Sign():
                return await self._sign_user(request)
            case wire.SignHost():
                return await self._sign_host(request)
            case wire.Refuse():
                return await self._refuse(request)
            case wire.Note():
                return await self._note(request)
            case wire.Revoke():
                return await self._revoke(request)
            case _:
                return await self._look(request)

    async def _look(
        self, request: wire.ListRevoked | wire.ListLive | wire.ListMarks | wire.Show
    ) -> wire.Answer:
        match request:
            case wire.ListRevoked():
                now = await self._lists.current()
                return wire.RevokedNow(
                    request.id,
                    now.made.version,
                    now.made.digest,
                    None if request.known == now.made.digest else now.made.body,
                    now.statement,
                    now.signatures,
                )
            case wire.ListLive():
                identity = Identity(*request.identity)
                find = partial(
                    live.of,
                    self._ledger,
                    self._persons,
                    identity,
                    self._clock.now(),
                    request.before,
                )
                return wire.Live(request.id, tuple(await self._read(find)))
            case wire.ListMarks():
                return wire.Marks(request.id, await self._read(partial(live.marks, self._ledger)))
            case wire.Show():
                return wire.Authorities(
                    request.id,
                    user_ca=tuple(public_line(one) for one in self._authorities.user),
                    host_ca=tuple(public_line(one) for one in self._authorities.host),
                )

    async def _sign_user(self, request: wire.Sign) -> wire.Answer:
        authority = self._authorities.user[0]
        refused = partial(issuance.refused_user, request)
        verify = partial(_check_user, self._ceilings, request)
        key = await self._admitted(request, issuance.USER_PROFILES, verify, refused)
        record = issuance.issued_user(request, key, fingerprint(authority.blob))
        issue = partial(issuance.issue_to_user, record=record, key=key, refused=refused)
        serial = await self._write(issue, record.identity, key=key.fingerprint)
        signed = certificate.of_user(
            key, request.grant, serial=serial, key_id=request.key_id, authority=authority.blob
        )
        return await self._signed(request.id, serial, key, authority, signed)

    async def _sign_host(self, request: wire.SignHost) -> wire.Answer:
        authority = self._authorities.host[0]
        refused = partial(issuance.refused_host, request)
        verify = partial(check_host, self._ceilings, request)
        key = await self._admitted(request, issuance.HOST_PROFILES, verify, refused)
        record = issuance.issued_host(request, key, fingerprint(authority.blob))
        issue = partial(issuance.issue_to_host, record=record, key=key, refused=refused)
        serial = await self._write(issue, record.identity, key=key.fingerprint)
        signed = certificate.of_host(
            key,
            request.hostnames,
            valid=(request.valid_after, request.valid_before),
            serial=serial,
            key_id=request.key_id,
            authority=authority.blob,
        )
        return await self._signed(request.id, serial, key, authority, signed)

    async def _admitted(
        self,
        request: wire.Sign | wire.SignHost,
        profiles: frozenset[str],
        verify: Callable[..., None],
        refused: issuance.Refusal,
    ) -> PublicKey:
        """The key of a request that is within rate and ceilings; a refusal is recorded."""
        if not self._rate.take(self._clock.monotonic()):
            # Not recorded: a flood must not fill the disk. It is an alarm of its own.
            log.warning("rate_ceiling", per_minute=self._ceilings.per_minute)
            raise _RateError
        try:
            if request.subject.profile not in profiles:
                raise CeilingError("a profile that is not of such certificates")  # noqa: TRY301 - recorded below
            verify(now=self._clock.now())
            return accept(
                request.public_key, types=self._ceilings.key_types, reserved=self._reserved
            )
        except CeilingError as error:
            log.warning("ceiling", what=str(error), profile=request.subject.profile[:32])
            await self._append(refused("ceiling", str(error)))
            raise
        except KeyRefusedError as error:
            await self._append(refused("key_refused", str(error)))
            raise

    async def _signed(
        self, number: int, serial: int, key: PublicKey, authority: Authority, signed: bytes
    ) -> wire.Answer:
        try:
            signature = await authority.sign(signed)
        except AuthorityError as error:
            log.error("authority_away", ca=authority.comment, error=str(error), serial=serial)  # noqa: TRY400 - its words say it all
            return wire.Refused(number, "failed", "The authority's key cannot be reached.")
        return wire.Signed(number, certificate.line(key, signed, signature), serial)

    async def _refuse(self, request: wire.Refuse) -> wire.Answer:
        identity = issuance.identity(request.subject)
        counted = self._refusals.count(identity, self._clock.monotonic())
        if counted is not None:
            await self._append(issuance.refused_by_policy(request, counted))
        return wire.Recorded(request.id)

    async def _note(self, request: wire.Note) -> wire.Answer:
        more: int | None = 0
        now = self._clock.monotonic()
        if request.mark is not None:
            self._require_within(self._marks, now)
        elif request.event == LOGIN:
            self._require_within(self._logins, now)
        else:
            whose = (issuance.identity(request.subject), request.event)
            more = self._notes.count(whose, now)
        if more is not None:
            write = partial(notes.write, request=request, more=more)
            await self._write(write, issuance.identity(request.subject))
        return wire.Recorded(request.id)

    def _require_within(self, rate: Rate, now: float) -> None:
        if not rate.take(now):
            log.warning("note_ceiling")
            raise _RateError

    async def _revoke(self, request: wire.Revoke) -> wire.Answer:
        if not self._revocations.take(self._clock.monotonic(), max(1, len(request.keys))):
            log.warning("revocation_ceiling", per_minute=REVOCATIONS_PER_MINUTE)
            raise _RateError
        wanted = revocations.Wanted(
            reason=request.reason,
            by=revocations.orderer(request.by),
            serials=request.serials,
            identity=None if request.identity is None else Identity(*request.identity),
            keys=request.keys,
            authority=request.authority,
        )
        revoke = partial(revocations.revoke, persons=self._persons, wanted=wanted)
        outcome: revocations.Outcome = await self._write(revoke, wanted.by)
        log.info("revoked", version=outcome.version, serials=len(outcome.serials))
        return wire.Revoked(request.id, outcome.version, outcome.serials, outcome.effect)

    async def _append(self, record: Record) -> None:
        identities = (record.identity,) if record.by is None else (record.identity, record.by)
        await self._write(lambda writing: writing.append(record), *identities)

    async def _write(
        self, apply: Callable[[Writing], T], *identities: Identity, key: str = ""
    ) -> T:
        outcome: T = await self._group.submit(_Change(apply, identities, key))
        return outcome

    async def _read(self, look: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._reader, look)

    async def _commit(self, changes: Sequence[_Change]) -> Sequence[Any]:
        commit = partial(
            self._ledger.change,
            [change.apply for change in changes],
            identities={identity for change in changes for identity in change.identities},
            keys={change.key for change in changes if change.key},
            now=self._clock.now(),
        )
        outcomes = await asyncio.get_running_loop().run_in_executor(self._thread, commit)
        self._written()
        return outcomes


def _check_user(ceilings: Ceilings, request: wire.Sign, *, now: datetime) -> None:
    check(ceilings, request.grant, request.key_id, now=now)
    issuance.require_profile(request)


class _RateError(Exception):
    """More of them than this minute has."""
