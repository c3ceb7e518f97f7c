"""PID 1 of a site: start the supervisor, reap what is orphaned, end with it.

When this process ends, the kernel kills every other one of the namespace (pid_namespaces(7)).
It imports next to nothing: it must never fail.
"""

import os
import signal
import sys
from types import FrameType


def main() -> int:
    """Run the supervisor on the folder in argv and return its exit status."""
    supervisor = os.fork()
    if supervisor == 0:
        argv = [sys.executable, "-P", "-m", "testbed.supervisor", *sys.argv[1:]]
        os.execv(sys.executable, argv)  # noqa: S606 - an argv list of our own

    def forward(number: int, _: FrameType | None) -> None:
        os.kill(supervisor, number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, forward)
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == supervisor:
            return max(0, os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    sys.exit(main())
