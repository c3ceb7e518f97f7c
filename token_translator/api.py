"""The HTTP edge: certificates, seals and the authorities' public keys; others add their routes."""

from typing import Annotated, Literal, Protocol
from uuid import UUID

import msgspec
from aiohttp import web

from headgate.clock import Clock, rfc3339
from headgate.peers import HEADER
from headgate.problems import Fault, Forbidden, Invalid
from headgate.web import (
    REQUEST_ID,
    Check,
    add_health,
    bearer_token,
    create_app,
    json_body,
    json_response,
)
from token_translator import routes_delegations, routes_exchange, wire
from token_translator.callers import Callers
from token_translator.delegations import Delegations
from token_translator.issuing import Issued, Issuing, Wanted
from token_translator.seals import Verb

MAX_BODY_BYTES = 32 * 1024

CALLERS = web.AppKey("callers", Callers)
ISSUING = web.AppKey("issuing", Issuing)


class Authorities(Protocol):
    """Where the authorities' public keys come from."""

    async def authorities(self) -> wire.Authorities:
        """The current ones; raises `Unavailable` if they cannot be had."""


AUTHORITIES = web.AppKey("authorities", Authorities)


class CertificateRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Body of `POST /v1/certificates`; `profile: session` is for services.

    `lifetime` in seconds and `source_address` (one IP address) ask for less than one would get.
    A login service says in `client_address` from where the person came to it.
    """

    public_key: str
    realm: str | None = None
    profile: Literal["person", "session"] = "person"
    lifetime: Annotated[int, msgspec.Meta(ge=1)] | None = None
    source_address: str | None = None
    client_address: str | None = None


class SealRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Body of `POST /v1/seals`."""

    row: UUID
    # Not `$`: in Python that also matches before a last newline.
    digest: Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}\Z")]
    realm: str


class SealedCertificateRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Body of `POST /v1/delegated-certificates`."""

    row: UUID
    verb: Verb
    public_key: str


class CertificateAnswer(msgspec.Struct, frozen=True):
    """A certificate as callers get it; times in RFC 3339."""

    certificate: str
    serial: int
    key_id: str
    principals: tuple[str, ...]
    account: str
    realm: str
    valid_after: str
    valid_before: str


def create(
    *,
    callers: Callers,
    issuing: Issuing,
    delegations: Delegations,
    authorities: Authorities,
    clock: Clock,
    checks: dict[str, Check],
) -> web.Application:
    """The application; everything it works with is handed in."""
    app = create_app(max_body_bytes=MAX_BODY_BYTES)
    app[CALLERS], app[ISSUING], app[AUTHORITIES] = callers, issuing, authorities
    app.router.add_post("/v1/certificates", post_certificate)
    app.router.add_post("/v1/seals", post_seal)
    app.router.add_post("/v1/delegated-certificates", post_delegated_certificate)
    routes_delegations.add(app, callers, delegations, clock)
    routes_exchange.add(app, callers, issuing, clock)
    app.router.add_get("/v1/ca", get_authorities)
    add_health(app, checks)
    return app


async def post_certificate(request: web.Request) -> web.Response:
    """A certificate for the token's holder; for a service, one that runs the session only."""
    callers, issuing = request.app[CALLERS], request.app[ISSUING]
    token, credential = bearer_token(request), request.headers.get(HEADER)
    if credential is None:
        principal, instance = await callers.person(token), ""
        body = await json_body(request, CertificateRequest)
        _require_no_client(body)
        if body.profile != "person":
            raise Forbidden("The profile session is for services of this site.")
    else:
        body = await json_body(request, CertificateRequest)
        login = body.profile == "person"
        verb = "certificates.login" if login else "certificates.session"
        peer = await callers.service(credential, verb)
        if not login:
            _require_no_client(body)
        instance = peer.instance
        principal = await (callers.login if login else callers.behind)(peer, token)
    issue = issuing.for_person if body.profile == "person" else issuing.for_session
    issued = await issue(
        principal,
        instance=instance,
        wanted=Wanted(
            body.public_key, body.realm, body.lifetime, body.source_address, body.client_address
        ),
        request_id=request[REQUEST_ID],
    )
    return _created(issued)


def _require_no_client(body: CertificateRequest) -> None:
    if body.client_address is not None:
        detail = "Only a login service says from where somebody came."
        raise Invalid(detail, faults=[Fault("/client_address", detail)])


async def post_seal(request: web.Request) -> web.Response:
    """Register a row and its digest while the token is there: 201, or 200 if it was already."""
    callers = request.app[CALLERS]
    # First: a service that is stopped while its body comes slowly is stopped.
    body = await json_body(request, SealRequest)
    peer = await callers.service(request.headers.get(HEADER, ""), "seals")
    principal = await callers.behind(peer, bearer_token(request))
    new = await request.app[ISSUING].seal(
        principal,
        instance=peer.instance,
        row=body.row,
        digest=body.digest,
        realm=body.realm,
        request_id=request[REQUEST_ID],
    )
    return json_response(
        {"row": body.row, "digest": body.digest, "realm": body.realm}, status=201 if new else 200
    )


async def post_delegated_certificate(request: web.Request) -> web.Response:
    """A certificate for one command on a sealed row; the service's own word is enough."""
    body = await json_body(request, SealedCertificateRequest)
    credential = request.headers.get(HEADER, "")
    peer = await request.app[CALLERS].service(credential, "certificates.delegated")
    issued = await request.app[ISSUING].for_seal(
        instance=peer.instance,
        row=body.row,
        verb=body.verb,
        public_key=body.public_key,
        request_id=request[REQUEST_ID],
    )
    return _created(issued)


async def get_authorities(request: web.Request) -> web.Response:
    """The authorities' public keys; as plain text the lines for TrustedUserCAKeys."""
    known = await request.app[AUTHORITIES].authorities()
    if "text/plain" in request.headers.get("Accept", ""):
        return web.Response(text="".join(f"{line}\n" for line in known.user_ca))
    return json_response({"user_ca": known.user_ca, "host_ca": known.host_ca})


def _created(issued: Issued) -> web.Response:
    return json_response(
        CertificateAnswer(
            certificate=issued.certificate,
            serial=issued.serial,
            key_id=issued.key_id,
            principals=issued.grant.principals,
            account=issued.account.account,
            realm=issued.account.realm,
            valid_after=rfc3339(issued.grant.valid_after),
            valid_before=rfc3339(issued.grant.valid_before),
        ),
        status=201,
    )
