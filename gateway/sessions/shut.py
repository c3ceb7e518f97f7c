"""Whose logins came to nothing: sshd refused them, or they hung. They are not tried at once again.

sshd punishes an address for failed logins (PerSourcePenalties, OpenSSH 9.8), and ours is the
same for everybody.
"""

from dataclasses import dataclass

import structlog

from gateway.sessions.credentials import Credentials
from gateway.sessions.session import LoginStuck, NotAdmitted
from gateway.sessions.user import User
from headgate.changes import Change, Stale
from headgate.clock import Clock

log = structlog.get_logger(__name__)

ASK_AGAIN = 30.0
"""Seconds after which the translator is asked whether it says something else of who was refused."""
REFUSED_PAUSES = (60.0, 900.0)
"""Seconds until the same answer is tried again, doubled from the first to the last: what was wrong
on the node may have been mended there."""
STUCK_PAUSES = (2.0, 60.0)


@dataclass(slots=True)
class _Entry:
    error: NotAdmitted | LoginStuck
    answer: str
    ask_at: float
    retry_at: float
    pause: float


class ShutOut:
    """Remembers them: by user, until something changes or time has passed."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._entries: dict[User, _Entry] = {}

    def require(self, user: User) -> None:
        """Raise what was heard last while it is too early to ask for a certificate again."""
        entry = self._entries.get(user)
        if entry is not None and self._clock.monotonic() < entry.ask_at:
            raise _again(entry.error)

    def require_other(self, user: User, credentials: Credentials) -> None:
        """Raise it while it is too early to try what was refused."""
        entry, now = self._entries.get(user), self._clock.monotonic()
        if entry is not None and now < entry.retry_at and entry.answer == credentials.answer():
            entry.ask_at = min(now + ASK_AGAIN, entry.retry_at)
            raise _again(entry.error)

    def note(self, user: User, credentials: Credentials, error: NotAdmitted | LoginStuck) -> None:
        """A login has come to nothing."""
        refused = isinstance(error, NotAdmitted)
        first, last = REFUSED_PAUSES if refused else STUCK_PAUSES
        before = self._entries.get(user)
        again = before is not None and type(before.error) is type(error)
        pause = min(2 * before.pause, last) if before is not None and again else first
        now = self._clock.monotonic()
        self._entries[user] = _Entry(
            error=error,
            answer=credentials.answer(),
            ask_at=now + (min(ASK_AGAIN, pause) if refused else pause),
            retry_at=now + pause,
            pause=pause,
        )
        log.warning("user_shut_out", account=user.account, error=str(error), seconds=pause)

    def forget(self, user: User) -> None:
        """The user got in."""
        self._entries.pop(user, None)

    def hear(self, heard: Change | Stale) -> None:
        """What is known of an identity has changed: it is tried anew once it may act."""
        if isinstance(heard, Change):
            for user in [user for user in self._entries if user.identity == heard.identity]:
                del self._entries[user]


def _again(error: NotAdmitted | LoginStuck) -> NotAdmitted | LoginStuck:
    """The same, as another exception: one that is raised twice keeps growing its traceback."""
    return type(error)(f"{error} (not tried again yet)")
