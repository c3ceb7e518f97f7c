"""When a request is sent again: pure rules, the transport applies them."""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

MAX_RETRY_AFTER_SECONDS = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How long one call may take in all, one attempt of it, and how pauses grow; all in seconds.

    Pauses double from `first_pause` to `longest_pause`, each drawn from its upper half, so that
    many clients that failed together do not come back together.
    """

    deadline: float = 60.0
    attempt: float = 30.0
    first_pause: float = 0.25
    longest_pause: float = 10.0
    chance: random.Random = field(default_factory=random.Random, repr=False, compare=False)

    def pause(self, failures: int) -> float:
        """Seconds to wait after that many failures, counted from 1."""
        full = min(self.longest_pause, self.first_pause * 2.0 ** min(failures - 1, 32))
        return full * (0.5 + self.chance.random() / 2)


@dataclass(frozen=True, slots=True)
class Retrying:
    """What an observer is told before a request is sent again: why, and in how many seconds."""

    failures: int
    reason: str
    pause: float


def retry_after(headers: Mapping[str, str], now: datetime) -> float | None:
    """The seconds that a `Retry-After` asks for (RFC 9110, section 10.2.3), None if none is sane.

    `now` is aware. The HTTP-date form is measured against it; a date in the past means now.
    """
    value = headers.get("Retry-After", "").strip()
    if not value:
        return None
    if value.isascii() and value.isdigit():
        return min(float(value), MAX_RETRY_AFTER_SECONDS)
    try:
        moment = parsedate_to_datetime(value)
    except (ValueError, OverflowError):
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return min(max(0.0, (moment - now).total_seconds()), MAX_RETRY_AFTER_SECONDS)
