"""The OAuth endpoints: discovery, keys, token, introspection, userinfo, revocation."""

import base64
import binascii
import hmac
import secrets
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import unquote

from aiohttp import web
from multidict import MultiMapping

from testbed.issuer.core import Issuer
from testbed.issuer.device import DeviceCode
from testbed.issuer.directory import Client, UnknownUserError, User
from testbed.issuer.tokens import ALGORITHM, Grant, allowed_scopes

DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"

Form = MultiMapping[Any]


def add_routes(app: web.Application, issuer: Issuer) -> None:
    """The OAuth endpoints, at IAM's paths."""
    endpoints = _Endpoints(issuer)
    app.router.add_get("/.well-known/openid-configuration", endpoints.discovery)
    app.router.add_get("/jwk", endpoints.jwk)
    app.router.add_post("/token", endpoints.token)
    app.router.add_post("/devicecode", endpoints.devicecode)
    app.router.add_post("/introspect", endpoints.introspect)
    app.router.add_get("/userinfo", endpoints.userinfo)
    app.router.add_post("/userinfo", endpoints.userinfo)
    app.router.add_post("/revoke", endpoints.revoke)


class _Endpoints:
    """The handlers; errors are RFC 6749's JSON, section 5.2."""

    def __init__(self, issuer: Issuer) -> None:
        self._issuer = issuer

    async def discovery(self, _: web.Request) -> web.Response:
        """OpenID Connect Discovery; only what is served is named (so no authorization_endpoint)."""
        url = self._issuer.url
        scopes = {s for c in self._issuer.settings.clients for s in c.scopes}
        return web.json_response(
            {
                "issuer": url,
                "token_endpoint": url + "token",
                "device_authorization_endpoint": url + "devicecode",
                "jwks_uri": url + "jwk",
                "userinfo_endpoint": url + "userinfo",
                "introspection_endpoint": url + "introspect",
                "revocation_endpoint": url + "revoke",
                "scim_endpoint": url + "scim",
                "grant_types_supported": [DEVICE_GRANT, "client_credentials", "refresh_token"],
                "response_types_supported": [],
                "subject_types_supported": ["public"],
                "id_token_signing_alg_values_supported": [ALGORITHM],
                "token_endpoint_auth_methods_supported": [
                    "client_secret_basic",
                    "client_secret_post",
                    "none",
                ],
                "scopes_supported": sorted(scopes),
            }
        )

    async def jwk(self, _: web.Request) -> web.Response:
        """The published keys (RFC 7517)."""
        return web.json_response({"keys": self._issuer.tokens.keys.published()})

    async def token(self, request: web.Request) -> web.Response:
        """The token endpoint, for the three grants of discovery."""
        form = await request.post()
        client = self._client(request, form)
        if client is None:
            return _refused("invalid_client", 401)
        grants: Mapping[str, Callable[[Client, Form], Awaitable[web.Response]]] = {
            DEVICE_GRANT: self._by_device_code,
            "client_credentials": self._by_credentials,
            "refresh_token": self._by_refresh_token,
        }
        asked = str(form.get("grant_type", ""))
        if asked not in grants:
            return _refused("unsupported_grant_type")
        if asked not in client.grants:
            return _refused("unauthorized_client")
        return await grants[asked](client, form)

    async def _by_device_code(self, client: Client, form: Form) -> web.Response:
        code = self._issuer.devices.poll(str(form.get("device_code", "")), client.client_id)
        if not isinstance(code, DeviceCode):
            return _refused(code)
        audience = _audience(form) or code.audience
        return self._grant(Grant(client.client_id, code.username, code.scopes, audience))

    async def _by_credentials(self, client: Client, form: Form) -> web.Response:
        if not client.secret:
            return _refused("unauthorized_client")
        scopes = allowed_scopes(client, str(form.get("scope", "")))
        return self._grant(Grant(client.client_id, None, scopes, _audience(form)))

    async def _by_refresh_token(self, client: Client, form: Form) -> web.Response:
        kept = self._issuer.refresh.get(str(form.get("refresh_token", "")))
        if kept is None or kept.client_id != client.client_id:
            return _refused("invalid_grant")
        asked = str(form.get("scope", "")).split()
        if not set(asked) <= set(kept.scopes):
            return _refused("invalid_scope")
        grant = Grant(
            kept.client_id,
            kept.user,
            tuple(asked) or kept.scopes,
            _audience(form) or kept.audience,
        )
        return self._grant(grant, refresh_token=str(form["refresh_token"]))

    def _grant(self, grant: Grant, refresh_token: str = "") -> web.Response:
        """A token response (RFC 6749, section 5.1); a user who is gone gets none."""
        user: User | None = None
        if grant.user is not None:
            try:
                user = self._issuer.directory.user(grant.user)
            except UnknownUserError:
                return _refused("invalid_grant")
            if not self._issuer.directory.usable(user):
                return _refused("invalid_grant")
        seconds = self._issuer.settings.access_token_seconds
        issued = self._issuer.tokens.mint(grant, user, issuer=self._issuer.url, lifetime=seconds)
        if user and "offline_access" in grant.scopes and not refresh_token:
            refresh_token = secrets.token_urlsafe(32)
            self._issuer.refresh[refresh_token] = grant
        document = {
            "access_token": issued.token,
            "token_type": "Bearer",
            "expires_in": seconds,
            "scope": " ".join(grant.scopes),
        }
        if refresh_token:
            document["refresh_token"] = refresh_token
        return web.json_response(document, headers={"Cache-Control": "no-store"})

    async def devicecode(self, request: web.Request) -> web.Response:
        """The device authorization endpoint (RFC 8628, section 3.1)."""
        form = await request.post()
        client = self._client(request, form)
        if client is None:
            return _refused("invalid_client", 401)
        if DEVICE_GRANT not in client.grants:
            return _refused("unauthorized_client")
        scopes = allowed_scopes(client, str(form.get("scope", "")))
        code = self._issuer.devices.start(client.client_id, scopes, _audience(form))
        page = self._issuer.url + "device"
        return web.json_response(
            {
                "device_code": code.device_code,
                "user_code": code.user_code,
                "verification_uri": page,
                "verification_uri_complete": f"{page}?user_code={code.user_code}",
                "expires_in": self._issuer.settings.device_code_seconds,
                "interval": code.interval,
            },
            headers={"Cache-Control": "no-store"},
        )

    async def introspect(self, request: web.Request) -> web.Response:
        """RFC 7662 as IAM's `iam` profile answers; only the caller's own scopes are shown."""
        form = await request.post()
        client = self._client(request, form)
        if client is None or not client.secret:
            return _refused("invalid_client", 401)
        issued = self._issuer.tokens.find(str(form.get("token", "")))
        if issued is None:
            return web.json_response({"active": False})
        grant = issued.grant
        scopes = [scope for scope in grant.scopes if scope in client.scopes]
        document: dict[str, Any] = {
            "active": True,
            "iss": self._issuer.url,
            "sub": issued.subject,
            "client_id": grant.client_id,
            "exp": issued.expires_at,
            "scope": " ".join(scopes),
            "token_type": "Bearer",
        }
        if grant.audience:
            document["aud"] = " ".join(grant.audience)
        if grant.user is not None:
            try:
                user = self._issuer.directory.user(grant.user)
            except UnknownUserError:
                return web.json_response({"active": False})
            if not self._issuer.directory.usable(user):
                return web.json_response({"active": False})
            document |= self._about(user, scopes)
        return web.json_response(document)

    async def userinfo(self, request: web.Request) -> web.Response:
        """OpenID Connect Core, section 5.3, with IAM's additions."""
        issued = self._issuer.tokens.find(bearer(request))
        if issued is None or issued.grant.user is None:
            return _refused("invalid_token", 401)
        try:
            user = self._issuer.directory.user(issued.grant.user)
        except UnknownUserError:
            return _refused("invalid_token", 401)
        if not self._issuer.directory.usable(user) or "openid" not in issued.grant.scopes:
            return _refused("invalid_token", 401)
        return web.json_response({"sub": user.id, **self._about(user, issued.grant.scopes)})

    def _about(self, user: User, scopes: tuple[str, ...] | list[str]) -> dict[str, Any]:
        """Claims about a user that these scopes open."""
        claims: dict[str, Any] = {}
        if "profile" in scopes:
            claims |= {
                "name": user.full_name,
                "preferred_username": user.username,
                "given_name": user.given_name,
                "family_name": user.family_name,
                "organisation_name": self._issuer.settings.organisation,
                "groups": list(user.groups),
            }
        if "email" in scopes and user.email:
            claims |= {"email": user.email, "email_verified": True}
        return {name: value for name, value in claims.items() if value != ""}

    async def revoke(self, request: web.Request) -> web.Response:
        """RFC 7009: 200 whether or not there was such a token."""
        form = await request.post()
        client = self._client(request, form)
        if client is None:
            return _refused("invalid_client", 401)
        token = str(form.get("token", ""))
        kept = self._issuer.refresh.get(token)
        if kept and kept.client_id == client.client_id:
            del self._issuer.refresh[token]
        issued = self._issuer.tokens.find(token)
        if issued and issued.grant.client_id == client.client_id:
            self._issuer.tokens.revoke(token)
        return web.Response()

    def _client(self, request: web.Request, form: Form) -> Client | None:
        """The authenticated client: Basic, in the form, or public (RFC 6749, section 2.3)."""
        basic = _basic(request)
        client_id, secret = basic or (
            str(form.get("client_id", "")),
            str(form.get("client_secret", "")),
        )
        client = self._issuer.directory.client(client_id)
        if client is None or not hmac.compare_digest(client.secret.encode(), secret.encode()):
            return None
        return client


def bearer(request: web.Request) -> str:
    """The bearer token of a request, or an empty string."""
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def _basic(request: web.Request) -> tuple[str, str] | None:
    scheme, _, value = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        name, _, secret = base64.b64decode(value, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return "", ""
    return unquote(name), unquote(secret)


def _audience(form: Form) -> tuple[str, ...]:
    """`audience`, words of it or repeated, and RFC 8707's `resource`."""
    words = [word for value in form.getall("audience", []) for word in str(value).split()]
    words += [str(value) for value in form.getall("resource", [])]
    return tuple(dict.fromkeys(words))


def _refused(error: str, status: int = 400) -> web.Response:
    headers = {"WWW-Authenticate": f'Bearer error="{error}"'} if status == 401 else {}  # noqa: PLR2004 - RFC 6750's own status
    return web.json_response({"error": error}, status=status, headers=headers)
