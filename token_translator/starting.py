"""What keeps a command from starting, as one sentence: alike for all programs of this package."""

import sys
from collections.abc import Callable
from pathlib import Path

from headgate.problems import Problem
from headgate.settings import EX_CONFIG, SettingsError
from token_translator.database import AWAY

FOLDER = Path("/etc/headgate")
"""Where the settings of all programs are, unless said."""


class StartError(Exception):
    """The settings are good, and yet it cannot start; the message says why."""


def said(program: str, work: Callable[[], int]) -> int:
    """Do the work of a command; its exit status, 78 where the settings are wrong, 1 where not."""
    try:
        return work()
    except SettingsError as error:
        return _complain(program, error, EX_CONFIG)
    except (StartError, Problem) as error:
        return _complain(program, error, 1)
    except AWAY as error:
        # Without the statement that was tried, which is no sentence for an administrator.
        return _complain(program, f"the database is away: {error.orig}", 1)


def _complain(program: str, words: object, status: int) -> int:
    print(f"{program}: {' '.join(str(words).split())}", file=sys.stderr)  # noqa: T201 - the terminal's answer
    return status
