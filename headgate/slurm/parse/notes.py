"""What a parser did not understand: said once to the log, and never fatal.

Slurm gains states and fields with every release; a service must outlive the site's upgrade.
"""

from collections.abc import Callable

import structlog

Note = Callable[[str, str], None]
"""Takes what kind of thing was not understood (`job state`) and the text itself."""

_MOST = 1000
"""Kept words; a flood of new ones must not become a leak."""


def silent(_kind: str, _text: str) -> None:
    """Take no notice: for callers that have no log."""


class Notes:
    """Logs each thing that was not understood, the first time it is seen."""

    def __init__(self) -> None:
        self._seen: set[tuple[str, str]] = set()
        self._log = structlog.get_logger("headgate.slurm")

    def __call__(self, kind: str, text: str) -> None:
        """Log `kind` and `text` unless they were logged before."""
        short = text[:200]
        if (kind, short) in self._seen or len(self._seen) >= _MOST:
            return
        self._seen.add((kind, short))
        self._log.warning("slurm said something unknown", kind=kind, text=short)
