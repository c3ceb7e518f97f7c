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
from token_translator.frontdoor.words import plain

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
            raise refusal(status, document)
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
    requested_at: str = ""
    rules: tuple[str, ...] = ()
    acr_values: tuple[str, ...] = ()
    max_age: int | None = None


def refusal(status: int, document: bytes) -> Forbidden | Unavailable:
    """What the person gets to read of the translator's refusal (RFC 9457)."""
    try:
        said = msgspec.json.decode(document, type=_Refusal)
    except msgspec.MsgspecError:
        log.exception("translator_answer", status=status)
        return _away()
    theirs = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.TOO_MANY_REQUESTS)
    if status not in theirs or said.code in _OURS:
        log.error("translator_refuses_us", status=status, code=said.code, detail=said.detail)
        return _away()
    return Forbidden(plain(_words(said)), code=said.code)


def _words(said: _Refusal) -> str:
    match said.code:
        case "no_rule":
            needed = "; ".join(said.rules)
            return f"You are not authorised to log in here. What would be needed: {needed}"
        case "insufficient_user_authentication":
            return f"A stronger or a more recent login is needed: {_stronger(said)}."
    more = [word for word in (said.waiting_for, said.how_to_ask) if word not in said.detail]
    if said.requested_at:
        more.append(f"It was asked for at {said.requested_at}.")
    return " ".join([said.detail, *more])


def _stronger(said: _Refusal) -> str:
    login = [f"acr {' or '.join(said.acr_values)}"] if said.acr_values else []
    if said.max_age is not None:
        login.append(f"of a login within {said.max_age} seconds")
    return f"get a token with {', '.join(login)}, and come again"


def _away() -> Unavailable:
    return Unavailable("Logins are not possible at the moment: try again in a minute.")
