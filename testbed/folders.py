"""Files and folders of a site with the owner and mode they must have, whatever our umask is."""

import os
from pathlib import Path

from testbed.passwd import account


class Folder:
    """A site's state folder; names are relative to it."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def path(self, *parts: str) -> Path:
        """A place in the folder."""
        return self.root.joinpath(*parts)

    def make(self, name: str, *, owner: str = "root", mode: int = 0o755) -> Path:
        """A folder; parents that are missing belong to root and are open to read."""
        path = self.root / name
        for parent in reversed(path.relative_to(self.root).parents):
            folder = self.root / parent
            if not folder.exists():
                folder.mkdir()
                folder.chmod(0o755)
        path.mkdir(exist_ok=True)
        path.chmod(mode)
        self._own(path, owner)
        return path

    def write(
        self,
        name: str,
        content: str | bytes,
        *,
        owner: str = "root",
        group: str = "",
        mode: int = 0o644,
    ) -> Path:
        """A file; never open to others than `mode` says, not even while it is written."""
        path = self.root / name
        if not path.parent.is_dir():
            self.make(str(path.parent.relative_to(self.root)))
        data = content.encode() if isinstance(content, str) else content
        path.unlink(missing_ok=True)
        path.touch(mode=0o600, exist_ok=False)
        path.write_bytes(data)
        self._own(path, owner, group)
        path.chmod(mode)
        return path

    def _own(self, path: Path, owner: str, group: str = "") -> None:
        etc = self.root / "etc"
        uid, gid = 0, 0
        if owner != "root":
            found = account(etc, owner)
            uid, gid = found.uid, found.gid
        if group:
            gid = account(etc, group).gid
        os.chown(path, uid, gid)
