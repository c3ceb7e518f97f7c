"""Where a test site's files go."""

from pathlib import Path
from typing import Protocol


class Files(Protocol):
    """Where files are written: with owners on the real site, without where there is one uid."""

    def path(self, *parts: str) -> Path:
        """A place in the site's folder."""

    def make(self, name: str, *, owner: str = "root", mode: int = 0o755) -> Path:
        """A folder."""

    def write(
        self,
        name: str,
        content: str | bytes,
        *,
        owner: str = "root",
        group: str = "",
        mode: int = 0o644,
    ) -> Path:
        """A file."""
