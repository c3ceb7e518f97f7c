"""What a command-line client asks of an OpenID Connect issuer: device flow, refresh, revocation."""

from dataclasses import dataclass
from datetime import timedelta
from http import HTTPStatus
from typing import Any

import aiohttp
import msgspec
from authlib.oauth2.rfc6749.parameters import prepare_token_request
from authlib.oauth2.rfc8414 import AuthorizationServerMetadata
from authlib.oauth2.rfc8628 import DEVICE_CODE_GRANT_TYPE

from headgate.cli.failures import CommandFailure
from headgate.cli.logins import Login
from headgate.clock import Clock

TIMEOUT = aiohttp.ClientTimeout(total=15)
MAX_ANSWER_BYTES = 256 * 1024
DEFAULT_INTERVAL_SECONDS = 5.0
SLOWER_SECONDS = 5.0
LONGEST_INTERVAL_SECONDS = 60.0
AWAY = "unreachable"
"""Not an OAuth error: no answer came, or the issuer is out of order (5xx)."""
DEFAULT_SCOPES = ("openid", "profile", "offline_access")


class IssuerFailure(CommandFailure):
    """The issuer refused or cannot be reached; `error` is its code (RFC 6749, section 5.2)."""

    def __init__(self, sentence: str, *, error: str = "", advice: str = "") -> None:
        super().__init__(sentence, advice=advice, code="issuer_" + (error or "failed"))
        self.error = error


@dataclass(frozen=True, slots=True)
class Endpoints:
    """What an issuer's discovery document says that a device needs."""

    token: str
    device_authorization: str
    revocation: str


@dataclass(frozen=True, slots=True)
class DeviceCode:
    """A started device flow (RFC 8628, section 3.2). `expires_in` and `interval` are seconds."""

    device_code: str
    user_code: str
    verification_uri: str
    verification_uri_complete: str
    expires_in: float
    interval: float


