"""The registry's HTTP face: who (iss, sub) is here, for the other services of the site."""

from dataclasses import dataclass

import msgspec
import structlog
from aiohttp import web

from account_importer.directory import Denial, Entry, Person, State
from account_importer.store import PlanState, Store, StoreError
from headgate.clock import Clock, rfc3339
from headgate.identity import Identity
from headgate.peers import HEADER, PeerVerifier
from headgate.problems import Fault, Invalid, NotFound, Unavailable
from headgate.web import add_health, json_response
from headgate.web import create_app as bare_app

log = structlog.get_logger(__name__)

VERB = "registry.read"
RETRY_SECONDS = 5
MOST_OF_ONE_NAME = 100
_WAITING = (PlanState.PROPOSED, PlanState.APPROVED, PlanState.APPLYING)


class Account(msgspec.Struct, frozen=True, omit_defaults=True):
    """What peers see of a registry entry; `state` is `active` or `blocked`."""

    iss: str
    sub: str
    realm: str
    account: str
    uid: int
    gid: int
    state: str
    version: int
    home: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Registry:
    """What the handlers need."""

    store: Store
    peers: PeerVerifier
    clock: Clock
    realm: str
    how_to_ask: str


def create_app(registry: Registry) -> web.Application:
    """`GET /v1/accounts` for peers with the verb `registry.read`, and health for everybody.

    `GET /v1/accounts/by-name/{account}?realm=` says whose an account is: `{"accounts": […]}`.
    """
    app = bare_app()

    async def show_account(request: web.Request) -> web.Response:
        registry.peers.verify(request.headers.get(HEADER, "")).require(VERB)
        identity, realm = _asked(request)
        if realm != registry.realm:
            raise NotFound(f"There is no realm {realm!r} here.", code="realm_unknown")
        return await _answer(registry, identity)

    async def find_account(request: web.Request) -> web.Response:
        registry.peers.verify(request.headers.get(HEADER, "")).require(VERB)
        if request.query.get("realm", "") != registry.realm:
            raise NotFound("There is no such realm here.", code="realm_unknown")
        return await _found(registry, request.match_info["account"])

    async def database() -> str:
        try:
            async with registry.store.reading(registry.realm) as book:
                await book.last_pull()
        except StoreError as error:
            log.warning("not_ready", error=str(error))
            return "the database cannot be read"
        return ""

    app.router.add_get("/v1/accounts", show_account)
    app.router.add_get("/v1/accounts/by-name/{account}", find_account)
    add_health(app, {"database": database})
    return app


def _asked(request: web.Request) -> tuple[Identity, str]:
    values = {name: request.query.get(name, "") for name in ("iss", "sub", "realm")}
    faults = [
        Fault(f"/{name}", "This parameter is required.")
        for name, value in values.items()
        if not value
    ]
    if faults:
        raise Invalid("iss, sub and realm are required.", code="missing_parameter", faults=faults)
    return Identity(values["iss"], values["sub"]), values["realm"]


async def _answer(registry: Registry, identity: Identity) -> web.Response:
    try:
        async with registry.store.reading(registry.realm) as book:
            person, entry = await book.find(identity)
            here = entry is not None and entry.state is not State.RESERVED
            plans = set() if here else await book.plan_states(_WAITING)
    except StoreError as error:
        raise Unavailable(
            "The registry cannot be read at the moment.", retry_after=RETRY_SECONDS
        ) from error
    if entry is not None and here:
        return json_response(_shown(registry, entry, person))
    if person is None or person.denial is not Denial.NONE:
        raise NotFound(
            "Nobody here knows this identity.",
            code="account_unknown",
            members={"how_to_ask": registry.how_to_ask},
        )
    asked_at = person.eligible_since or person.first_seen
    raise NotFound(
        "The account is not made yet.",
        code="account_pending",
        members={"requested_at": rfc3339(asked_at), "waiting_for": _waiting_for(person, plans)},
    )


async def _found(registry: Registry, name: str) -> web.Response:
    try:
        async with registry.store.reading(registry.realm) as book:
            found = await book.find_account(name, MOST_OF_ONE_NAME)
    except StoreError as error:
        raise Unavailable(
            "The registry cannot be read at the moment.", retry_after=RETRY_SECONDS
        ) from error
    here = [(person, entry) for person, entry in found if entry.state is not State.RESERVED]
    return json_response({"accounts": [_shown(registry, entry, person) for person, entry in here]})


def _shown(registry: Registry, entry: Entry, person: Person | None) -> Account:
    state, reason = entry.state, entry.reason
    # An end date needs no reading of the source to pass.
    ended = person is not None and person.end_time is not None
    if ended and person and person.end_time and person.end_time <= registry.clock.now():
        state, reason = State.BLOCKED, reason or Denial.EXPIRED.value
    return Account(
        iss=entry.identity.iss,
        sub=entry.identity.sub,
        realm=registry.realm,
        account=entry.account,
        uid=entry.uid,
        gid=entry.gid,
        home=entry.home,
        state=state.value,
        reason=reason,
        version=entry.version,
    )


def _waiting_for(person: Person, plans: set[PlanState]) -> str:
    """A sentence for the person who waits; a refusal's reason is for administrators only."""
    if person.refusal:
        return "The site's administrators have to decide about the account's name."
    if PlanState.APPROVED in plans or PlanState.APPLYING in plans:
        return "The account is approved and will be made within minutes."
    if PlanState.PROPOSED in plans:
        return "The site's administrators have to approve the account."
    return "The next run of the account import."
