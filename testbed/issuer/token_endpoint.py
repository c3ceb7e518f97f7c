"""The token endpoint: each grant, and the answer to all of them."""

import dataclasses
import secrets
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from aiohttp import web

from testbed.issuer.authorize import CODE_GRANT
from testbed.issuer.core import Issuer
from testbed.issuer.device import DeviceCode
from testbed.issuer.directory import Client, UnknownUserError, User
from testbed.issuer.forms import Form, audience_of, client_of, refused
from testbed.issuer.tokens import Grant, allowed_scopes

DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
EXCHANGE_GRANT = "urn:ietf:params:oauth:grant-type:token-exchange"
ACCESS_TOKEN = "urn:ietf:params:oauth:token-type:access_token"  # noqa: S105 - a name of RFC 8693
GRANTS = (CODE_GRANT, DEVICE_GRANT, "client_credentials", "refresh_token", EXCHANGE_GRANT)


class TokenEndpoint:
    """`POST /token`."""

    def __init__(self, issuer: Issuer) -> None:
        self._issuer = issuer

    async def post(self, request: web.Request) -> web.Response:
        """A token response, or why not (RFC 6749, section 5)."""
        form = await request.post()
        client = client_of(request, form, self._issuer.directory)
        if client is None:
            return refused("invalid_client", 401)
        grants: Mapping[str, Callable[[Client, Form], Awaitable[web.Response]]] = {
            CODE_GRANT: self._by_code,
            DEVICE_GRANT: self._by_device_code,
            "client_credentials": self._by_credentials,
            "refresh_token": self._by_refresh_token,
            EXCHANGE_GRANT: self._by_exchange,
        }
        asked = str(form.get("grant_type", ""))
        if asked not in grants:
            return refused("unsupported_grant_type")
        if asked not in client.grants:
            return refused("unauthorized_client")
        return await grants[asked](client, form)

    async def _by_code(self, client: Client, form: Form) -> web.Response:
        code = self._issuer.codes.find(str(form.get("code", "")))
        if code is None:
            return refused("invalid_grant")
        if code.spent:
            # Somebody else has it too: what came of it ends (RFC 6749, section 4.1.2).
            for token in code.tokens:
                self._issuer.refresh.pop(token, None)
                self._issuer.tokens.revoke(token)
        if not self._issuer.codes.fits(
            code,
            client_id=client.client_id,
            redirect_uri=str(form.get("redirect_uri", "")),
            verifier=str(form.get("code_verifier", "")),
        ):
            return refused("invalid_grant")
        code.spent = True
        return self._grant(
            code.authorization.grant, nonce=code.authorization.nonce, made=code.tokens
        )

    async def _by_device_code(self, client: Client, form: Form) -> web.Response:
        code = self._issuer.devices.poll(str(form.get("device_code", "")), client.client_id)
        if not isinstance(code, DeviceCode):
            return refused(code)
        audience = self._audience(form) or code.audience
        return self._grant(
            Grant(client.client_id, code.username, code.scopes, audience, code.acr, code.auth_time)
        )

    async def _by_credentials(self, client: Client, form: Form) -> web.Response:
        if not client.secret:
            return refused("unauthorized_client")
        scopes = allowed_scopes(client, str(form.get("scope", "")))
        return self._grant(Grant(client.client_id, None, scopes, self._audience(form)))

    async def _by_refresh_token(self, client: Client, form: Form) -> web.Response:
        given = str(form.get("refresh_token", ""))
        kept = self._issuer.refresh.get(given)
        if kept is None or kept.client_id != client.client_id:
            return refused("invalid_grant")
        asked = str(form.get("scope", "")).split()
        if not set(asked) <= set(kept.scopes):
            return refused("invalid_scope")
        if not client.reuse_refresh_tokens:
            # The new one stands for all that the old one stood for (RFC 6749, section 6).
            del self._issuer.refresh[given]
            given = self._new_refresh_token(kept)
        grant = dataclasses.replace(
            kept, scopes=tuple(asked) or kept.scopes, audience=self._audience(form) or kept.audience
        )
        return self._grant(grant, refresh_token=given)

    async def _by_exchange(self, client: Client, form: Form) -> web.Response:
        """RFC 8693 as IAM has it: `scope` must be said, and the one who asks becomes the actor."""
        subject = self._issuer.tokens.find(str(form.get("subject_token", "")))
        known = form.get("subject_token_type") == ACCESS_TOKEN
        asked = str(form.get("scope", "")).split()
        if subject is None or not known or not asked:
            return refused("invalid_request")
        same = subject.grant.client_id == client.client_id
        if not set(asked) <= set(client.scopes) or (same and "offline_access" in asked):
            return refused("invalid_scope")
        grant = dataclasses.replace(
            subject.grant,
            client_id=client.client_id,
            scopes=tuple(asked),
            audience=self._audience(form),
        )
        before = (self._issuer.tokens.keys.verify(subject.token) or {}).get("act")
        actor = {"sub": client.client_id, **({"act": before} if before else {})}
        return self._grant(grant, actor=actor, issued_token_type=ACCESS_TOKEN)

    def _audience(self, form: Form) -> tuple[str, ...]:
        return audience_of(form, single=self._issuer.settings.single_audience)

    def _new_refresh_token(self, grant: Grant) -> str:
        token = secrets.token_urlsafe(32)
        self._issuer.refresh[token] = grant
        return token

    def _grant(
        self,
        grant: Grant,
        *,
        refresh_token: str = "",
        nonce: str = "",
        actor: Mapping[str, Any] | None = None,
        made: list[str] | None = None,
        **members: str,
    ) -> web.Response:
        """A token response (RFC 6749, section 5.1); a user who is gone gets none.

        What can end a login is added to `made`; `members` are put into the document.
        """
        user: User | None = None
        if grant.user is not None:
            try:
                user = self._issuer.directory.user(grant.user)
            except UnknownUserError:
                return refused("invalid_grant")
            if not self._issuer.directory.usable(user):
                return refused("invalid_grant")
        seconds, url = self._issuer.settings.access_token_seconds, self._issuer.url
        issued = self._issuer.tokens.mint(
            grant, user, issuer=url, lifetime=seconds, actor=actor or ""
        )
        if user and "offline_access" in grant.scopes and not refresh_token:
            refresh_token = self._new_refresh_token(grant)
        document: dict[str, Any] = {
            "access_token": issued.token,
            "token_type": "Bearer",
            "expires_in": seconds,
            "scope": " ".join(grant.scopes),
            **members,
        }
        if refresh_token:
            document["refresh_token"] = refresh_token
        if user and "openid" in grant.scopes and not members:
            document["id_token"] = self._issuer.tokens.identity(
                grant, user, issuer=url, lifetime=seconds, nonce=nonce, token=issued.token
            )
        if made is not None:
            made += [token for token in (issued.token, refresh_token) if token]
        return web.json_response(document, headers={"Cache-Control": "no-store"})
