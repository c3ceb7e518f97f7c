"""A command-line client's requests to an OpenID Connect issuer: discovery, tokens, revocation."""

from dataclasses import dataclass
from datetime import timedelta
from http import HTTPStatus
from typing import Any

import aiohttp
import msgspec
from authlib.oauth2.rfc6749.parameters import prepare_token_request
from authlib.oauth2.rfc8414 import AuthorizationServerMetadata
from yarl import URL

from headgate.cli import claims
from headgate.cli.failures import CommandFailure
from headgate.cli.logins import Exchanged, Login
from headgate.client.transport import is_private
from headgate.clock import Clock

TIMEOUT = aiohttp.ClientTimeout(total=15)
MAX_ANSWER_BYTES = 256 * 1024
AWAY = "unreachable"
"""Not an OAuth error: no answer came, or the issuer is out of order (5xx)."""
DEFAULT_SCOPES = ("openid", "profile", "offline_access")
EXCHANGE_GRANT = "urn:ietf:params:oauth:grant-type:token-exchange"
_ENDPOINTS = (
    "authorization_endpoint",
    "device_authorization_endpoint",
    "token_endpoint",
    "revocation_endpoint",
    "jwks_uri",
)
_ACCESS_TOKEN = "urn:ietf:params:oauth:token-type:access_token"  # noqa: S105 - a name of RFC 8693


class IssuerFailure(CommandFailure):
    """The issuer refused or cannot be reached; `error` is its code (RFC 6749, section 5.2)."""

    def __init__(self, sentence: str, *, error: str = "", advice: str = "") -> None:
        super().__init__(sentence, advice=advice, code="issuer_" + (error or "failed"))
        self.error = error


@dataclass(frozen=True, slots=True)
class Demand:
    """How strong (`acr_values`, best first) and how fresh (`max_age`, seconds) a login must be."""

    acr_values: tuple[str, ...] = ()
    max_age: int | None = None

    def form(self) -> dict[str, str]:
        """As parameters of an authorization request (OpenID Connect Core, section 3.1.2.1)."""
        age = {} if self.max_age is None else {"max_age": str(self.max_age)}
        return {**({"acr_values": " ".join(self.acr_values)} if self.acr_values else {}), **age}


@dataclass(frozen=True, slots=True)
class Endpoints:
    """What an issuer's discovery document says that a command line needs; empty: not offered.

    `names_itself`: its redirects carry `iss` (RFC 9207). `exchanges`: RFC 8693 is offered.
    """

    token: str
    authorization: str = ""
    device_authorization: str = ""
    revocation: str = ""
    keys: str = ""
    names_itself: bool = False
    exchanges: bool = False


