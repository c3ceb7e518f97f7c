"""The variables that a client sends for its session: which go on, and how many it may send."""

import re
from collections.abc import Mapping

import asyncssh

MAX_VALUE = 256
MAX_VARIABLES = 20
MAX_REQUESTS = 100
MAX_BYTES = 16 * 1024
_VARIABLE = re.compile(r"LANG|LC_[A-Z_]{1,30}")


def environment(asked: Mapping[str, str]) -> dict[str, str]:
    """What may go to the login node of the variables that a client sends: the locale, no more."""
    allowed = {
        name: value
        for name, value in asked.items()
        if _VARIABLE.fullmatch(name) and len(value) <= MAX_VALUE and value.isprintable()
    }
    return dict(list(allowed.items())[:MAX_VARIABLES])


class Environment(dict[bytes, bytes]):
    """What asyncssh keeps of the `env` requests of one session (RFC 4254, section 6.4).

    It would keep them all; here whatever `environment` refuses takes no room.

    Raises:
        asyncssh.DisconnectError: on assignment, after `MAX_REQUESTS` or `MAX_BYTES` in all.
    """

    def __init__(self) -> None:
        super().__init__()
        self._requests = 0
        self._bytes = 0

    def __setitem__(self, name: bytes, value: bytes) -> None:
        """Count a variable, and keep it if it is one for the login node."""
        self._requests += 1
        self._bytes += len(name) + len(value)
        if self._requests > MAX_REQUESTS or self._bytes > MAX_BYTES:
            raise asyncssh.DisconnectError(
                asyncssh.DISC_BY_APPLICATION, "There are too many variables for one session."
            )
        # Bytes that are no UTF-8 become what is not printable.
        asked = {name.decode(errors="surrogateescape"): value.decode(errors="surrogateescape")}
        if environment(asked) and (name in self or len(self) < MAX_VARIABLES):
            super().__setitem__(name, value)
