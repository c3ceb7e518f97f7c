"""What a person's jobs may do without a token, over HTTP: seen and ended by the person."""

from typing import Any
from uuid import UUID

from aiohttp import web

from headgate.clock import rfc3339
from headgate.problems import NotFound
from headgate.web import bearer_token, json_response
from token_translator.callers import Callers
from token_translator.delegations import Delegation, Delegations

CALLERS = web.AppKey("delegations_callers", Callers)
DELEGATIONS = web.AppKey("delegations", Delegations)


def add(app: web.Application, callers: Callers, delegations: Delegations) -> None:
    """Add the routes to the application."""
    app[CALLERS], app[DELEGATIONS] = callers, delegations
    app.router.add_get("/v1/delegations", get_delegations)
    app.router.add_delete("/v1/delegations/{row}", delete_delegation)


async def get_delegations(request: web.Request) -> web.Response:
    """The caller's own delegations that have not expired, the newest first."""
    principal = await request.app[CALLERS].person(bearer_token(request))
    found = await request.app[DELEGATIONS].of(principal.identity)
    return json_response({"delegations": [_document(delegation) for delegation in found]})


async def delete_delegation(request: web.Request) -> web.Response:
    """End one of the caller's own; ended already is well, too."""
    principal = await request.app[CALLERS].person(bearer_token(request))
    try:
        row = UUID(request.match_info["row"])
    except ValueError as error:
        raise NotFound("There is no such delegation of yours.", code="seal_unknown") from error
    await request.app[DELEGATIONS].end(principal.identity, row)
    return web.Response(status=204)


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
