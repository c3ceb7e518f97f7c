"""What a refusal's `WWW-Authenticate` asks for: a stronger or fresher login (RFC 9470)."""

import re
from collections.abc import Mapping

from headgate.problems import STEP_UP

_SECONDS = re.compile(r"[0-9]{1,9}")
_PARAMETER = re.compile(r'([A-Za-z_]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]+))')


def step_up(headers: Mapping[str, str]) -> tuple[tuple[str, ...], int | None] | None:
    """`acr_values`, best first, and `max_age` in seconds; None: nothing of that kind is asked."""
    scheme, _, rest = headers.get("WWW-Authenticate", "").strip().partition(" ")
    if scheme.lower() != "bearer":
        return None
    found = {
        name.lower(): re.sub(r"\\(.)", r"\1", quoted) or plain
        for name, quoted, plain in _PARAMETER.findall(rest)
    }
    if found.get("error") != STEP_UP:
        return None
    age = found.get("max_age", "")
    return tuple(found.get("acr_values", "").split()), int(age) if _SECONDS.fullmatch(age) else None
