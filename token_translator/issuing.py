"""The use cases: a certificate for a person, one for a service with their token, one without."""

import contextlib
import math
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol
from uuid import UUID

import msgspec
import structlog

from headgate.clock import Clock
from headgate.identity import Identity, Principal
from headgate.problems import (
    Fault,
    Forbidden,
    Invalid,
    NotFound,
    Problem,
    TooMany,
    Unavailable,
)
from token_translator import grants, keys, wire
from token_translator.callers import Services
from token_translator.rulebook import RuleBook
from token_translator.rules import Asked, Rule
from token_translator.seals import ENDED, Seal, SealStore, Verb
from token_translator.signer_client import key_refused
from token_translator.throttle import Throttle
from token_translator.used_credentials import TokensOnce

log = structlog.get_logger(__name__)


class Accounts(Protocol):
    """Who is here, and may act: the registry and the holds."""

    async def account(self, identity: Identity, realm: str) -> grants.Account:
        """The active account; raises `Forbidden` or `Unavailable` where there is none."""

    async def require_free(self, identity: Identity, realm: str) -> None:
        """Return if no hold is in force; raises `Forbidden` (`suspended`) or `Unavailable`."""


class Signer(Protocol):
    """What makes certificates of grants."""

    async def sign(
        self, grant: grants.Grant, *, public_key: str, key_id: str, subject: wire.Subject
    ) -> wire.Signed:
        """A certificate, recorded before it is returned."""

    async def refuse(self, subject: wire.Subject, code: str) -> None:
        """Have a refusal recorded; raises `Unavailable`."""

    async def revoke(self, *, reason: str, by: str, serials: tuple[int, ...]) -> wire.Revoked:
        """Revoke certificates for good."""


@dataclass(frozen=True, slots=True)
class Policy:
    """What this site allows; times are those of the settings."""

    rules: RuleBook
    realms: Sequence[str]
    key_types: frozenset[str]
    session_program: str
    per_minute: int
    seal_max_age: timedelta
    sealed_lifetime: timedelta
    sealed_per_minute: int
    sealed_per_minute_of_service: int
    sealed_source_addresses: tuple[str, ...] = ()

    def realm(self, asked: str | None) -> str:
        """The realm a request is about; the first one where it names none."""
        if asked is None:
            return self.realms[0]
        if asked not in self.realms:
            detail = f"There is no such realm here; there is {', '.join(self.realms)}."
            raise Invalid(detail, code="realm_unknown", faults=[Fault("/realm", detail)])
        return asked


