"""Denial over HTTP: holds, by services and administrators, and what is revoked for good."""

from typing import Annotated, Any
from uuid import UUID

import msgspec
from aiohttp import web

from headgate.clock import rfc3339
from headgate.identity import Identity
from headgate.peers import HEADER
from headgate.problems import Fault, Invalid, NotFound
from headgate.web import bearer_token, json_body, json_response
from token_translator.administrators import Administrators
from token_translator.callers import Callers
from token_translator.holds import EVERYWHERE, Hold
from token_translator.revocations import Revocation
from token_translator.suspending import MAX_SHOWN, Reason, SubjectName, Suspending
from token_translator.wire import MAX_REVOKED_AT_ONCE, Fingerprint, Serial

CALLERS = web.AppKey("holds_callers", Callers)
ADMINISTRATORS = web.AppKey("administrators", Administrators)
SUSPENDING = web.AppKey("suspending", Suspending)

_Issuer = Annotated[str, msgspec.Meta(min_length=1, max_length=1024, pattern=r"^[!-~]+\Z")]


class HoldRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Body of `POST /v1/holds`; the person is told the reason. No realm: in all of them."""

    iss: _Issuer
    sub: SubjectName
    reason: Reason
    realm: str = EVERYWHERE


class Named(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An identity."""

    iss: _Issuer
    sub: SubjectName


class RevocationRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Body of `POST /v1/revocations`: at least one of what can be revoked, and why."""

    reason: Reason
    serials: Annotated[tuple[Serial, ...], msgspec.Meta(max_length=MAX_REVOKED_AT_ONCE)] = ()
    identity: Named | None = None
    keys: Annotated[tuple[Fingerprint, ...], msgspec.Meta(max_length=100)] = ()
    authority: Fingerprint | None = None


def add(
    app: web.Application,
    callers: Callers,
    administrators: Administrators,
    suspending: Suspending,
) -> None:
    """Add the routes to the application."""
    app[CALLERS], app[ADMINISTRATORS], app[SUSPENDING] = callers, administrators, suspending
    app.router.add_post("/v1/holds", post_hold)
    app.router.add_get("/v1/holds", get_holds)
    app.router.add_get("/v1/holds/mine", get_own_holds)
    app.router.add_delete("/v1/holds/{id}", delete_hold)
    app.router.add_post("/v1/revocations", post_revocation)


async def post_hold(request: web.Request) -> web.Response:
    """Suspend: 201, or 200 if the caller's own hold was there already."""
    by = await _party(request, "suspend")
    body = await json_body(request, HoldRequest)
    done = await request.app[SUSPENDING].suspend(
        Identity(body.iss, body.sub), body.realm, reason=body.reason, by=by
    )
    document = {**_document(done.hold), "revocation": "done" if done.revoked else "pending"}
    return json_response(document, status=201 if done.new else 200)


async def get_holds(request: web.Request) -> web.Response:
    """The holds in force, or with `?iss=&sub=` an identity's; a service sees its own alone."""
    by = await _party(request, "suspend")
    owner = None if by.startswith("admin:") else by
    holds = await request.app[SUSPENDING].in_force(owner=owner, identity=_asked(request))
    more = len(holds) == MAX_SHOWN
    return json_response({"holds": [_document(hold) for hold in holds], "more": more})


async def get_own_holds(request: web.Request) -> web.Response:
    """What keeps the caller out: each hold with its owner, who can lift it, and the reason."""
    principal = await request.app[CALLERS].person(bearer_token(request))
    suspending = request.app[SUSPENDING]
    holds = await suspending.in_force(owner=None, identity=principal.identity)
    return json_response({"holds": [_document(hold) for hold in holds]})


async def delete_hold(request: web.Request) -> web.Response:
    """Lift one of the caller's own; lifted already is well, too."""
    by = await _party(request, "suspend")
    try:
        hold = UUID(request.match_info["id"])
    except ValueError as error:
        raise NotFound("There is no such hold.", code="hold_unknown") from error
    await request.app[SUSPENDING].resume(hold, by=by)
    return web.Response(status=204)


async def post_revocation(request: web.Request) -> web.Response:
    """Revoke for good: 201, or 202 where the signer has still to hear of it."""
    by = await _party(request, "revoke")
    body = await json_body(request, RevocationRequest)
    named = body.identity
    wanted = Revocation(
        reason=body.reason,
        by=by,
        serials=body.serials,
        identity=None if named is None else Identity(named.iss, named.sub),
        keys=body.keys,
        authority=body.authority or "",
    )
    order, revoked = await request.app[SUSPENDING].revoke(wanted)
    if revoked is None:
        return json_response({"id": order.id, "state": "pending"}, status=202)
    document = {"state": "done", "version": revoked.version, "serials": revoked.serials}
    return json_response({"id": order.id, **document}, status=201)


async def _party(request: web.Request, verb: str) -> str:
    """Who asks, as holds and ledger name them: a service with that verb, or an administrator.

    Whoever is suspended has no rights of an administrator: they could lift and revoke otherwise.
    """
    callers = request.app[CALLERS]
    if HEADER in request.headers:
        peer = await callers.service(request.headers[HEADER], verb)
        return f"peer:{peer.instance}"
    principal = await callers.person(bearer_token(request))
    await request.app[SUSPENDING].require_free(principal.identity)
    return request.app[ADMINISTRATORS].require(principal)


def _asked(request: web.Request) -> Identity | None:
    iss, sub = request.query.get("iss", ""), request.query.get("sub", "")
    if bool(iss) != bool(sub):
        missing = "sub" if iss else "iss"
        faults = [Fault(f"/{missing}", "One is nobody without the other.")]
        raise Invalid("iss and sub come together.", code="missing_parameter", faults=faults)
    return Identity(iss, sub) if iss else None


def _document(hold: Hold) -> dict[str, Any]:
    return {
        "id": hold.id,
        "iss": hold.identity.iss,
        "sub": hold.identity.sub,
        "realm": hold.realm,
        "owner": hold.owner,
        "reason": hold.reason,
        "created_at": rfc3339(hold.created_at),
    }
