"""What a person's jobs may do without a token, over HTTP: seen and ended by the person."""

import base64
import math
import re
from typing import Annotated, Any
from uuid import UUID

import msgspec
from aiohttp import web

from headgate.clock import Clock, rfc3339
from headgate.identity import Principal
from headgate.problems import Fault, Invalid, NotFound, TooMany
from headgate.web import bearer_token, json_response
from token_translator.callers import Callers
from token_translator.delegations import Delegation, Delegations
from token_translator.seals import Place
from token_translator.throttle import Throttle

MAX_PAGE = 1000
PER_MINUTE = 30
"""For one person, looking and ending together: each is some work for the signer."""

_Moment = Annotated[int, msgspec.Meta(ge=0, le=2**40)]

CALLERS = web.AppKey("delegations_callers", Callers)
DELEGATIONS = web.AppKey("delegations", Delegations)
CLOCK = web.AppKey("delegations_clock", Clock)
PACE = web.AppKey("delegations_pace", Throttle)


def add(app: web.Application, callers: Callers, delegations: Delegations, clock: Clock) -> None:
    """Add the routes to the application."""
    app[CALLERS], app[DELEGATIONS] = callers, delegations
    app[CLOCK], app[PACE] = clock, Throttle(PER_MINUTE)
    app.router.add_get("/v1/delegations", get_delegations)
    app.router.add_delete("/v1/delegations/{row}", delete_delegation)


async def get_delegations(request: web.Request) -> web.Response:
    """The caller's own delegations that have not expired, the newest first, in pages."""
    principal = await _person(request)
    limit, after = _limit(request), _place(request)
    found, following = await request.app[DELEGATIONS].of(
        principal.identity, limit=limit, after=after
    )
    document: dict[str, Any] = {"delegations": [_document(delegation) for delegation in found]}
    headers = {}
    if following is not None:
        document["next"] = _cursor(following)
        address = request.rel_url.update_query(cursor=document["next"])
        headers["Link"] = f'<{address}>; rel="next"'
    return json_response(document, headers=headers)


async def delete_delegation(request: web.Request) -> web.Response:
    """End one of the caller's own; ended already is well, too."""
    principal = await _person(request)
    try:
        row = UUID(request.match_info["row"])
    except ValueError as error:
        raise NotFound("There is no such delegation of yours.", code="seal_unknown") from error
    await request.app[DELEGATIONS].end(principal.identity, row)
    return web.Response(status=204)


async def _person(request: web.Request) -> Principal:
    """The caller, who does not ask more often than people do."""
    principal = await request.app[CALLERS].person(bearer_token(request))
    wait = request.app[PACE].take(principal.identity, request.app[CLOCK].monotonic())
    if wait:
        raise TooMany(
            "You ask for your delegations too often.",
            code="person_rate",
            retry_after=math.ceil(wait),
        )
    return principal


def _limit(request: web.Request) -> int:
    word = request.query.get("limit", str(MAX_PAGE))
    if not re.fullmatch(r"[0-9]{1,4}", word, re.ASCII) or not 1 <= int(word) <= MAX_PAGE:
        detail = f"A number from 1 to {MAX_PAGE}."
        raise Invalid(detail, code="invalid_limit", faults=[Fault("/limit", detail)])
    return int(word)


def _cursor(place: Place) -> str:
    text = msgspec.json.encode((place.sealed_at, place.instance, place.row))
    return base64.urlsafe_b64encode(text).decode().rstrip("=")


def _place(request: web.Request) -> Place | None:
    cursor = request.query.get("cursor")
    if cursor is None:
        return None
    try:
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        return Place(*msgspec.json.decode(text, type=tuple[_Moment, str, UUID]))
    except ValueError as error:
        faults = [Fault("/cursor", "Use the cursor of the page before.")]
        raise Invalid("The cursor is not valid.", code="invalid_cursor", faults=faults) from error


def _document(delegation: Delegation) -> dict[str, Any]:
    seal = delegation.seal
    return {
        "row": seal.row,
        "service": seal.instance,
        "realm": seal.realm,
        "client_id": seal.client_id,
        "sealed_at": rfc3339(seal.sealed_at),
        "expires_at": rfc3339(delegation.expires_at),
        "state": delegation.state,
        "certificates": [
            {
                "serial": certificate.serial,
                "verb": certificate.verb,
                "valid_before": rfc3339(certificate.valid_before),
                "revoked": certificate.revoked,
            }
            for certificate in delegation.certificates
        ],
    }
