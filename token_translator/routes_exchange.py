"""RFC 8693: the same certificate for clients that speak token exchange, form in and JSON out."""

import asyncio
import re
from collections.abc import Iterable, Mapping
from datetime import datetime

from aiohttp import web

from headgate.clock import Clock
from headgate.problems import (
    Invalid,
    Problem,
    TooLarge,
    TooMany,
    TooSlow,
    Unavailable,
)
from headgate.web import BODY_SECONDS, REQUEST_ID, json_response
from token_translator.callers import Callers
from token_translator.issuing import Issued, Issuing, Wanted

GRANT = "urn:ietf:params:oauth:grant-type:token-exchange"
SUBJECT_TYPES = frozenset(
    {
        "urn:ietf:params:oauth:token-type:access_token",
        "urn:ietf:params:oauth:token-type:jwt",
    }
)
CERTIFICATE = "urn:headgate:token-type:ssh-user-certificate"
"""What is exchanged for: RFC 8693 has no type for it, so this one is our own."""
PARAMETERS = frozenset(
    {
        "grant_type",
        "subject_token",
        "subject_token_type",
        "requested_token_type",
        "public_key",
        "realm",
        "audience",
        "lifetime",
        "source_address",
    }
)
SECONDS = re.compile(r"[1-9][0-9]{0,7}")

CALLERS = web.AppKey("exchange_callers", Callers)
ISSUING = web.AppKey("exchange_issuing", Issuing)
CLOCK = web.AppKey("exchange_clock", Clock)


def add(app: web.Application, callers: Callers, issuing: Issuing, clock: Clock) -> None:
    """Add the route to the application."""
    app[CALLERS], app[ISSUING], app[CLOCK] = callers, issuing, clock
    app.router.add_post("/v1/token", post_token)


async def post_token(request: web.Request) -> web.Response:
    """An access token and a public key for a certificate (RFC 8693, section 2).

    Besides the standard's parameters: `public_key`, an OpenSSH line; `audience` or `realm` names
    the realm; `lifetime` and `source_address` ask for less. Errors are those of section 2.2.2.
    """
    try:
        form = await _form(request)
        principal = await request.app[CALLERS].person(form["subject_token"])
        issued = await request.app[ISSUING].for_person(
            principal, instance="", wanted=_wanted(form), request_id=request[REQUEST_ID]
        )
    except Problem as problem:
        return _refused(problem)
    return _exchanged(issued, request.app[CLOCK].now())


async def _form(request: web.Request) -> Mapping[str, str]:
    """The parameters, each at most once (RFC 6749, section 3.2).

    Raises:
        Invalid: with the first that is missing, unknown, said twice or not what is offered here.
    """
    if request.query_string:
        raise Invalid("Parameters belong into the body; a token in an address is written to logs.")
    if request.content_type != "application/x-www-form-urlencoded":
        raise Invalid("The body must be application/x-www-form-urlencoded.")
    try:
        async with asyncio.timeout(BODY_SECONDS):
            fields = await request.post()
    except web.HTTPRequestEntityTooLarge as error:
        raise TooLarge("The body is larger than this interface reads.") from error
    except TimeoutError as error:
        raise TooSlow(f"The body did not come within {BODY_SECONDS:g} s.") from error
    except (ValueError, LookupError) as error:
        raise Invalid("The body is no form.") from error
    form = _each_once((name, str(value)) for name, value in fields.items())
    for name in ("grant_type", "subject_token", "subject_token_type", "public_key"):
        if not form.get(name):
            raise Invalid(f"The parameter {name} is required.")
    _require_offered(form)
    return form


def _each_once(fields: Iterable[tuple[str, str]]) -> Mapping[str, str]:
    form: dict[str, str] = {}
    for name, value in fields:
        if name not in PARAMETERS:
            raise Invalid(f"There is no parameter {name[:64]!r}.")
        if name in form:
            raise Invalid(f"The parameter {name} is said twice.")
        form[name] = value
    return form


def _require_offered(form: Mapping[str, str]) -> None:
    if form["grant_type"] != GRANT:
        raise Invalid(f"The only grant_type here is {GRANT}.", code="unsupported_grant_type")
    if form["subject_token_type"] not in SUBJECT_TYPES:
        raise Invalid("The subject_token must be an access token.")
    if form.get("requested_token_type", CERTIFICATE) != CERTIFICATE:
        raise Invalid(f"The only requested_token_type here is {CERTIFICATE}.")
    if "realm" in form and form.get("audience", form["realm"]) != form["realm"]:
        raise Invalid("The parameters realm and audience name different realms.")


def _wanted(form: Mapping[str, str]) -> Wanted:
    lifetime = form.get("lifetime")
    if lifetime is not None and not SECONDS.fullmatch(lifetime):
        raise Invalid("The lifetime must be a number of seconds, at least one.")
    return Wanted(
        public_key=form["public_key"],
        realm=form.get("realm", form.get("audience")),
        lifetime=None if lifetime is None else int(lifetime),
        source_address=form.get("source_address"),
    )


def _exchanged(issued: Issued, now: datetime) -> web.Response:
    return json_response(
        {
            "access_token": issued.certificate,
            "issued_token_type": CERTIFICATE,
            "token_type": "N_A",
            "expires_in": int((issued.grant.valid_before - now).total_seconds()),
        },
        headers={"Cache-Control": "no-store"},
    )


def _refused(problem: Problem) -> web.Response:
    """A problem as an OAuth error: our own code and words are in its description."""
    error = "invalid_request"
    if problem.stable_code in {"realm_unknown", "unsupported_grant_type"}:
        error = {"realm_unknown": "invalid_target"}.get(problem.stable_code, problem.stable_code)
    elif isinstance(problem, Unavailable | TooMany):
        error = "temporarily_unavailable"
    kept = isinstance(problem, Unavailable | TooMany | TooLarge | TooSlow)
    return json_response(
        {"error": error, "error_description": f"{problem.detail} ({problem.stable_code})"},
        status=problem.status if kept else 400,
        headers={**problem.response_headers(), "Cache-Control": "no-store"},
    )
