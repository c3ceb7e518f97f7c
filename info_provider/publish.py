"""Handing a document over: to standard output, or into a file that is never seen half written."""

import os
import sys
import tempfile
from pathlib import Path

READABLE_BY_ALL = 0o644


class CannotWrite(Exception):  # noqa: N818 - a condition, in the words of the operator
    """The document could not be handed over; the file that was there before is untouched."""


def to_stdout(document: bytes) -> None:
    """Write the whole document to standard output.

    Raises:
        CannotWrite: the reader went away, or the disk behind it is full.
    """
    try:
        sys.stdout.buffer.write(document)
        sys.stdout.buffer.flush()
    except OSError as error:
        raise CannotWrite(f"standard output: {error.strerror}") from error


def to_file(document: bytes, path: Path) -> None:
    """Replace `path` by the document: written beside it, synced, renamed over it (rename(2)).

    Whoever reads `path` sees the old document or the new one, also across a crash.

    Raises:
        CannotWrite: no such directory, not permitted, disk full.
    """
    try:
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".new", dir=path.parent)
        beside = Path(name)
        try:
            with os.fdopen(descriptor, "wb") as stream:
                os.fchmod(stream.fileno(), READABLE_BY_ALL)
                stream.write(document)
                stream.flush()
                os.fsync(stream.fileno())
            beside.replace(path)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise
        _sync_directory(path.parent)
    except OSError as error:
        raise CannotWrite(f"{path}: {error.strerror}") from error


def _sync_directory(path: Path) -> None:
    """Make a rename in it outlast a power failure."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
