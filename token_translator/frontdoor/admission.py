"""Who comes in: a valid token, not too often, of somebody whom nothing is known against."""

from collections.abc import Callable

import structlog

from headgate.changes import Change, ChangeFeed, Stale
from headgate.clock import rfc3339
from headgate.identity import Identity, Principal
from headgate.problems import Forbidden, Unavailable
from token_translator.frontdoor.attempts import Attempts
from token_translator.frontdoor.limits import Place, Places
from token_translator.frontdoor.tokens import Tokens
from token_translator.frontdoor.words import plain

log = structlog.get_logger(__name__)

NOT_NOW = "Logins are not possible at the moment: try again in a minute."
OUT_OF_TOUCH = "This service has lost touch with its site: try again in a minute."


class Admission:
    """Judges tokens for all connections, and goes on watching those it let in."""

    def __init__(
        self, *, tokens: Tokens, attempts: Attempts, places: Places, feed: ChangeFeed, realm: str
    ) -> None:
        self._tokens = tokens
        self._attempts = attempts
        self._places = places
        self._feed = feed
        self._realm = realm

    def closed_for(self, source: str) -> str:
        """Why nobody from there may even try, as a sentence; empty: they may."""
        if not self._feed.current():
            return NOT_NOW
        wait = self._attempts.closed_for(source)
        if wait:
            return f"Too many logins from your address have failed: wait for {wait:.0f} seconds."
        return ""

    def failed(self, source: str) -> None:
        """Count a login that failed."""
        if self._attempts.failed(source):
            # An alarm: tokens cannot be guessed, so somebody tries others'.
            log.warning("address_throttled", source=source)

    async def admit(
        self, token: str, place: Place, *, drop: Callable[[str], None]
    ) -> tuple[Principal, Callable[[], None]]:
        """The person; `drop` is called with a reason as soon as they may not be here any more.

        The second value ends the watching.

        Raises:
            Unauthenticated: the token is of no use here; this counts against the address.
            Forbidden, Unavailable: it is good, and still nobody comes in with it now.
        """
        closed = self.closed_for(place.source)
        if closed:
            raise Forbidden(closed)
        principal = await self._tokens.holder(token)
        identity = principal.identity
        wait = self._attempts.login(identity)
        if wait:
            log.warning("identity_throttled", iss=identity.iss, sub=identity.sub)
            raise Forbidden(f"You logged in too often: wait for {wait:.0f} seconds.")
        # Heard from now on; what was said before is looked up after that.
        unsubscribe = self._feed.subscribe(lambda heard: self._hear(identity, heard, drop))
        try:
            self._require_unheld(identity)
            self._require_room(place, identity)
        except (Forbidden, Unavailable):
            unsubscribe()
            raise
        return principal, unsubscribe

    def by_browser(self, identity: Identity, source: str) -> bool:
        """Remember from where somebody logged in by browser; True if it is the first time."""
        new = self._attempts.logged_in_by_browser(identity, source)
        if new:
            # An alarm: somebody may have confirmed a code that was another's.
            log.warning("device_login_from_new_address", iss=identity.iss, source=source)
        return new

    def notice(self, identity: Identity) -> str:
        """A line about logins by browser from new addresses, once; empty if there were none."""
        new = self._attempts.untold(identity)
        if not new:
            return ""
        said = ", ".join(f"{source} ({rfc3339(at)})" for source, at in new)
        return f"New since your last visit: logins by browser from {said}. Not you? Tell the site."

    def _require_unheld(self, identity: Identity) -> None:
        if not self._feed.current():
            raise Unavailable(NOT_NOW)
        denial = self._feed.denial(identity, self._realm)
        if denial is not None:
            raise Forbidden(_suspended(denial))

    def _require_room(self, place: Place, identity: Identity) -> None:
        if not self._places.enter(place, identity):
            raise Forbidden("You have too many connections here: close one first.")

    def _hear(self, identity: Identity, heard: Change | Stale, drop: Callable[[str], None]) -> None:
        if isinstance(heard, Stale):
            drop(OUT_OF_TOUCH)
        elif heard.identity == identity and heard.realm in {"", self._realm}:
            drop(_suspended(heard.reason))


def _suspended(reason: str) -> str:
    return f"Your access is suspended: {plain(reason) or 'no reason was given'}."