class IssuerClient:
    """A public client of one issuer: it has an id and no secret."""

    def __init__(
        self,
        *,
        session: aiohttp.ClientSession,
        clock: Clock,
        issuer: str,
        client_id: str,
        audiences: tuple[str, ...],
        scopes: tuple[str, ...] = (),
        insecure: bool = False,
    ) -> None:
        self._session = session
        self._clock = clock
        self._issuer = issuer
        self._client_id = client_id
        self._audience = " ".join(audiences)
        self._scope = " ".join(scopes or DEFAULT_SCOPES)
        self._insecure = insecure
        self._endpoints: Endpoints | None = None

    async def endpoints(self) -> Endpoints:
        """The issuer's endpoints, asked once (RFC 8414; OpenID Connect Discovery 1.0)."""
        if self._endpoints is None:
            url = self._issuer.rstrip("/") + "/.well-known/openid-configuration"
            status, document = await self._call("GET", url)
            if status != HTTPStatus.OK:
                raise IssuerFailure(f"The issuer answers {status} at {url}.")
            self._endpoints = self._checked(document)
        return self._endpoints

    def _checked(self, document: dict[str, Any]) -> Endpoints:
        if document.get("issuer") != self._issuer:
            # Otherwise one issuer could collect tokens that are meant for another (RFC 9207).
            raise IssuerFailure(
                f"The issuer at {self._issuer} calls itself {document.get('issuer')}."
            )
        metadata = AuthorizationServerMetadata(document)
        if not self._insecure:
            try:
                metadata.validate_issuer()
                metadata.validate_token_endpoint()
            except ValueError as error:
                raise IssuerFailure(f"The issuer {self._issuer} is not usable: {error}.") from error
        return Endpoints(
            token=str(metadata.get("token_endpoint") or ""),
            device_authorization=str(metadata.get("device_authorization_endpoint") or ""),
            revocation=str(metadata.get("revocation_endpoint") or ""),
        )

    async def start(self) -> DeviceCode:
        """Begin a device flow: what to show to the person (RFC 8628, section 3.1).

        Raises:
            IssuerFailure: the issuer has no device flow, or refuses this client or its scopes.
        """
        endpoints = await self.endpoints()
        if not endpoints.device_authorization:
            raise IssuerFailure(
                f"The issuer {self._issuer} offers no device flow.",
                advice="Get a token in another way and set HEADGATE_TOKEN.",
            )
        form = {"client_id": self._client_id, "scope": self._scope, "audience": self._audience}
        status, document = await self._call(
            "POST", endpoints.device_authorization, {k: v for k, v in form.items() if v}
        )
        if status != HTTPStatus.OK:
            raise self._refusal(status, document)
        page = document.get("verification_uri") or document.get("verification_url") or ""
        return DeviceCode(
            device_code=str(document.get("device_code") or ""),
            user_code=str(document.get("user_code") or ""),
            verification_uri=str(page),
            verification_uri_complete=str(document.get("verification_uri_complete") or ""),
            expires_in=_number(document.get("expires_in"), 600.0),
            interval=_number(document.get("interval"), DEFAULT_INTERVAL_SECONDS),
        )

    async def finish(self, code: DeviceCode) -> Login:
        """Wait until the person has decided (RFC 8628, sections 3.4 and 3.5).

        Raises:
            IssuerFailure: denied, or the code expired first.
        """
        endpoints = await self.endpoints()
        interval = max(code.interval, 0.1)
        ends = self._clock.monotonic() + code.expires_in
        while self._clock.monotonic() < ends:
            await self._clock.sleep(interval)
            try:
                return await self._token(
                    endpoints.token, DEVICE_CODE_GRANT_TYPE, device_code=code.device_code
                )
            except IssuerFailure as failure:
                if failure.error == "slow_down":
                    interval += SLOWER_SECONDS
                elif failure.error == AWAY:
                    # A connection that times out: reduce the pace (section 3.5).
                    interval = min(interval * 2, LONGEST_INTERVAL_SECONDS)
                elif failure.error != "authorization_pending":
                    raise
        raise IssuerFailure("The code expired before it was approved.", error="expired_token")

    async def refresh(self, refresh_token: str) -> Login:
        """A new access token (RFC 6749, section 6), with the old refresh token if none came."""
        endpoints = await self.endpoints()
        login = await self._token(endpoints.token, "refresh_token", refresh_token=refresh_token)
        if login.refresh_token:
            return login
        return msgspec.structs.replace(login, refresh_token=refresh_token)

    async def revoke(self, token: str) -> bool:
        """Ask the issuer to end a token (RFC 7009); False if it does not do that."""
        endpoints = await self.endpoints()
        if not endpoints.revocation:
            return False
        form = {"token": token, "client_id": self._client_id}
        status, _ = await self._call("POST", endpoints.revocation, form)
        return status == HTTPStatus.OK

    async def _token(self, url: str, grant_type: str, **fields: str) -> Login:
        body = prepare_token_request(
            grant_type, client_id=self._client_id, audience=self._audience, **fields
        )
        status, document = await self._call("POST", url, body)
        if status != HTTPStatus.OK:
            raise self._refusal(status, document)
        token = document.get("access_token")
        if not isinstance(token, str) or str(document.get("token_type", "")).lower() != "bearer":
            raise IssuerFailure(f"The issuer {self._issuer} answered without a bearer token.")
        lifetime = _number(document.get("expires_in"), 0.0)
        refresh = document.get("refresh_token")
        return Login(
            access_token=token,
            expires_at=self._clock.now() + timedelta(seconds=lifetime) if lifetime else None,
            refresh_token=refresh if isinstance(refresh, str) else "",
        )

    async def _call(
        self, method: str, url: str, form: dict[str, str] | str | None = None
    ) -> tuple[int, dict[str, Any]]:
        headers = {"Accept": "application/json"}
        if isinstance(form, str):
            headers["Content-Type"] = "application/x-www-form-urlencoded"
        try:
            async with self._session.request(
                method, url, data=form, headers=headers, allow_redirects=False, timeout=TIMEOUT
            ) as response:
                body = await _bounded(response)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise IssuerFailure(
                f"The issuer {self._issuer} does not answer ({type(error).__name__}).",
                error=AWAY,
            ) from error
        try:
            document = msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError):
            document = None
        return response.status, document if isinstance(document, dict) else {}

    def _refusal(self, status: int, document: dict[str, Any]) -> IssuerFailure:
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return IssuerFailure(f"The issuer {self._issuer} answers {status}.", error=AWAY)
        error = str(document.get("error") or "")
        words = str(document.get("error_description") or "")
        sentence = _SENTENCES.get(error) or f"The issuer {self._issuer} refused ({error or status})"
        return IssuerFailure(f"{sentence}: {words}" if words else f"{sentence}.", error=error)


_SENTENCES = {
    "access_denied": "The login was denied at the issuer",
    "expired_token": "The code expired before it was approved",
    "invalid_client": "The issuer does not know this client",
    "unauthorized_client": "The issuer does not allow this client to log in from a terminal",
    "invalid_scope": "The issuer does not give this client the scopes that the site asks for",
    "invalid_target": "The issuer does not know the audience that the site asks for",
    "invalid_grant": "The issuer does not accept this login any more",
}


async def _bounded(response: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for chunk in response.content.iter_chunked(65536):
        body += chunk
        if len(body) > MAX_ANSWER_BYTES:
            raise IssuerFailure(f"{response.url} answered more than {MAX_ANSWER_BYTES} bytes.")
    return bytes(body)


def _number(value: object, default: float) -> float:
    """A number that some issuers send as a string (and, for `expires_in`, as a float)."""
    try:
        number = float(str(value))
    except ValueError:
        return default
    return number if 0 < number < 10 * 365 * 86400 else default
