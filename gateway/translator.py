"""Asking the token translator: seal a job, and certify a key with a token or with a seal."""

from datetime import datetime
from http import HTTPStatus
from typing import Any

import aiohttp
import msgspec
import structlog

from gateway.codes import CODES
from gateway.jobs import Sealed
from gateway.sessions.credentials import Certify, IssuedCertificate
from gateway.sessions.session import NotCertified, SessionUnavailable
from headgate.peers import PeerSigner
from headgate.problems import (
    STEP_UP,
    Conflict,
    Forbidden,
    Problem,
    Unauthenticated,
    Unavailable,
    stronger_login,
)

log = structlog.get_logger(__name__)

TIMEOUT = aiohttp.ClientTimeout(total=10)
_ENDED = frozenset({"seal_unknown", "seal_expired", "delegation_ended"})
"""A sealed row for which there will be no certificate any more."""


class _Certificate(msgspec.Struct, frozen=True):
    certificate: str
    valid_before: datetime


class Translator:
    """The token_translator's interface for this gateway."""

    def __init__(self, *, url: str, session: aiohttp.ClientSession, signer: PeerSigner) -> None:
        self._url = url
        self._session = session
        self._signer = signer

    async def seal(self, sealed: Sealed, realm: str, token: str) -> None:
        """Register exactly this job with the user's token, before its row is committed.

        Raises:
            Unavailable: the translator is away or busy: nothing was admitted, try again.
            Forbidden, Unauthenticated, Conflict: its refusal.
        """
        body = {"row": sealed.row, "digest": sealed.digest(), "realm": realm}
        status, document = await self._post("/v1/seals", body, token)
        if status not in {HTTPStatus.OK, HTTPStatus.CREATED}:
            raise _refusal(status, document)

    def with_token(self, token: str, realm: str) -> Certify:
        """Certifies a key for the user's session, while the token is valid."""

        async def certify(public_key: str) -> IssuedCertificate:
            body = {"public_key": public_key, "realm": realm, "profile": "session"}
            return await self._certificate("/v1/certificates", body, token)

        return certify

    def delegated(self, row: str, verb: str) -> Certify:
        """Certifies a key for one verb of one sealed job, without a token."""

        async def certify(public_key: str) -> IssuedCertificate:
            body = {"public_key": public_key, "row": row, "verb": verb}
            return await self._certificate("/v1/delegated-certificates", body)

        return certify

    async def _certificate(
        self, path: str, body: dict[str, Any], token: str = ""
    ) -> IssuedCertificate:
        try:
            status, document = await self._post(path, body, token)
        except Unavailable as problem:
            raise SessionUnavailable(problem.detail) from problem
        if status != HTTPStatus.CREATED:
            words = f"no certificate: {document.get('detail', status)}"
            if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
                raise SessionUnavailable(words)
            raise NotCertified(words, final=document.get("code") in _ENDED)
        try:
            answer = msgspec.convert(document, _Certificate)
        except msgspec.ValidationError as error:
            raise SessionUnavailable(f"no certificate: {error}") from error
        return IssuedCertificate(answer.certificate, answer.valid_before)

    async def _post(
        self, path: str, body: dict[str, Any], token: str = ""
    ) -> tuple[int, dict[str, Any]]:
        headers = self._signer.headers(self._url)
        if token:
            headers["Authorization"] = f"Bearer {token}"
        try:
            async with self._session.post(
                self._url + path,
                data=msgspec.json.encode(body),
                headers={**headers, "Content-Type": "application/json"},
                timeout=TIMEOUT,
            ) as response:
                document = msgspec.json.decode(await response.read())
        except (aiohttp.ClientError, TimeoutError, msgspec.DecodeError) as error:
            raise Unavailable("The token translator does not answer.", retry_after=5) from error
        return response.status, document if isinstance(document, dict) else {}


_CLASSES: dict[int, type[Problem]] = {
    HTTPStatus.UNAUTHORIZED: Unauthenticated,
    HTTPStatus.FORBIDDEN: Forbidden,
    HTTPStatus.CONFLICT: Conflict,
}


def _refusal(status: int, document: dict[str, Any]) -> Problem:
    code, detail = str(document.get("code", "")), str(document.get("detail", ""))
    if code == STEP_UP:
        acr_values, max_age = document.get("acr_values"), document.get("max_age")
        return stronger_login(
            detail,
            acr_values=acr_values if isinstance(acr_values, list) else (),
            max_age=max_age if isinstance(max_age, int) else None,
        )
    kind = _CLASSES.get(status)
    if kind is None or code in {"peer", "no_peer", "peer_verb"}:
        log.error("translator_refuses_us", status=status, code=code, detail=detail)
        return Unavailable("The token translator does not answer.", retry_after=5)
    return kind(detail, code=code if code in CODES else "")
