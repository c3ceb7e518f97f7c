"""The site's namespaces: the command that makes them, the private places in them, the way in."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from headgate.command import run
from testbed.passwd import NO_HOME, Account

UNSHARE = (
    "unshare",
    "--mount",
    "--uts",
    "--ipc",
    "--pid",
    "--fork",
    "--kill-child",
    "--mount-proc",
)
HOSTNAME = "testbed"
MARK = Path("/run/headgate-testbed")
"""Inside a site, this file names its folder: whoever enters can see that they are in."""
MOUNT_SECONDS = 20.0

# Where the site sees something of its own. What is not here is the host's, and is only read.
_EMPTY = {
    "/run": "0755",
    "/tmp": "1777",  # noqa: S108 - the private one
    "/var/tmp": "1777",  # noqa: S108 - the private one
    "/dev/shm": "1777",  # noqa: S108 - the private one
    "/var/log": "0755",
    "/var/spool": "0755",
    "/var/mail": "2775",
}
_BOUND = {"etc": "/etc", "home": "/home"}

WITH_PRIVATE_TMP = """\
#!/bin/sh
# FOLDER COMMAND...: the command, with FOLDER as its /tmp; started in a mount namespace of its own.
mount --bind "$1" /tmp && mount -t tmpfs -o mode=1777 tmpfs /dev/shm || exit 1
shift
exec "$@"
"""
"""For processes that share the site's namespaces but not its /tmp: the emulated nodes."""


def command(python: Path, folder: Path, *, owned: bool) -> tuple[str, ...]:
    """The command that is a site: with `owned`, it ends when its standard input is closed."""
    life = "owned" if owned else "detached"
    return (*UNSHARE, str(python), "-P", "-m", "testbed.init", str(folder), life)


async def make_private(folder: Path) -> None:
    """Inside the new namespaces: put private places over the host's.

    Raises:
        CommandError: no right to mount.
    """
    for place, mode in _EMPTY.items():
        # Some distributions make one a link to another: what it points at is covered already.
        if Path(place).is_dir() and not Path(place).is_symlink():
            await _mount("-t", "tmpfs", "-o", f"mode={mode},nosuid", "tmpfs", place)
    for name, place in _BOUND.items():
        await _mount("--bind", str(folder / name), place)
    (await run(("hostname", HOSTNAME), timeout=MOUNT_SECONDS)).checked()
    for place in ("/run/lock", "/run/sshd", "/var/spool/mail"):
        Path(place).mkdir()
        Path(place).chmod(0o755)  # whatever our umask is
    MARK.write_text(str(folder), encoding="utf-8")


async def _mount(*arguments: str) -> None:
    (await run(("mount", *arguments), timeout=MOUNT_SECONDS)).checked()


def entered(
    pid: int, account: Account, argv: Sequence[str], env: Mapping[str, str]
) -> tuple[str, ...]:
    """The command that runs `argv` inside the namespaces of process `pid` as an account.

    Its environment is `env` alone, its directory the account's home.
    """
    # Its root too: in a chroot, a mount namespace alone leads to the root outside.
    kinds = ("--mount", "--uts", "--ipc", "--pid", "--root")
    identity: tuple[str, ...] = ()
    if account.uid:
        identity = (
            "setpriv",
            f"--reuid={account.uid}",
            f"--regid={account.gid}",
            "--init-groups",
        )
    # A service's account has no home to be in.
    directory = "/" if account.home == NO_HOME else account.home
    settings = (f"{name}={value}" for name, value in env.items())
    return (
        *("nsenter", "-t", str(pid), *kinds, "--"),
        *identity,
        *("env", "-i", "-C", directory, *settings),
        *argv,
    )


def interpreter() -> str:
    """The Python that everybody on the machine may execute."""
    return "/usr/bin/python3" if Path("/usr/bin/python3").exists() else sys.executable