@dataclass(frozen=True, slots=True)
class Granted:
    """What a grant gave: a login, and what the issuer says of the person (empty: nothing)."""

    login: Login
    id_token: str = ""


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
        self.issuer = issuer
        self.client_id = client_id
        self.audience = " ".join(audiences)
        self.scopes = scopes or DEFAULT_SCOPES
        self.clock = clock
        self._session = session
        self._insecure = insecure
        self._endpoints: Endpoints | None = None

    async def endpoints(self) -> Endpoints:
        """The issuer's endpoints, asked once (RFC 8414; OpenID Connect Discovery 1.0)."""
        if self._endpoints is None:
            url = self.issuer.rstrip("/") + "/.well-known/openid-configuration"
            status, document = await self.call("GET", url)
            if status != HTTPStatus.OK:
                raise IssuerFailure(f"The issuer answers {status} at {url}.")
            self._endpoints = self._checked(document)
        return self._endpoints

    def _checked(self, document: dict[str, Any]) -> Endpoints:
        if document.get("issuer") != self.issuer:
            # Otherwise one issuer could collect tokens that are meant for another (RFC 9207).
            raise IssuerFailure(
                f"The issuer at {self.issuer} calls itself {document.get('issuer')}."
            )
        grants = document.get("grant_types_supported", [])
        named = all(isinstance(document.get(name, ""), str) for name in _ENDPOINTS)
        if not named or not isinstance(grants, list):
            raise IssuerFailure(f"The issuer {self.issuer} describes itself in a way that is none.")
        metadata = AuthorizationServerMetadata(document)
        if not self._insecure:
            try:
                metadata.validate_issuer()
                metadata.validate_token_endpoint()
            except ValueError as error:
                raise IssuerFailure(f"The issuer {self.issuer} is not usable: {error}.") from error
        for name in _ENDPOINTS:
            # The browser is handed one of them: of whatever else an address can start, none.
            url = _address(str(metadata.get(name) or self.issuer))
            if url.scheme != "https" and not (
                url.scheme == "http" and (self._insecure or is_private(url))
            ):
                raise IssuerFailure(f"The issuer {self.issuer} is not usable: {name} is not https.")
        return Endpoints(
            token=str(metadata.get("token_endpoint") or ""),
            authorization=str(metadata.get("authorization_endpoint") or ""),
            device_authorization=str(metadata.get("device_authorization_endpoint") or ""),
            revocation=str(metadata.get("revocation_endpoint") or ""),
            keys=str(metadata.get("jwks_uri") or ""),
            names_itself=metadata.get("authorization_response_iss_parameter_supported") is True,
            exchanges=EXCHANGE_GRANT in grants,
        )

    async def grant(self, grant_type: str, **fields: str) -> Granted:
        """One request to the token endpoint (RFC 6749, sections 4.1.3 and 6).

        Raises:
            IssuerFailure: refused, or no bearer token came.
        """
        form = {"audience": self.audience, **fields}
        status, document = await self._token(grant_type, form)
        if status != HTTPStatus.OK:
            raise self.refusal(status, document)
        token, seconds = self._bearer(document)
        refresh, identity = document.get("refresh_token"), document.get("id_token")
        id_token = identity if isinstance(identity, str) else ""
        return Granted(
            Login(
                access_token=token,
                expires_at=self.clock.now() + timedelta(seconds=seconds) if seconds else None,
                refresh_token=refresh if isinstance(refresh, str) else "",
                person=claims.person(token, id_token),
            ),
            id_token,
        )

    async def refresh(self, refresh_token: str) -> Login:
        """A new access token (RFC 6749, section 6), with the old refresh token if none came."""
        login = (await self.grant("refresh_token", refresh_token=refresh_token)).login
        if login.refresh_token:
            return login
        return msgspec.structs.replace(login, refresh_token=refresh_token)

    async def exchange(self, token: str, audience: str) -> Exchanged:
        """A token of the same person for another audience (RFC 8693, section 2.1).

        Raises:
            IssuerFailure: the issuer does not do that, for this client, token or audience.
        """
        # A refresh token for it would be one more secret to lose, and IAM refuses to give one.
        scope = " ".join(scope for scope in self.scopes if scope != "offline_access")
        form = {
            "subject_token": token,
            "subject_token_type": _ACCESS_TOKEN,
            "audience": audience,
            "scope": scope,
        }
        status, document = await self._token(EXCHANGE_GRANT, form)
        if status != HTTPStatus.OK:
            raise self.refusal(status, document)
        made, seconds = self._bearer(document)
        return Exchanged(
            audience=audience,
            access_token=made,
            expires_at=self.clock.now() + timedelta(seconds=seconds) if seconds else None,
        )

    async def revoke(self, token: str) -> bool:
        """Ask the issuer to end a token (RFC 7009); False if it does not do that."""
        endpoints = await self.endpoints()
        if not endpoints.revocation:
            return False
        form = {"token": token, "client_id": self.client_id}
        status, _ = await self.call("POST", endpoints.revocation, form)
        return status == HTTPStatus.OK

    async def _token(self, grant_type: str, form: dict[str, str]) -> tuple[int, dict[str, Any]]:
        body = prepare_token_request(grant_type, client_id=self.client_id, **form)
        return await self.call("POST", (await self.endpoints()).token, body)

    def _bearer(self, document: dict[str, Any]) -> tuple[str, float]:
        token = document.get("access_token")
        if not isinstance(token, str) or str(document.get("token_type", "")).lower() != "bearer":
            raise IssuerFailure(f"The issuer {self.issuer} answered without a bearer token.")
        return token, number(document.get("expires_in"), 0.0)

    async def call(
        self, method: str, url: str, form: dict[str, str] | str | None = None
    ) -> tuple[int, dict[str, Any]]:
        """One request: the status, and the JSON object that came (empty: none did).

        Raises:
            IssuerFailure: no answer, or too much of one.
        """
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
                f"The issuer {self.issuer} does not answer ({type(error).__name__}).",
                error=AWAY,
            ) from error
        try:
            document = msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError):
            document = None
        return response.status, document if isinstance(document, dict) else {}

    def refusal(self, status: int, document: dict[str, Any]) -> IssuerFailure:
        """An issuer's error in words."""
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return IssuerFailure(f"The issuer {self.issuer} answers {status}.", error=AWAY)
        error = str(document.get("error") or "")
        words = str(document.get("error_description") or "")
        sentence = _SENTENCES.get(error) or f"The issuer {self.issuer} refused ({error or status})"
        return IssuerFailure(f"{sentence}: {words}" if words else f"{sentence}.", error=error)


_SENTENCES = {
    "access_denied": "The login was denied at the issuer",
    "expired_token": "The code expired before it was approved",
    "invalid_client": "The issuer does not know this client",
    "unauthorized_client": "The issuer does not allow this client to log in in this way",
    "invalid_scope": "The issuer does not give this client the scopes that the site asks for",
    "invalid_target": "The issuer does not know the audience that the site asks for",
    "invalid_grant": "The issuer does not accept this login any more",
    "unmet_authentication_requirements": "The issuer has no login as strong as the site asks for",
}


async def _bounded(response: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for chunk in response.content.iter_chunked(65536):
        body += chunk
        if len(body) > MAX_ANSWER_BYTES:
            raise IssuerFailure(f"{response.url} answered more than {MAX_ANSWER_BYTES} bytes.")
    return bytes(body)


def _address(text: str) -> URL:
    try:
        return URL(text)
    except ValueError:
        return URL()  # a port beyond all, half an IPv6 address: no scheme, so refused


def number(value: object, default: float) -> float:
    """A number that some issuers send as a string (and, for `expires_in`, as a float)."""
    try:
        found = float(str(value))
    except ValueError:
        return default
    return found if 0 < found < 10 * 365 * 86400 else default
