"""One request, from frame to certificate: ceilings, key, ledger, signature, in that order."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import msgspec
import structlog

from headgate.clock import Clock
from headgate.identity import Identity
from token_translator import wire
from token_translator.group_commit import GroupCommit
from token_translator.keys import KeyRefusedError, PublicKey, accept, fingerprint
from token_translator.signer import certificate
from token_translator.signer.authority import Authority, public_line
from token_translator.signer.ceilings import CeilingError, Ceilings, Rate, check
from token_translator.signer.ledger import Ledger, Record

log = structlog.get_logger(__name__)


class Signing:
    """Answers requests. The ledger is written by one thread, in groups, before anything is signed.

    A serial without a certificate is harmless; a certificate without an entry must not exist.
    """

    def __init__(
        self,
        *,
        user_ca: Sequence[Authority],
        host_ca: Sequence[Authority],
        ceilings: Ceilings,
        ledger: Ledger,
        clock: Clock,
    ) -> None:
        self._user_ca = user_ca
        self._host_ca = host_ca
        self._reserved = frozenset(authority.blob for authority in (*user_ca, *host_ca))
        self._ceilings = ceilings
        self._clock = clock
        self._rate = Rate(ceilings.per_minute, now=clock.monotonic())
        self._ledger = ledger
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="ledger")
        self._append = GroupCommit[Record, int](self._commit)

    async def close(self) -> None:
        """Finish what is being written."""
        await self._append.close()
        self._thread.shutdown()

    async def answer(self, request: wire.Request) -> wire.Answer:
        """The answer to one request; failures of ours are logged and answered as `failed`."""
        if isinstance(request, wire.Show):
            return wire.Authorities(
                request.id,
                user_ca=tuple(public_line(authority) for authority in self._user_ca),
                host_ca=tuple(public_line(authority) for authority in self._host_ca),
            )
        try:
            return await self._sign(request)
        except Exception:
            log.exception("not_signed", profile=request.subject.profile)
            return wire.Refused(request.id, "failed", "The signer could not record this.")

    async def _sign(self, request: wire.Sign) -> wire.Answer:
        if not self._rate.take(self._clock.monotonic()):
            # Not recorded: a flood must not fill the disk. It is an alarm of its own.
            log.warning("rate_ceiling", per_minute=self._ceilings.per_minute)
            return wire.Refused(request.id, "rate", "Too many certificates in this minute.")
        try:
            check(self._ceilings, request.grant, request.key_id, now=self._clock.now())
            key = accept(
                request.public_key, types=self._ceilings.key_types, reserved=self._reserved
            )
        except CeilingError as error:
            log.warning("ceiling", what=str(error), profile=request.subject.profile)
            return await self._refuse(request, "ceiling", str(error))
        except KeyRefusedError as error:
            return await self._refuse(request, "key_refused", str(error))
        serial = await self._append.submit(self._issued(request, key))
        return wire.Signed(request.id, self._certificate(request, key, serial), serial)

    def _certificate(self, request: wire.Sign, key: PublicKey, serial: int) -> str:
        authority = self._user_ca[0]
        signed = certificate.to_be_signed(
            key, request.grant, serial=serial, key_id=request.key_id, authority=authority.blob
        )
        return certificate.line(key, signed, authority.sign(signed))

    async def _refuse(self, request: wire.Sign, code: wire.Code, detail: str) -> wire.Refused:
        await self._append.submit(self._record(request, "refused", code=code, detail=detail))
        return wire.Refused(request.id, code, detail)

    def _issued(self, request: wire.Sign, key: PublicKey) -> Record:
        record = self._record(request, "issued")
        return replace(
            record,
            public={**record.public, "ca": fingerprint(self._user_ca[0].blob)},
            personal={**record.personal, "public_key": key.fingerprint},
        )

    def _record(self, request: wire.Sign, kind: str, **public: str) -> Record:
        grant = msgspec.to_builtins(request.grant)
        return Record(
            kind="issued" if kind == "issued" else "refused",
            identity=Identity(request.subject.iss, request.subject.sub),
            public={
                "profile": request.subject.profile[:32],
                "valid_after": grant.pop("valid_after"),
                "valid_before": grant.pop("valid_before"),
                **public,
            },
            personal={
                **msgspec.to_builtins(request.subject),
                **grant,
                "key_id": request.key_id,
            },
        )

    async def _commit(self, records: Sequence[Record]) -> Sequence[int]:
        append = partial(self._ledger.append, records, self._clock.now())
        return await asyncio.get_running_loop().run_in_executor(self._thread, append)
