"""What is made once per machine, below one folder, and copied or read by every site."""

import contextlib
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

from testbed.instances import ROOT


def place(name: str) -> Path:
    """Where a made thing of that name is, or will be; names say of what versions it is made."""
    return ROOT / "cache" / name


@contextlib.asynccontextmanager
async def making(thing: Path) -> AsyncIterator[Path]:
    """A scratch folder to make it in, as `made`; it appears in its place only when complete.

    Two sites may make it at once: the first one's is kept.
    """
    with tempfile.TemporaryDirectory(dir=thing.parent) as name:
        yield Path(name)
        try:
            (Path(name) / "made").rename(thing)
        except OSError:
            if not thing.exists():
                raise