@dataclass(frozen=True, slots=True)
class Issued:
    """A certificate and what it says."""

    certificate: str
    serial: int
    key_id: str
    grant: grants.Grant
    account: grants.Account


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a caller asks for: a key, a realm, and less of a lifetime or of addresses.

    `client_address` is from where a person came to the login service that asks.
    """

    public_key: str
    realm: str | None = None
    lifetime: int | None = None
    source_address: str | None = None
    client_address: str | None = None

    def narrow(self, grant: grants.Grant, now: datetime) -> grants.Grant:
        """The grant with no more than is wanted."""
        return grants.narrowed(
            grant, lifetime=self.lifetime, source_address=self.source_address, now=now
        )


class Issuing:
    """Decides, and has the signer sign."""

    def __init__(
        self,
        *,
        policy: Policy,
        accounts: Accounts,
        signer: Signer,
        seals: SealStore,
        services: Services,
        tokens: TokensOnce | None,
        clock: Clock,
    ) -> None:
        self._policy = policy
        self._accounts = accounts
        self._signer = signer
        self._seals = seals
        self._services = services
        self._tokens = tokens
        self._clock = clock
        self._pace = Throttle(policy.per_minute)
        self._by_person = Throttle(policy.sealed_per_minute)
        self._by_service = Throttle(policy.sealed_per_minute_of_service)

    async def for_person(
        self, principal: Principal, *, instance: str, wanted: Wanted, request_id: str
    ) -> Issued:
        """A certificate for somebody's own login; `instance` is the service in between, if any."""
        subject = _subject(principal, grants.Profile.PERSON, instance, request_id)
        async with self._recorded(subject):
            self._check_pace(principal.identity)
            rule = self._admit(
                principal, grants.Profile.PERSON, realm=wanted.realm, public_key=wanted.public_key
            )
            account = await self._account(principal.identity, wanted.realm)
            now = self._clock.now()
            whole = grants.grant_person(principal, account, rule, now=now)
            if instance:
                whole = grants.through_door(
                    whole,
                    client_address=wanted.client_address,
                    door_address=wanted.source_address,
                )
            grant = wanted.narrow(whole, now)
            if self._tokens is not None:
                await self._tokens.use_up(principal, now)
        return await self._sign(grant, account, wanted.public_key, subject)

    async def for_session(
        self, principal: Principal, *, instance: str, wanted: Wanted, request_id: str
    ) -> Issued:
        """A certificate for a service that has the person's token: the session program only."""
        subject = _subject(principal, grants.Profile.SESSION, instance, request_id)
        async with self._recorded(subject):
            self._check_pace(principal.identity)
            rule = self._admit(
                principal, grants.Profile.SESSION, realm=wanted.realm, public_key=wanted.public_key
            )
            account = await self._account(principal.identity, wanted.realm)
            now = self._clock.now()
            program = self._policy.session_program
            whole = grants.grant_session(principal, account, rule, program=program, now=now)
            grant = wanted.narrow(whole, now)
        return await self._sign(grant, account, wanted.public_key, subject)

    async def seal(
        self,
        principal: Principal,
        *,
        instance: str,
        row: UUID,
        digest: str,
        realm: str,
        request_id: str,
    ) -> bool:
        """Register what a service may later execute for the person; False if it was already.

        Raises:
            Conflict: `seal_conflict`: the row is sealed for something or somebody else.
        """
        subject = _subject(principal, grants.Profile.SESSION, instance, request_id)
        async with self._recorded(msgspec.structs.replace(subject, row=str(row), verb="seal")):
            self._admit(principal, grants.Profile.SESSION, realm=realm)
            await self._accounts.require_free(principal.identity, self._policy.realm(realm))
            return await self._seals.add(
                Seal(
                    instance=instance,
                    row=row,
                    digest=digest,
                    identity=principal.identity,
                    realm=self._policy.realm(realm),
                    client_id=subject.client_id,
                    token=subject.token,
                    sealed_at=self._clock.now(),
                )
            )

    async def for_seal(
        self, *, instance: str, row: UUID, verb: Verb, public_key: str, request_id: str
    ) -> Issued:
        """A certificate for one command on a sealed row, without the person's token.

        Raises:
            NotFound: `seal_unknown`. Forbidden: `seal_expired`, or the account's state.
            TooMany: more for this identity than a minute may have.
        """
        self._check_key(public_key)
        seal = await self._seal(instance, row)
        subject = _sealed_subject(seal, verb, request_id)
        async with self._recorded(subject):
            self._require_usable(seal)
            self._check_rate(seal)
            account = await self._account(seal.identity, seal.realm)
            now = self._clock.now()
            grant = grants.grant_sealed(
                account,
                command=seal.command(self._policy.session_program, verb),
                now=now,
                until=min(
                    now + self._policy.sealed_lifetime, seal.sealed_at + self._policy.seal_max_age
                ),
                source_addresses=self._policy.sealed_source_addresses,
            )
        issued = await self._sign(grant, account, public_key, subject)
        try:
            self._require_usable(await self._seal(instance, row))
        except Forbidden:
            # It was taken back while this was signed: who did so must find nothing alive.
            by = f"owner:{subject.iss}#{subject.sub}"
            await self._signer.revoke(reason=ENDED, by=by, serials=(issued.serial,))
            raise
        return issued

    async def _seal(self, instance: str, row: UUID) -> Seal:
        seal = await self._seals.find(instance, row)
        if seal is None:
            raise NotFound("This row was never sealed by this service.", code="seal_unknown")
        return seal

    def _require_usable(self, seal: Seal) -> None:
        if seal.sealed_at + self._policy.seal_max_age <= self._clock.now():
            raise Forbidden(
                "The seal of this row is too old; the person has to come with a token.",
                code="seal_expired",
            )
        if seal.ended_at is not None:
            raise Forbidden(ENDED, code="delegation_ended")

    @contextlib.asynccontextmanager
    async def _recorded(self, subject: wire.Subject) -> AsyncIterator[None]:
        """Have a refusal put into the ledger; it is one, whether that can be done or not."""
        try:
            yield
        except Unavailable:
            raise
        except Problem as problem:
            try:
                await self._signer.refuse(subject, problem.stable_code)
            except Problem as failure:
                log.warning(
                    "refusal_not_recorded", code=problem.stable_code, why=failure.stable_code
                )
            raise

    async def _account(self, identity: Identity, realm: str | None) -> grants.Account:
        return await self._accounts.account(identity, self._policy.realm(realm))

    def _admit(
        self,
        principal: Principal,
        profile: grants.Profile,
        *,
        realm: str | None,
        public_key: str | None = None,
    ) -> Rule:
        key_type = None if public_key is None else self._check_key(public_key)
        return self._policy.rules.admit(
            Asked(principal, profile, self._policy.realm(realm), self._clock.now(), key_type)
        )

    def _check_key(self, line: str) -> str:
        """The type of a key that may get a certificate here."""
        try:
            return keys.accept(line, types=self._policy.key_types).kind
        except keys.KeyRefusedError as error:
            raise key_refused(str(error)) from error

    def _check_pace(self, identity: Identity) -> None:
        """One person must not use up what the signer does in a minute for everybody."""
        wait = self._pace.take(identity, self._clock.monotonic())
        if wait:
            raise TooMany(
                "You ask for more certificates than anybody needs; one is good for many logins.",
                code="person_rate",
                retry_after=math.ceil(wait),
            )

    def _check_rate(self, seal: Seal) -> None:
        now = self._clock.monotonic()
        for throttle, name, whom in (
            (self._by_person, seal.identity, "person"),
            (self._by_service, seal.instance, "service"),
        ):
            wait = throttle.take(name, now)
            if wait:
                # An alarm: no ordinary day looks like this, a stolen service credential does.
                log.warning(
                    "sealed_rate_alarm",
                    of=whom,
                    instance=seal.instance,
                    row=str(seal.row),
                    realm=seal.realm,
                )
                raise TooMany(
                    f"Too many certificates without a token for this {whom}.",
                    code="sealed_rate",
                    retry_after=math.ceil(wait),
                )

    async def _sign(
        self,
        grant: grants.Grant,
        account: grants.Account,
        public_key: str,
        subject: wire.Subject,
    ) -> Issued:
        key_id = grants.key_id(
            iss=subject.iss,
            sub=subject.sub,
            cid=subject.client_id,
            jti=subject.token,
            via=subject.instance,
            row=subject.row,
            verb=subject.verb,
        )
        subject = msgspec.structs.replace(subject, account=account.account, realm=account.realm)
        signed = await self._signer.sign(
            grant, public_key=public_key.strip(), key_id=key_id, subject=subject
        )
        # Who was suspended or stopped while this was signed does not get it.
        if subject.instance:
            await self._services.require_running(subject.instance)
        await self._accounts.require_free(Identity(subject.iss, subject.sub), account.realm)
        return Issued(signed.certificate, signed.serial, key_id, grant, account)


def _subject(principal: Principal, profile: str, instance: str, request_id: str) -> wire.Subject:
    """Who asks; the account and its realm are known once they are found."""
    return wire.Subject(
        iss=principal.identity.iss,
        sub=principal.identity.sub,
        account="",
        realm="",
        profile=profile,
        # Whatever a token says of them, the ledger's entry is short.
        client_id=principal.client_id[: wire.MAX_FIELD],
        actor=principal.actor[: wire.MAX_FIELD],
        token=grants.token_fingerprint(principal),
        instance=instance,
        request_id=request_id,
    )


def _sealed_subject(seal: Seal, verb: Verb, request_id: str) -> wire.Subject:
    return wire.Subject(
        iss=seal.identity.iss,
        sub=seal.identity.sub,
        account="",
        realm=seal.realm,
        profile="sealed",
        client_id=seal.client_id,
        token=seal.token,
        instance=seal.instance,
        row=str(seal.row),
        verb=verb,
        request_id=request_id,
    )
