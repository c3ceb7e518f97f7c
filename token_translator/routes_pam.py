"""The small HTTP contract of existing PAM modules and wrappers (motley_cue's): paths and shapes.

A credential comes in `Authorization: Bearer` and nowhere else. What changes something is POST; the
GET forms that wrappers use do no more than write a request down, which somebody decides about.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from aiohttp import web

from headgate.problems import Forbidden, Invalid, NotFound
from headgate.web import REQUEST_ID, bearer_token, json_body, json_response
from token_translator.callers import Callers
from token_translator.one_time_passwords import SHAPE
from token_translator.pam import PamLogins, State

DESCRIPTION = "This is the user API for mapping remote identities to local identities."
"""By this sentence wrappers know that they have found the service."""
MAX_USERNAME = 64
CREDENTIALS = frozenset(
    {"access_token", "bearer", "id_token", "jwt", "one_time_password", "otp", "password", "token"}
)


class PasswordRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Body of `POST /user/generate_otp`; the host may be left out where there is but one."""

    host: str | None = None


@dataclass(frozen=True, slots=True)
class Info:
    """What wrappers are told: the trusted issuers, and the audience that tokens have to be for."""

    issuers: Sequence[str]
    audience: str


CALLERS = web.AppKey("pam_callers", Callers)
LOGINS = web.AppKey("pam_logins", PamLogins)
INFO = web.AppKey("pam_info", dict[str, Any])


def add(app: web.Application, callers: Callers, logins: PamLogins, info: Info) -> None:
    """Add the routes to the application."""
    app[CALLERS], app[LOGINS] = callers, logins
    app[INFO] = _info(logins, info)
    app.router.add_get("/", get_root)
    app.router.add_get("/info", get_info)
    app.router.add_get("/info/op", get_info_op)
    app.router.add_get("/verify_user", verify_user)
    app.router.add_get("/user/get_status", get_status)
    app.router.add_post("/user/deploy", deploy)
    app.router.add_post("/user/generate_otp", generate_otp)
    if logins.settings.change_by_get:
        app.router.add_get("/user/deploy", deploy)
        app.router.add_get("/user/generate_otp", no_otp_by_get)


async def get_root(request: web.Request) -> web.Response:
    """What this is."""
    _parameters(request)
    return json_response({"description": DESCRIPTION, "usage": "Send a bearer token."})


async def get_info(request: web.Request) -> web.Response:
    """The service, and the issuers whose tokens it takes."""
    _parameters(request)
    return json_response(request.app[INFO])


async def get_info_op(request: web.Request) -> web.Response:
    """What a token of one issuer has to be: `?url=`."""
    _parameters(request, "url")
    known = request.app[INFO]["ops_info"]
    url = request.query.get("url", "")
    if url not in known:
        raise NotFound("This issuer is not trusted here.", code="issuer_unknown")
    return json_response(known[url])


async def verify_user(request: web.Request) -> web.Response:
    """Whether the bearer of a token or a one-time password may log in as `?username=`."""
    _parameters(request, "username")
    username = request.query.get("username", "")
    if not 0 < len(username) <= MAX_USERNAME:
        raise Invalid("username: this parameter is needed.", code="username_missing")
    credential, logins = bearer_token(request), request.app[LOGINS]
    if SHAPE.fullmatch(credential.upper()):
        verified = await logins.opens_once(
            credential, username, request.remote or "", request[REQUEST_ID]
        )
    else:
        principal = await request.app[CALLERS].person(credential)
        verified = await logins.opens(principal, username, request[REQUEST_ID])
    return _secret({"state": "deployed", "verified": verified})


async def get_status(request: web.Request) -> web.Response:
    """How the bearer stands here."""
    _parameters(request)
    principal = await request.app[CALLERS].person(bearer_token(request))
    found = await request.app[LOGINS].state(principal)
    return _secret({"state": found.state, "message": found.message})


async def deploy(request: web.Request) -> web.Response:
    """The bearer's account; who has none has asked for one by this (202)."""
    _parameters(request)
    principal = await request.app[CALLERS].person(bearer_token(request))
    found = await request.app[LOGINS].request(principal)
    if found.state == "suspended":
        raise Forbidden(
            "Your account on this site is suspended.",
            code="suspended",
            members={"state": found.state, "message": found.message},
        )
    if not found.account:
        return _secret({"state": found.state, "message": found.message}, status=202)
    return _secret(
        {
            "state": found.state,
            "message": found.message,
            "credentials": _credentials(request.app[LOGINS], found),
        }
    )


async def generate_otp(request: web.Request) -> web.Response:
    """A one-time password for the bearer on one host."""
    _parameters(request)
    principal = await request.app[CALLERS].person(bearer_token(request))
    body = await json_body(request, PasswordRequest) if request.can_read_body else PasswordRequest()
    password, host, expires_at = await request.app[LOGINS].password(principal, body.host)
    return _secret(
        {
            "supported": True,
            "successful": True,
            "one_time_password": password,
            "host": host,
            "expires_at": expires_at,
        },
        status=201,
    )


async def no_otp_by_get(request: web.Request) -> web.Response:
    """Wrappers that would derive a password from the token are told that there is none such."""
    _parameters(request)
    await request.app[CALLERS].person(bearer_token(request))
    return _secret({"supported": False, "successful": False})


def _parameters(request: web.Request, *known: str) -> None:
    """Refuse what does not belong into an address, credentials first of all."""
    if CREDENTIALS & {name.lower() for name in request.query}:
        raise Invalid(
            "Addresses are logged everywhere: send it in the Authorization header, and take this "
            "one as known to others.",
            code="token_in_url",
        )
    if not set(request.query) <= set(known):
        raise Invalid("There is no such parameter.", code="unknown_parameter")


def _secret(value: dict[str, Any], *, status: int = 200) -> web.Response:
    return json_response(value, status=status, headers={"Cache-Control": "no-store"})


def _info(logins: PamLogins, info: Info) -> dict[str, Any]:
    settings = logins.settings
    login = {
        "description": settings.description,
        "login_help": "Log in with `ssh`, and give the token or a one-time password if asked.",
        "ssh_host": settings.nodes[0].name,
    }
    about = {"scopes": settings.scopes, "audience": info.audience}
    return {
        "login_info": login,
        "supported_OPs": info.issuers,
        "ops_info": dict.fromkeys(info.issuers, about),
        # As older wrappers look for them.
        "login info": login,
        "supported OPs": info.issuers,
    }


def _credentials(logins: PamLogins, found: State) -> dict[str, str]:
    host = logins.settings.nodes[0].name
    return {
        "ssh_user": found.account,
        "ssh_host": host,
        "commandline": f"ssh {found.account}@{host}",
        "description": logins.settings.description,
    }
