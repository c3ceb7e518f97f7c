"""The authorization endpoint: code with PKCE for public and other clients, and its page."""

import html
import re
import secrets
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from aiohttp import web
from multidict import MultiMapping
from yarl import URL

from testbed.issuer import sign_in
from testbed.issuer.codes import Authorization
from testbed.issuer.core import Issuer
from testbed.issuer.directory import Client
from testbed.issuer.sign_in import ACR_VALUES, Session, SignInRefusedError
from testbed.issuer.tokens import Grant, allowed_scopes

COOKIE = "issuer_session"
CODE_GRANT = "authorization_code"
_CHALLENGE = re.compile(r"[A-Za-z0-9_-]{43}")
_CARRIED = (
    "response_type",
    "client_id",
    "redirect_uri",
    "scope",
    "state",
    "nonce",
    "audience",
    "code_challenge",
    "code_challenge_method",
    "acr_values",
    "max_age",
    "prompt",
)

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{organisation}: sign in</title></head>
<body><h1>{organisation}</h1>{message}
<form method="post" action="authorize">{hidden}
<p>{client} wants to act for you.</p>{fields}
<p><button name="decision" value="approve">Sign in</button>
<button name="decision" value="deny">Deny</button></p>
</form></body></html>
"""


@dataclass(frozen=True, slots=True)
class _Asked:
    """A request whose client and redirect URI are known: it may be answered by a redirect."""

    client: Client
    redirect_uri: str
    fields: MultiMapping[Any]

    def __getitem__(self, name: str) -> str:
        return str(self.fields.get(name, ""))

    @property
    def acr_values(self) -> tuple[str, ...]:
        return tuple(self["acr_values"].split())

    @property
    def max_age(self) -> int | None:
        return int(self["max_age"]) if self["max_age"].isdigit() else None

    def fault(self) -> str:
        """The `error` of RFC 6749, section 4.1.2.1, if this cannot be granted."""
        if CODE_GRANT not in self.client.grants:
            return "unauthorized_client"
        if self["response_type"] != "code":
            return "unsupported_response_type"
        challenge, method = self["code_challenge"], self["code_challenge_method"]
        if method != "S256" or not _CHALLENGE.fullmatch(challenge):
            return "invalid_request"
        if self.acr_values and not set(self.acr_values) & set(ACR_VALUES):
            return "unmet_authentication_requirements"
        return ""


def add_routes(app: web.Application, issuer: Issuer) -> None:
    """`/authorize`: the page, and its answer."""
    endpoint = _Endpoint(issuer)
    app.router.add_get("/authorize", endpoint.show)
    app.router.add_post("/authorize", endpoint.decide)


class _Endpoint:
    def __init__(self, issuer: Issuer) -> None:
        self._issuer = issuer

    async def show(self, request: web.Request) -> web.StreamResponse:
        """The page; or at once a code for somebody who is signed in, strongly enough."""
        asked = self._asked(request.query)
        if asked is None:
            return _stranger()
        if fault := asked.fault():
            return self._back(asked, error=fault)
        session = self._issuer.sessions.get(request.cookies.get(COOKIE, ""))
        now = int(self._issuer.clock.now().timestamp())
        enough = session and session.satisfies(asked.acr_values, asked.max_age, now)
        if session and enough and asked["prompt"] != "login":
            return self._granted(asked, session)
        if asked["prompt"] == "none":
            return self._back(asked, error="login_required")
        return self._page(asked)

    async def decide(self, request: web.Request) -> web.StreamResponse:
        """What the person decided."""
        form = await request.post()
        asked = self._asked(form)
        if asked is None:
            return _stranger()
        if fault := asked.fault():
            return self._back(asked, error=fault)
        if form.get("decision", "approve") == "deny":
            return self._back(asked, error="access_denied")
        try:
            session = sign_in.sign_in(
                form,
                directory=self._issuer.directory,
                clock=self._issuer.clock,
                acr_values=asked.acr_values,
            )
        except SignInRefusedError as error:
            return self._page(asked, str(error), error.status)
        answer = self._granted(asked, session)
        key = secrets.token_urlsafe(32)
        self._issuer.sessions[key] = session
        answer.set_cookie(COOKIE, key, httponly=True, samesite="Lax")
        return answer

    def _asked(self, fields: MultiMapping[Any]) -> _Asked | None:
        client = self._issuer.directory.client(str(fields.get("client_id", "")))
        redirect_uri = str(fields.get("redirect_uri", ""))
        if client is None or not _registered(redirect_uri, client.redirect_uris):
            return None
        return _Asked(client, redirect_uri, fields)

    def _granted(self, asked: _Asked, session: Session) -> web.Response:
        audience = tuple(dict.fromkeys(asked["audience"].split()))
        grant = Grant(
            asked.client.client_id,
            session.username,
            allowed_scopes(asked.client, asked["scope"]),
            audience[:1] if self._issuer.settings.single_audience else audience,
            session.acr,
            session.at,
        )
        authorization = Authorization(
            asked.redirect_uri, asked["code_challenge"], asked["nonce"], grant
        )
        return self._back(asked, code=self._issuer.codes.start(authorization))

    def _back(self, asked: _Asked, **answer: str) -> web.Response:
        """A redirect to the client, with its state and our name (RFC 9207)."""
        state = {"state": asked["state"]} if asked["state"] else {}
        place = URL(asked.redirect_uri).update_query({**answer, **state, "iss": self._issuer.url})
        headers = {"Location": str(place), "Cache-Control": "no-store"}
        return web.Response(status=302, headers=headers)

    def _page(self, asked: _Asked, message: str = "", status: int = 200) -> web.Response:
        hidden = "".join(
            f'<input type="hidden" name="{name}" value="{html.escape(asked[name])}">'
            for name in _CARRIED
            if name in asked.fields
        )
        text = _PAGE.format(
            organisation=html.escape(self._issuer.settings.organisation),
            message=f"<p>{html.escape(message)}</p>" if message else "",
            hidden=hidden,
            client=html.escape(asked.client.client_id),
            fields=sign_in.fields(self._issuer.directory, asked.acr_values),
        )
        return web.Response(text=text, status=status, content_type="text/html")


def _stranger() -> web.Response:
    # An answer to an unknown address would hand codes and errors to anybody (RFC 6749, 4.1.2.1).
    return web.Response(status=400, text="This client or its redirect URI is not registered.\n")


def _registered(redirect_uri: str, known: tuple[str, ...]) -> bool:
    if redirect_uri in known:
        return True
    plain = _without_loopback_port(redirect_uri)
    return bool(plain) and plain in {_without_loopback_port(uri) for uri in known}


def _without_loopback_port(uri: str) -> str:
    try:
        parts = urlsplit(uri)
        _ = parts.port
    except ValueError:
        return ""
    loopback = parts.hostname in {"127.0.0.1", "::1"} and parts.scheme == "http"
    if not loopback or parts.fragment or "@" in parts.netloc:
        return ""
    return parts._replace(netloc=str(parts.hostname)).geturl()
