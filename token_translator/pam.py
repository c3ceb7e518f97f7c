"""Logins by token or one-time password at a node's PAM, as the rules of certificates allow them."""

import ipaddress
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from hmac import compare_digest
from typing import Protocol

import msgspec
import structlog

from headgate import registry
from headgate.clock import Clock, rfc3339
from headgate.identity import Identity, Principal
from headgate.problems import Forbidden, Problem, TooMany, Unauthenticated, Unavailable
from token_translator import wire
from token_translator.account_requests import AccountRequests
from token_translator.grants import Account, Command, Profile, token_fingerprint
from token_translator.notes import MAX_DETAIL
from token_translator.one_time_passwords import Login, OneTimePasswords
from token_translator.pam_settings import PamSettings
from token_translator.rulebook import RuleBook
from token_translator.rules import Asked, Rule
from token_translator.throttle import Throttle

log = structlog.get_logger(__name__)

NOBODY = Identity("", "")


class Registry(Protocol):
    """Who is here."""

    async def standing(self, identity: Identity, realm: str) -> registry.Standing:
        """How an identity stands; raises `Unavailable`."""


class Standings(Protocol):
    """Who may act at this moment."""

    async def account(self, identity: Identity, realm: str) -> Account:
        """The account of an identity that may act; raises `Forbidden` or `Unavailable`."""

    async def require_free(self, identity: Identity, realm: str) -> None:
        """Return if no hold is in force; raises `Forbidden` (`suspended`) or `Unavailable`."""


class Ledger(Protocol):
    """Where each login that PAM was told of is recorded."""

    async def note(self, subject: wire.Subject, event: str, *, detail: str = "") -> None:
        """Have something recorded; raises `Unavailable`."""


@dataclass(frozen=True, slots=True)
class State:
    """How somebody stands, in the contract's words; `account` where they may log in."""

    state: str
    message: str
    account: str = ""


