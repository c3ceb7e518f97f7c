"""Root never opens the database: who owns it does, so that its files stay theirs."""

import fcntl
import os
import pwd
import socket
from collections.abc import Callable
from pathlib import Path

import structlog

from account_importer.settings import Settings
from account_importer.store import database_file
from headgate import privileges
from headgate.settings import SettingsError

log = structlog.get_logger(__name__)


class BusyError(Exception):
    """Another `apply` is running."""


def database_owner(settings: Settings) -> pwd.struct_passwd:
    """Who works on the database: `run_as`, else the owner of an SQLite file's folder.

    Raises:
        SettingsError: there is no such user or folder.
    """
    if settings.run_as:
        try:
            return pwd.getpwnam(settings.run_as)
        except KeyError as error:
            raise SettingsError(f"run_as: there is no user {settings.run_as}") from error
    file = database_file(settings.database)
    if file is None:
        raise SettingsError("run_as: say whose process may open the database")
    return privileges.owner_of(file.parent)


def become(owner: pwd.struct_passwd) -> None:
    """Give up root for good and be that user, whose files are not everybody's."""
    os.umask(0o027)
    privileges.become(owner)


def lock(policy: Path) -> int:
    """Hold the one lock of everybody who obeys this policy until the process ends; its descriptor.

    It is a file of its own beside the policy, closed to all but root: whoever can open a file can
    lock it, and the policy may be read by everybody.

    Raises:
        BusyError: somebody else holds it. SettingsError: it cannot be made.
    """
    path = policy.with_name(f".{policy.name}.lock")
    try:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(path, flags, 0o600)
    except OSError as error:
        raise SettingsError(f"policy: {path}: {error.strerror}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise BusyError("another apply is running") from error
    return descriptor


def split(
    work: Callable[[socket.socket], int],
    execute: Callable[[socket.socket], None],
    owner: pwd.struct_passwd,
) -> int:
    """Fork: the child becomes `owner` and does `work`, this process stays root and executes.

    Returns the child's exit status. Call it before any thread or event loop exists.
    """
    ours, theirs = socket.socketpair()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            ours.close()
            become(owner)
            status = work(theirs)
        except Exception:  # this frame is a copy of the parent's: nothing may leave it
            log.exception("bug")
        finally:
            os._exit(status)
    theirs.close()
    execute(ours)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)
