"""The composition root of the `headgate` command."""

import os
import sys

from headgate.cli.ssh.files import nothing_to_do


def main() -> None:
    """Run the command; every failure is a sentence and an exit status, never a traceback."""
    if nothing_to_do(sys.argv[1:], os.environ):
        return  # ssh asked, and waits: everything below takes ten times as long
    from headgate.cli.program import start  # noqa: PLC0415 - see above

    sys.exit(start(sys.argv[1:], os.environ))


if __name__ == "__main__":
    main()
