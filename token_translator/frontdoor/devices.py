"""A login by browser, begun at the prompt: the device authorization grant (RFC 8628).

It can be phished: whoever shows somebody else's code to a person gets in as that person. So it is
off unless it is set, for listed networks only, with codes of five minutes at most.
"""

import ipaddress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Any
from urllib.parse import urlsplit

import aiohttp
import msgspec
import structlog
from authlib.oidc.discovery import get_well_known_url

from headgate.clock import Clock
from headgate.discovery import json_object
from headgate.problems import Unauthenticated, Unavailable
from headgate.settings import Section

log = structlog.get_logger(__name__)

GRANT = "urn:ietf:params:oauth:grant-type:device_code"
TIMEOUT = aiohttp.ClientTimeout(total=10)
SLOWER_SECONDS = 5.0
LONGEST_CODE = 64
_MISSHAPEN = (aiohttp.ClientError, TimeoutError, ValueError, KeyError, TypeError)
_ENDED = {
    "access_denied": "The login was refused in the browser.",
    "expired_token": "The code has expired.",
}


class DeviceFlowSettings(Section, frozen=True):
    """Whose people may log in by browser, and from where.

    `issuer` is one of the trusted ones, `client_id` ours with it (`client_secret_file`: its secret,
    0600); `networks` are CIDR; `code_seconds` is how long a code may be used, at most 300.
    """

    issuer: str
    client_id: str
    networks: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
    client_secret_file: str = ""
    scopes: tuple[str, ...] = ("openid", "profile")
    code_seconds: Annotated[int, msgspec.Meta(ge=30, le=300)] = 300

    def __post_init__(self) -> None:
        """Refuse networks that are none.

        Raises:
            ValueError: one is not in CIDR form.
        """
        for network in self.networks:
            ipaddress.ip_network(network)


@dataclass(frozen=True, slots=True)
class Pending:
    """A code that waits for its person; times in monotonic seconds."""

    device_code: str
    user_code: str
    uri: str
    until: float
    interval: float
    token_endpoint: str

    @property
    def instruction(self) -> str:
        """What the person does, and what nobody else may make them do."""
        return (
            f"To log in by browser, open {self.uri} and enter the code {self.user_code}; then "
            "press Enter here.\nNever enter a code that somebody else gave you.\n"
        )


class _Started(msgspec.Struct, frozen=True):
    device_code: str
    user_code: str
    verification_uri: str
    expires_in: float
    interval: float = 5.0


class DeviceFlow:
    """Asks one issuer for codes and for what became of them."""

    def __init__(
        self,
        settings: DeviceFlowSettings,
        *,
        secret: str,
        audience: str,
        session: aiohttp.ClientSession,
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._networks = tuple(ipaddress.ip_network(network) for network in settings.networks)
        self._client = {"client_id": settings.client_id}
        if secret:
            self._client["client_secret"] = secret
        self._audience = audience
        self._session = session
        self._clock = clock

    @property
    def seconds(self) -> int:
        """How long a login by browser may take."""
        return self._settings.code_seconds

    def offered_to(self, address: str) -> bool:
        """Whether somebody at that address may log in so."""
        found = ipaddress.ip_address(address.partition("%")[0])
        mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
        return any((mapped or found) in network for network in self._networks)

    async def begin(self) -> Pending:
        """A new code.

        Raises:
            Unavailable: the issuer does not give one.
        """
        try:
            url = get_well_known_url(self._settings.issuer, external=True)
            async with self._session.get(url, allow_redirects=False, timeout=TIMEOUT) as response:
                metadata = await json_object(response)
            form = {**self._client, "scope": " ".join(self._settings.scopes)}
            # RFC 8707 says `resource`, INDIGO IAM and others `audience`.
            form["audience"] = self._audience
            status, document = await self._post(
                self._own(metadata, "device_authorization_endpoint"), form
            )
            if status != HTTPStatus.OK:
                raise ValueError(f"status {status}")
            started = msgspec.convert(document, _Started)
            return self._pending(started, self._own(metadata, "token_endpoint"))
        except _MISSHAPEN as error:
            log.warning("device_flow_away", error=repr(error))
            raise Unavailable("The token issuer gives no codes at the moment.") from error

    async def token(self, pending: Pending) -> str:
        """The access token, once the person has confirmed the code.

        Raises:
            Unauthenticated: they did not. Unavailable: the issuer does not say.
        """
        interval = pending.interval
        while self._clock.monotonic() < pending.until:
            form = {**self._client, "grant_type": GRANT, "device_code": pending.device_code}
            try:
                status, document = await self._post(pending.token_endpoint, form)
                if status == HTTPStatus.OK:
                    return str(document["access_token"])
                said = str(document["error"])
            except _MISSHAPEN as error:
                log.warning("device_flow_away", error=repr(error))
                raise Unavailable("The token issuer does not answer.") from error
            if said not in {"authorization_pending", "slow_down"}:
                raise Unauthenticated(_ENDED.get(said, "The issuer gives no token for this code."))
            if said == "slow_down":
                interval += SLOWER_SECONDS
            await self._clock.sleep(interval)
        raise Unauthenticated(_ENDED["expired_token"])

    def _pending(self, started: _Started, token_endpoint: str) -> Pending:
        if len(started.user_code) > LONGEST_CODE or not started.user_code.isprintable():
            raise ValueError("not a code that could be shown")
        if not started.verification_uri.isascii() or not started.verification_uri.isprintable():
            raise ValueError("not an address that could be shown")
        seconds = min(started.expires_in, float(self._settings.code_seconds))
        return Pending(
            device_code=started.device_code,
            user_code=started.user_code,
            uri=started.verification_uri,
            until=self._clock.monotonic() + seconds,
            interval=max(started.interval, 1.0),
            token_endpoint=token_endpoint,
        )

    def _own(self, metadata: dict[str, Any], name: str) -> str:
        """An endpoint, which has to be on the issuer's own origin: it gets our secret."""
        if metadata["issuer"] != self._settings.issuer:
            raise ValueError(f"discovery names the issuer {metadata['issuer']!r}")
        url = str(metadata[name])
        if urlsplit(url)[:2] != urlsplit(self._settings.issuer)[:2]:
            raise ValueError(f"{name} is on another origin")
        return url

    async def _post(self, url: str, form: dict[str, str]) -> tuple[int, dict[str, Any]]:
        async with self._session.post(
            url, data=form, allow_redirects=False, timeout=TIMEOUT
        ) as response:
            return response.status, await json_object(response)
