"""How far the ledger was written, kept outside its database: a restored backup is noticed by it."""

import os
import re
import stat
from pathlib import Path

import msgspec

from headgate.settings import SettingsError
from token_translator.signer.entries import Head

_BYTES = 256
_OPEN = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC


class _Written(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    seq: int
    hash: str
    serial: int


class Position:
    """A small file with the number and hash of an entry, and the highest serial until then.

    It is overwritten in place, in one write below a disk's sector, after the database's commit; it
    is not flushed to the disk each time: after a power cut it may be behind the ledger, which is
    harmless, never ahead of it.
    """

    def __init__(self, path: Path) -> None:
        """Open a file of ours that nobody else can write.

        Raises:
            SettingsError: there is none, or it is another's.
        """
        self.path = path
        try:
            self._descriptor = os.open(path, _OPEN)
        except OSError as error:
            raise SettingsError(
                f"{path}: {error.strerror}; `init` makes it, and after a restore `reconcile`"
            ) from error
        status = os.fstat(self._descriptor)
        mine = stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid()
        if not mine or status.st_mode & 0o022:
            self.close()
            raise SettingsError(f"{path}: not a file of ours that nobody else can write")

    def read(self) -> Head:
        """What was written last.

        Raises:
            SettingsError: the file does not hold it.
        """
        content = os.pread(self._descriptor, _BYTES, 0)
        try:
            found = msgspec.json.decode(content, type=_Written)
        except msgspec.MsgspecError as error:
            raise SettingsError(f"{self.path}: not a position: {error}") from error
        if not re.fullmatch(r"[0-9a-f]{64}", found.hash) or min(found.seq, found.serial) < 0:
            raise SettingsError(f"{self.path}: not a position")
        return Head(found.seq, found.hash, found.serial)

    def write(self, head: Head) -> None:
        """Remember the end of the ledger; one before what is remembered changes nothing."""
        if head.seq >= self.read().seq:
            os.pwrite(self._descriptor, encode(head), 0)

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)


def encode(head: Head) -> bytes:
    """The file's whole content: JSON, padded to a fixed length."""
    body = msgspec.json.encode(_Written(head.seq, head.hash, head.serial))
    return body.ljust(_BYTES - 1) + b"\n"
