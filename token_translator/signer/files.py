"""Files the signer trusts: whose they are and who else could have written them."""

import os
import pwd
import stat
from pathlib import Path

from headgate.settings import SettingsError


def read_private(path: Path) -> bytes:
    """A key file: regular, no link, ours, and closed to everybody else.

    Raises:
        SettingsError: it is not, or cannot be read.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror}") from error
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise SettingsError(f"{path}: not a regular file")
        if status.st_uid != os.geteuid():
            owner, here = name_of(status.st_uid), name_of(os.geteuid())
            raise SettingsError(
                f"{path}: it is {owner}'s, and this runs as {here}: run it as {owner}"
            )
        if status.st_mode & 0o077:
            raise SettingsError(f"{path}: mode {status.st_mode & 0o777:o}; use 0600")
        return file.read(64 * 1024)


def name_of(uid: int) -> str:
    """A user's name, or the number of one that has none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


def require_unwritable(path: Path, owners: frozenset[int]) -> None:
    """Refuse a file that anybody but `owners` could write or put another in the place of.

    Every directory above it counts too, as in sshd's StrictModes; a sticky one may be writable.

    Raises:
        SettingsError: naming what is open to whom.
    """
    for place in (path.absolute(), *path.absolute().parents):
        try:
            status = place.lstat()
        except OSError as error:
            raise SettingsError(f"{place}: {error.strerror}") from error
        if stat.S_ISLNK(status.st_mode):
            raise SettingsError(f"{place}: a symbolic link; name the file itself")
        if status.st_uid not in owners:
            names = " or ".join(f"uid {uid}" for uid in sorted(owners))
            raise SettingsError(f"{place}: owned by uid {status.st_uid}; it must be {names}")
        sticky = stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX
        if status.st_mode & 0o022 and not sticky:
            raise SettingsError(f"{place}: mode {status.st_mode & 0o7777:o}; others can write it")


def write_new(path: Path, content: bytes, mode: int) -> None:
    """Write a file that must not be there yet, durably.

    Raises:
        SettingsError: it is there already, or cannot be written.
    """
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(path, flags, mode)
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, mode)
            file.write(content)
            file.flush()
            os.fsync(descriptor)
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror}") from error
