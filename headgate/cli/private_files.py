"""Small files that only their owner may read: written whole or not at all, never through a link."""

import contextlib
import fcntl
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path

MAX_BYTES = 1024 * 1024
LOCK_SECONDS = 30.0


class PrivateFileError(Exception):
    """A file or directory is not what it must be; the message says which, why and what to do."""


def read(path: Path) -> bytes | None:
    """The file's bytes, or None if there is no file.

    Raises:
        PrivateFileError: a symbolic link, not a plain file, somebody else's, or open to others.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise PrivateFileError(f"{path} cannot be read: {error.strerror}.") from error
    with os.fdopen(descriptor, "rb") as file:
        _check(path, os.fstat(file.fileno()))
        return file.read(MAX_BYTES)


def write(path: Path, content: bytes) -> None:
    """Replace the file, mode 0600, and its directory's fellow files not at all.

    Raises:
        PrivateFileError: the directory is a link, somebody else's, or cannot be written.
    """
    _directory(path.parent)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()  # of a killed process that had our number
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(temporary, flags, 0o600), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise PrivateFileError(f"{path} cannot be written: {error.strerror}.") from error


def remove(path: Path) -> bool:
    """Remove the file; False if there was none."""
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise PrivateFileError(f"{path} cannot be removed: {error.strerror}.") from error
    return True


@contextlib.contextmanager
def lock(path: Path) -> Iterator[None]:
    """Hold the lock beside a file, so that two commands do not renew one token at once.

    Raises:
        PrivateFileError: another process held it for 30 seconds.
    """
    _directory(path.parent)
    name = path.with_name(path.name + ".lock")
    try:
        descriptor = os.open(name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise PrivateFileError(f"{name} cannot be opened: {error.strerror}.") from error
    with os.fdopen(descriptor, "rb"):
        ends = time.monotonic() + LOCK_SECONDS
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() > ends:
                    raise PrivateFileError(f"{name} is held by another command.") from error
                time.sleep(0.05)
        yield


def _directory(path: Path) -> None:
    try:
        # `parents=True` would leave those above open to others, and ~/.ssh is one of them.
        for missing in reversed([p for p in (path, *path.parents) if not p.exists()]):
            missing.mkdir(mode=0o700, exist_ok=True)
        status = path.lstat()
    except OSError as error:
        raise PrivateFileError(f"{path} cannot be made: {error.strerror}.") from error
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        raise PrivateFileError(f"{path} is not a directory of yours.")
    if status.st_mode & 0o022:
        raise PrivateFileError(f"{path} can be written by others; run: chmod go-w {path}")


def _check(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise PrivateFileError(f"{path} is not a plain file.")
    if status.st_uid != os.geteuid():
        raise PrivateFileError(f"{path} belongs to somebody else.")
    if status.st_mode & 0o077:
        raise PrivateFileError(f"{path} is open to others; run: chmod 600 {path}")
