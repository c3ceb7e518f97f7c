"""The folders of sites on this machine: made, found, locked while alive, swept when dead."""

import contextlib
import fcntl
import os
import secrets
import shutil
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import structlog

log = structlog.get_logger(__name__)

ROOT = Path("/srv/headgate-testbed")
"""Only root may write here and above: sshd's StrictModes wants it so."""

_BLOCK = 64
_LONGEST_NAME = 24  # unix(7): a socket's path has 107 bytes
_FIRST_PORTS = range(20000, 32000, _BLOCK)  # below Linux's range for outgoing connections


class InstanceError(Exception):
    """A site that cannot be made or is not there."""


@dataclass(slots=True)
class Ports:
    """A block of loopback ports that is this site's alone; each name takes the next one."""

    first: int
    _taken: dict[str, int] = field(default_factory=dict)

    def taken(self) -> dict[str, int]:
        """All that have a name."""
        return {name: port for name, port in self._taken.items() if not name.startswith("(")}

    def take(self, name: str) -> int:
        """The port of that name, the same at each asking.

        Raises:
            InstanceError: the block is used up.
        """
        if name not in self._taken:
            port = self.first + len(self._taken)
            while not _free(port):
                self._taken[f"(taken) {port}"] = port
                port += 1
            if port >= self.first + _BLOCK - 1:
                raise InstanceError("no free port is left in this site's block")
            self._taken[name] = port
        return self._taken[name]


@dataclass(frozen=True, slots=True)
class Instance:
    """One site's folder and block of ports: its own for as long as somebody holds both claims.

    The folder's is a locked file. The block's is its last port, bound: sites in other chroots and
    containers see other folders, but the same ports.
    """

    name: str
    folder: Path
    ports: Ports
    lock: int
    block: socket.socket

    @property
    def claims(self) -> tuple[int, int]:
        """The descriptors that a site's processes keep open."""
        return self.lock, self.block.fileno()

    def release(self) -> None:
        """Leave the claims to the site's own processes, if there are any."""
        os.close(self.lock)
        self.block.close()


def create(name: str) -> Instance:
    """Make a site's folder, and its lock held.

    Raises:
        InstanceError: a name that cannot be a folder's, a live site of that name.
    """
    name = name or f"site-{secrets.token_hex(4)}"
    if not name.replace("-", "").isalnum() or len(name) > _LONGEST_NAME:
        raise InstanceError(
            f"{name!r}: a site's name has 1-{_LONGEST_NAME} letters, digits and hyphens"
        )
    with _all_locked():
        _sweep()
        folder = _sites() / name
        if folder.exists():
            raise InstanceError(f"a site named {name!r} is running already")
        first, block = _claim_block()
        folder.mkdir(mode=0o755)
        folder.chmod(0o755)
        lock = os.open(folder / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
    return Instance(name, folder, Ports(first), lock, block)


def find(name: str) -> Path | None:
    """The folder of a live site of that name."""
    folder = _sites() / name
    return folder if folder.is_dir() and _alive(folder) else None


def sweep() -> None:
    """Remove what dead sites left (one that was killed could not remove its folder)."""
    if _sites().is_dir():
        with _all_locked():
            _sweep()


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a file's lock; blocks until it is free."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _sites() -> Path:
    return ROOT / "sites"


@contextlib.contextmanager
def _all_locked() -> Iterator[None]:
    for folder in (ROOT, ROOT / "cache", _sites()):
        folder.mkdir(parents=True, exist_ok=True, mode=0o755)
        folder.chmod(0o755)
    with locked(ROOT / "lock"):
        yield


def _alive(folder: Path) -> bool:
    """Whether anybody holds its lock: owner or supervisor."""
    try:
        descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _sweep() -> None:
    for folder in _sites().iterdir():
        if not _alive(folder):
            log.info("swept", site=folder.name)
            shutil.rmtree(folder, ignore_errors=True)


def _claim_block() -> tuple[int, socket.socket]:
    for first in _FIRST_PORTS:
        claim = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            claim.bind(("127.0.0.1", first + _BLOCK - 1))
        except OSError:  # another site's
            claim.close()
            continue
        if all(_free(port) for port in range(first, first + _BLOCK - 1)):
            return first, claim
        claim.close()
    raise InstanceError("no block of free ports is left on the loopback address")


def _free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
