"""The simulated cluster's memory on disk: a file that only grows, each line durable."""

import os
from pathlib import Path

import msgspec

from headgate.slurm.memory.jobs import Drain, Job


class Line(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line: how a job or a node is from now on, or an id that was used up."""

    job: Job | None = None
    gone: Job | None = None
    """An attempt that ended and whose job went back to the queue: kept for accounting."""
    drain: Drain | None = None
    last_id: int = 0


class Journal:
    """Lines of JSON, appended and flushed to the disk before anybody learns of them."""

    def __init__(self, path: Path) -> None:
        """Open or create the file (0600) and read what it holds.

        Raises:
            msgspec.DecodeError: a line in the middle is not ours. A torn last line is cut off: it
                was never acknowledged.
        """
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        whole = path.read_bytes()
        kept = whole[: whole.rfind(b"\n") + 1]
        os.ftruncate(self._file, len(kept))
        os.lseek(self._file, 0, os.SEEK_END)
        self.lines = tuple(msgspec.json.decode(line, type=Line) for line in kept.splitlines())

    def append(self, line: Line) -> None:
        """Add one line; it is on the disk when this returns."""
        data = msgspec.json.encode(line) + b"\n"
        while data:
            data = data[os.write(self._file, data) :]
        os.fdatasync(self._file)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)
