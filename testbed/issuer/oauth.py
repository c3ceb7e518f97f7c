"""The OAuth endpoints beside token and authorization: discovery, keys, what a token is."""

from typing import Any

from aiohttp import web

from testbed.issuer.core import Issuer
from testbed.issuer.directory import UnknownUserError, User
from testbed.issuer.forms import audience_of, bearer, client_of, refused
from testbed.issuer.sign_in import ACR_VALUES
from testbed.issuer.token_endpoint import DEVICE_GRANT, GRANTS, TokenEndpoint
from testbed.issuer.tokens import ALGORITHM, allowed_scopes


def add_routes(app: web.Application, issuer: Issuer) -> None:
    """The OAuth endpoints, at IAM's paths."""
    endpoints = _Endpoints(issuer)
    app.router.add_get("/.well-known/openid-configuration", endpoints.discovery)
    app.router.add_get("/jwk", endpoints.jwk)
    app.router.add_post("/token", TokenEndpoint(issuer).post)
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
        """OpenID Connect Discovery; only what is served is named."""
        url = self._issuer.url
        scopes = {s for c in self._issuer.settings.clients for s in c.scopes}
        return web.json_response(
            {
                "issuer": url,
                "authorization_endpoint": url + "authorize",
                "token_endpoint": url + "token",
                "device_authorization_endpoint": url + "devicecode",
                "jwks_uri": url + "jwk",
                "userinfo_endpoint": url + "userinfo",
                "introspection_endpoint": url + "introspect",
                "revocation_endpoint": url + "revoke",
                "scim_endpoint": url + "scim",
                "grant_types_supported": list(GRANTS),
                "response_types_supported": ["code"],
                "code_challenge_methods_supported": ["S256"],
                "authorization_response_iss_parameter_supported": True,
                "acr_values_supported": list(ACR_VALUES),
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

    async def devicecode(self, request: web.Request) -> web.Response:
        """The device authorization endpoint (RFC 8628, section 3.1)."""
        form = await request.post()
        client = client_of(request, form, self._issuer.directory)
        if client is None:
            return refused("invalid_client", 401)
        if DEVICE_GRANT not in client.grants:
            return refused("unauthorized_client")
        scopes = allowed_scopes(client, str(form.get("scope", "")))
        code = self._issuer.devices.start(
            client.client_id,
            scopes,
            audience_of(form, single=self._issuer.settings.single_audience),
            tuple(str(form.get("acr_values", "")).split()),
        )
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
        client = client_of(request, form, self._issuer.directory)
        if client is None or not client.secret:
            return refused("invalid_client", 401)
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
        if grant.acr:
            document["acr"] = grant.acr
        if grant.auth_time:
            document["auth_time"] = grant.auth_time
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
            return refused("invalid_token", 401)
        try:
            user = self._issuer.directory.user(issued.grant.user)
        except UnknownUserError:
            return refused("invalid_token", 401)
        if not self._issuer.directory.usable(user) or "openid" not in issued.grant.scopes:
            return refused("invalid_token", 401)
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
        client = client_of(request, form, self._issuer.directory)
        if client is None:
            return refused("invalid_client", 401)
        token = str(form.get("token", ""))
        kept = self._issuer.refresh.get(token)
        if kept and kept.client_id == client.client_id:
            del self._issuer.refresh[token]
        issued = self._issuer.tokens.find(token)
        if issued and issued.grant.client_id == client.client_id:
            self._issuer.tokens.revoke(token)
        return web.Response()