class PamLogins:
    """Decides whether a token, or a one-time password got with one, opens an account of a node."""

    def __init__(
        self,
        *,
        settings: PamSettings,
        rules: RuleBook,
        accounts: Standings,
        registered: Registry,
        passwords: OneTimePasswords,
        requests: AccountRequests,
        ledger: Ledger,
        clock: Clock,
    ) -> None:
        self.settings = settings
        self._rules = rules
        self._accounts = accounts
        self._registered = registered
        self._passwords = passwords
        self._requests = requests
        self._ledger = ledger
        self._clock = clock
        self._made = Throttle(settings.per_minute)
        self._nodes = [
            (ipaddress.ip_network(address), node.name)
            for node in settings.nodes
            for address in node.addresses
        ]

    async def opens(self, principal: Principal, username: str, request_id: str) -> bool:
        """Whether a token's holder may log in as `username` at this moment.

        Raises:
            Forbidden: no rule lets them log in so, no account, or a hold.
            Unavailable: something is away, the ledger too: nobody is let in unrecorded.
        """
        about = self._subject(principal.identity, request_id)
        about = msgspec.structs.replace(
            about,
            client_id=principal.client_id[: wire.MAX_FIELD],
            token=token_fingerprint(principal),
        )
        return await self._recorded(
            about,
            f"by token, as {username}",
            username,
            realm=self.settings.realm,
            find=lambda: self._account(principal),
        )

    async def opens_once(self, password: str, username: str, address: str, request_id: str) -> bool:
        """Whether a one-time password opens an account of the node that asks; it is used up.

        Raises:
            Unauthenticated: it is none, was used, or is for somebody or somewhere else.
            Forbidden: the asking node is unknown; or no account any more, or a hold.
            Unavailable: as `opens`.
        """
        node = self._node(address)
        how = f"by one-time password, as {username}, on {node}"
        login = await self._passwords.use(
            password.upper(), account=username, host=node, now=self._clock.now()
        )
        if login is None:
            log.warning("one_time_password_refused", node=node)
            about = self._subject(NOBODY, request_id)
            await self._refused(msgspec.structs.replace(about, instance=node), how)
            raise Unauthenticated("This one-time password is unknown, used or too old.")
        # Who was suspended in the meantime does not get in with what they had.
        about = self._subject(login.identity, request_id)
        return await self._recorded(
            about,
            how,
            username,
            realm=login.realm,
            find=lambda: self._accounts.account(login.identity, login.realm),
        )

    async def password(self, principal: Principal, host: str | None) -> tuple[str, str, str]:
        """A one-time password for a host, that host, and until when (RFC 3339).

        Raises:
            Forbidden: `host_unknown`, or they may not log in. TooMany. Unavailable.
        """
        names = [node.name for node in self.settings.nodes]
        host = names[0] if host is None and len(names) == 1 else host
        if host not in names:
            raise Forbidden(f"Name the host it is for: {', '.join(names)}.", code="host_unknown")
        account = await self._account(principal)
        wait = self._made.take(principal.identity, self._clock.monotonic())
        if wait:
            raise TooMany("Too many one-time passwords in a minute.", retry_after=math.ceil(wait))
        login = Login(principal.identity, account.realm, account.account, host)
        made, expires_at = await self._passwords.make(login, self._clock.now())
        return made, host, rfc3339(expires_at)

    async def state(self, principal: Principal) -> State:
        """How a token's holder stands.

        Raises:
            Forbidden: no rule lets them log in so. Unavailable.
        """
        self._admit(principal)
        found = await self._registered.standing(principal.identity, self.settings.realm)
        if found.state == "unknown":
            return State("not_deployed", str(found.facts.get("how_to_ask", "No account yet.")))
        if found.state == "pending":
            return State("pending", str(found.facts.get("waiting_for", "It is being decided.")))
        name = found.account.account if found.account else ""
        if found.state == "blocked":
            return State("suspended", f"username {name}")
        try:
            await self._accounts.require_free(principal.identity, self.settings.realm)
        except Forbidden:
            return State("suspended", f"username {name}")
        return State("deployed", f"username {name}", account=name)

    async def request(self, principal: Principal) -> State:
        """How they stand; who has no account has asked for one by this, and somebody decides."""
        found = await self.state(principal)
        if found.state != "not_deployed":
            return found
        since = await self._asked(principal.identity)
        return State("pending", f"Asked for since {rfc3339(since)}. {found.message}")

    def _subject(self, identity: Identity, request_id: str) -> wire.Subject:
        return wire.Subject(
            iss=identity.iss,
            sub=identity.sub,
            account="",
            realm=self.settings.realm,
            profile="pam",
            request_id=request_id,
        )

    async def _recorded(
        self,
        about: wire.Subject,
        how: str,
        username: str,
        *,
        realm: str,
        find: Callable[[], Awaitable[Account]],
    ) -> bool:
        """Whether the account found is the one asked for; the ledger has it before we say so.

        As with certificates, a hold is asked after once more behind that: recording may take its
        time, and nothing ends a login of somebody who is suspended meanwhile.
        """
        try:
            account = await find()
        except Unavailable:
            raise
        except Problem as problem:
            await self._refused(about, f"{how}: {problem.stable_code}")
            raise
        about = msgspec.structs.replace(about, account=account.account)
        if not compare_digest(account.account.encode(), username.encode()):
            await self._refused(about, f"{how}: another account")
            return False
        await self._ledger.note(about, "pam_accepted", detail=how[:MAX_DETAIL])
        try:
            await self._accounts.require_free(Identity(about.iss, about.sub), realm)
        except Forbidden as problem:
            await self._refused(about, f"{how}: {problem.stable_code}")
            raise
        return True

    async def _refused(self, about: wire.Subject, how: str) -> None:
        """Have it recorded; it is a refusal, whether that can be done or not."""
        try:
            await self._ledger.note(about, "pam_refused", detail=how[:MAX_DETAIL])
        except Problem as failure:
            log.warning("refusal_not_recorded", why=failure.stable_code)

    async def _asked(self, identity: Identity) -> datetime:
        now = self._clock.now()
        since = await self._requests.add(identity, self.settings.realm, now)
        log.info("account_requested", iss=identity.iss, sub=identity.sub, first=rfc3339(since))
        return since

    async def _account(self, principal: Principal) -> Account:
        self._admit(principal)
        return await self._accounts.account(principal.identity, self.settings.realm)

    def _admit(self, principal: Principal) -> Rule:
        asked = Asked(principal, Profile.PERSON, self.settings.realm, self._clock.now())
        rule = self._rules.admit(asked)
        # What a certificate says, PAM cannot: such a login would be more than the rule gives.
        limits = (rule.hosts, rule.source_addresses, rule.key_types)
        if rule.command is not Command.SHELL or any(limit is not None for limit in limits):
            raise Forbidden(
                f"The rule {rule.name!r} gives a limited login: it needs a certificate.",
                code="certificate_needed",
            )
        return rule

    def _node(self, address: str) -> str:
        try:
            caller = ipaddress.ip_address(address)
        except ValueError:
            caller = ipaddress.ip_address("0.0.0.0")  # noqa: S104 - no node's, so nobody's
        caller = getattr(caller, "ipv4_mapped", None) or caller
        for network, name in self._nodes:
            if caller in network:
                return name
        raise Forbidden("No node of this site asks from this address.", code="node_unknown")
