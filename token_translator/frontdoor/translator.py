"""A certificate for one login: a key of this moment, the person's token, the translator's word."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from typing import Any

import aiohttp
import asyncssh
import msgspec
import structlog

from headgate.discovery import whole
from headgate.problems import Forbidden, Unavailable

log = structlog.get_logger(__name__)

LIFETIME = 60
"""Seconds that a certificate lives: as long as it takes to log in."""
MAX_ANSWER = 64 * 1024
_OURS = frozenset({"peer", "no_peer", "peer_verb", "service_stopped", "door_address"})
"""Refusals that are about this service, not about the person."""

Headers = Callable[[str], dict[str, str]]


@dataclass(frozen=True, slots=True)
class Login:
    """As whom somebody logs in, and with what; the key is in memory only."""

    account: str
    serial: int
    valid_before: datetime
    key: asyncssh.SSHKey
    certificate: asyncssh.SSHCertificate


class _Answer(msgspec.Struct, frozen=True):
    certificate: str
    serial: int
    account: str
    valid_before: datetime


class Translator:
    """Client of `POST /v1/certificates` for this front door."""

    def __init__(
        self,
        *,
        url: str,
        realm: str,
        source_address: str,
        timeout: float,
        session: aiohttp.ClientSession,
        headers: Headers,
    ) -> None:
        self._url = url
        self._realm = realm
        self._source_address = source_address
        self._timeout = aiohttp.ClientTimeout(total=timeout)
        self._session = session
        self._headers = headers

    async def login(self, token: str, *, client_address: str) -> Login:
        """A key and its certificate for the token's holder, who came from that address.

        Raises:
            Forbidden: the translator's refusal, in its words.
            Unavailable: it does not answer, or refuses this service.
        """
        key = asyncssh.generate_private_key("ssh-ed25519")
        body: dict[str, Any] = {
            "public_key": key.export_public_key("openssh").decode().strip(),
            "realm": self._realm,
            "profile": "person",
            "lifetime": LIFETIME,
            "client_address": client_address,
        }
        if self._source_address:
            body["source_address"] = self._source_address
        status, document = await self._post(body, token)
        if status != HTTPStatus.CREATED:
            raise _refusal(status, document)
        try:
            answer = msgspec.json.decode(document, type=_Answer)
            certificate = asyncssh.import_certificate(answer.certificate)
        except (msgspec.MsgspecError, asyncssh.KeyImportError) as error:
            log.exception("translator_answer")
            raise _away() from error
        return Login(answer.account, answer.serial, answer.valid_before, key, certificate)

    async def _post(self, body: dict[str, Any], token: str) -> tuple[int, bytes]:
        headers = {
            **self._headers(self._url),
            "Authorization": f"Bearer {token}",
            "Content-Type": "application/json",
        }
        try:
            async with self._session.post(
                self._url.rstrip("/") + "/v1/certificates",
                data=msgspec.json.encode(body),
                headers=headers,
                timeout=self._timeout,
                allow_redirects=False,
            ) as response:
                return response.status, await whole(response, MAX_ANSWER)
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            log.warning("translator_away", error=repr(error))
            raise _away() from error


class _Refusal(msgspec.Struct, frozen=True):
    code: str = ""
    detail: str = ""
    how_to_ask: str = ""
    waiting_for: str = ""
    rules: tuple[str, ...] = ()


def _refusal(status: int, document: bytes) -> Forbidden | Unavailable:
    try:
        refusal = msgspec.json.decode(document, type=_Refusal)
    except msgspec.MsgspecError:
        log.exception("translator_answer", status=status)
        return _away()
    theirs = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.TOO_MANY_REQUESTS)
    if status not in theirs or refusal.code in _OURS:
        log.error("translator_refuses_us", status=status, code=refusal.code, detail=refusal.detail)
        return _away()
    words = (refusal.detail, refusal.waiting_for, refusal.how_to_ask, *refusal.rules)
    return Forbidden(" ".join(word for word in words if word), code=refusal.code)


def _away() -> Unavailable:
    return Unavailable("Logins are not possible at the moment: try again in a minute.")
