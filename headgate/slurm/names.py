"""Names a job can be looked up by: the markers that headgate gives to its jobs."""

import re
from collections.abc import Sequence

_NAME = re.compile(r"[A-Za-z0-9._-]{1,200}")


def check_names(names: Sequence[str]) -> Sequence[str]:
    """The names, each once, if all of them are plain enough for a filter of Slurm's commands.

    Raises:
        ValueError: a name is empty, longer than 200, or has other characters than letters, digits,
            `.`, `_` and `-` (a comma would be two names, a newline a row).
    """
    for name in names:
        if not _NAME.fullmatch(name):
            raise ValueError(f"not a name that jobs are looked up by: {name[:200]!r}")
    return tuple(dict.fromkeys(names))
