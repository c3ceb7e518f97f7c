"""Talking to the signer: one kept connection, many requests on it, each with a deadline."""

import asyncio
import contextlib
from datetime import datetime
from itertools import count
from typing import cast

import msgspec
import structlog

from headgate.identity import Identity
from headgate.problems import Fault, Forbidden, Invalid, Problem, TooMany, Unavailable
from token_translator import wire
from token_translator.grants import Grant

log = structlog.get_logger(__name__)

_REQUESTS = msgspec.json.Decoder(wire.Request)


class SignerClient:
    """Sends requests over the unix socket at `path`; connects when first needed, and again."""

    def __init__(self, *, path: str, timeout: float) -> None:
        self._path = path
        self._timeout = timeout
        self._ids = count(1)
        self._waiting: dict[int, asyncio.Future[wire.Answer]] = {}
        self._connecting = asyncio.Lock()
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None

    async def sign(
        self, grant: Grant, *, public_key: str, key_id: str, subject: wire.Subject
    ) -> wire.Signed:
        """A certificate for a key.

        Raises:
            Invalid: the key is refused. Forbidden: beyond the signer's ceilings.
            TooMany: beyond its rate. Unavailable: it is away, late, or cannot record.
        """
        request = wire.Sign(next(self._ids), grant, public_key, key_id, subject)
        answer = await self._ask(request)
        if isinstance(answer, wire.Signed):
            return answer
        raise _problem(answer)

    async def sign_host(
        self,
        hostnames: tuple[str, ...],
        *,
        valid: tuple[datetime, datetime],
        public_key: str,
        key_id: str,
        subject: wire.Subject,
    ) -> wire.Signed:
        """A host certificate for names, valid from and to; raises what `sign` raises."""
        request = wire.SignHost(
            next(self._ids),
            hostnames,
            *valid,
            public_key=public_key,
            key_id=key_id,
            subject=subject,
        )
        answer = await self._ask(request)
        if isinstance(answer, wire.Signed):
            return answer
        raise _problem(answer)

    async def refuse(self, subject: wire.Subject, code: str) -> None:
        """Have a refusal by policy recorded; raises `Unavailable` if the signer is away."""
        answer = await self._ask(wire.Refuse(next(self._ids), subject, code))
        if not isinstance(answer, wire.Recorded):
            raise _problem(answer)

    async def note(
        self,
        subject: wire.Subject,
        event: str,
        *,
        detail: str = "",
        mark: tuple[str, int] | None = None,
    ) -> None:
        """Have something recorded that is no certificate; see `wire.Note`.

        Raises:
            Unavailable: the signer is away. Invalid: not well-formed. With a mark, or of a login
            that PAM is told of, also TooMany: beyond the signer's rate. With a mark also
            Forbidden: it is too far above the last one.
        """
        # Of other names is not well-formed: `_ask` finds that.
        named = None if mark is None else (cast("wire.Mark", mark[0]), mark[1])
        answer = await self._ask(wire.Note(next(self._ids), subject, event, detail, named))
        if not isinstance(answer, wire.Recorded):
            raise _problem(answer)

    async def marks(self) -> dict[str, int]:
        """The highest number of each mark; raises `Unavailable` if the signer is away."""
        answer = await self._ask(wire.ListMarks(next(self._ids)))
        if isinstance(answer, wire.Marks):
            return answer.marks
        raise _problem(answer)

    async def revoke(
        self,
        *,
        reason: str,
        by: str,
        serials: tuple[int, ...] = (),
        identity: Identity | None = None,
        keys: tuple[str, ...] = (),
        authority: str = "",
    ) -> wire.Revoked:
        """Revoke for good; see `wire.Revoke`.

        Raises:
            Unavailable: the signer is away. Forbidden: the authority is none that may be revoked.
            Invalid: more at once than a request holds, or not well-formed.
        """
        request = wire.Revoke(
            next(self._ids),
            reason,
            by,
            serials,
            None if identity is None else (identity.iss, identity.sub),
            keys,
            authority,
        )
        answer = await self._ask(request)
        if isinstance(answer, wire.Revoked):
            return answer
        raise _problem(answer)

    async def revoked(self, known: str = "") -> wire.RevokedNow:
        """The revocation list of now, without its bytes where their digest is `known`.

        Raises:
            Unavailable: the signer is away, or has a ledger that went back.
        """
        answer = await self._ask(wire.ListRevoked(next(self._ids), known))
        if isinstance(answer, wire.RevokedNow):
            return answer
        raise _problem(answer)

    async def live(self, identity: Identity) -> tuple[wire.LiveCertificate, ...]:
        """All of an identity's unexpired certificates; raises `Unavailable`: the signer is away."""
        found: list[wire.LiveCertificate] = []
        while True:
            before = found[-1].serial if found else 0
            request = wire.ListLive(next(self._ids), (identity.iss, identity.sub), before)
            answer = await self._ask(request)
            if not isinstance(answer, wire.Live):
                raise _problem(answer)
            found += answer.certificates
            if len(answer.certificates) < wire.LIVE_AT_ONCE:
                return tuple(found)

    async def authorities(self) -> wire.Authorities:
        """The authorities' public keys; raises `Unavailable` if the signer is away."""
        answer = await self._ask(wire.Show(next(self._ids)))
        if isinstance(answer, wire.Authorities):
            return answer
        raise _problem(answer)

    async def ready(self) -> str:
        """A readiness check: whether the signer answers."""
        try:
            await self.authorities()
        except Unavailable as problem:
            return problem.detail
        return ""

    async def close(self) -> None:
        """Close the connection; what waits is told that the signer is away."""
        if self._writer is not None:
            self._writer.close()
        if self._reading is not None:
            await self._reading

    async def _ask(self, request: wire.Request) -> wire.Answer:
        future: asyncio.Future[wire.Answer] = asyncio.get_running_loop().create_future()
        message = wire.frame(request)
        if len(message) > wire.MAX_FRAME:
            raise Invalid("This is more than a request to the signer may hold.", code="too_long")
        try:
            # What is not well-formed would end the connection, for everybody on it.
            _REQUESTS.decode(message[4:])
        except msgspec.ValidationError as error:
            raise Invalid(
                f"The signer cannot be asked for this: {error}.", code="not_well_formed"
            ) from error
        try:
            async with asyncio.timeout(self._timeout):
                writer = await self._connected()
                self._waiting[request.id] = future
                writer.write(message)
                await writer.drain()
                return await future
        except (OSError, TimeoutError) as error:
            raise _away() from error
        finally:
            self._waiting.pop(request.id, None)

    async def _connected(self) -> asyncio.StreamWriter:
        async with self._connecting:
            if self._writer is None or self._writer.is_closing():
                reader, self._writer = await asyncio.open_unix_connection(self._path)
                self._reading = asyncio.create_task(self._read(reader, self._writer))
            return self._writer

    async def _read(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        decoder = msgspec.json.Decoder(wire.Answer)
        try:
            while (body := await wire.read_frame(reader, wire.MAX_ANSWER)) is not None:
                answer = decoder.decode(body)
                future = self._waiting.get(answer.id)
                if future is not None and not future.done():
                    future.set_result(answer)
        except (wire.FrameError, msgspec.MsgspecError, ConnectionError) as error:
            log.warning("signer_connection_ended", error=str(error))
        finally:
            writer.close()
            for future in self._waiting.values():
                if not future.done():
                    future.set_exception(ConnectionResetError("the signer closed the connection"))
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()


def _problem(answer: wire.Answer) -> Problem:
    if not isinstance(answer, wire.Refused):
        return _away()
    match answer.code:
        case "key_refused":
            return key_refused(answer.detail)
        case "ceiling":
            return ceiling_refused(answer.detail)
        case "rate":
            return TooMany(answer.detail, retry_after=10)
        case _:
            return _away()


def ceiling_refused(detail: str) -> Forbidden:
    """The problem of what is beyond a ceiling, whoever may ask for it."""
    return Forbidden(f"The signer of this site does not allow this: {detail}.", code="ceiling")


def key_refused(detail: str) -> Invalid:
    """The problem of a public key that gets no certificate."""
    return Invalid(detail, code="key_refused", faults=[Fault("/public_key", detail)])


def _away() -> Unavailable:
    return Unavailable("The signer cannot be reached.", code="signer_away", retry_after=1)
