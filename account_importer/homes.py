"""Making a home directory: built beside its place, handed over, then renamed into it."""

import os
import shutil
import stat
from pathlib import Path

from account_importer.directory import TargetError


def make_home(home: Path, *, uid: int, gid: int, mode: int, skeleton: Path) -> None:
    """Make `home` from the skeleton, owned by the user; one that is there and theirs stays as is.

    The folders above must be root's alone to write in, so that nobody can put a link in our way
    or another folder in the place of one of them.
    A crash leaves at most a hidden folder, which the next try removes.

    Raises:
        TargetError: something else is in its place, or the folder above is not safe.
        OSError: the file system refused.
    """
    _require_safe(home.parent)
    try:
        found = home.lstat()
    except FileNotFoundError:
        pass
    else:
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != uid:
            raise TargetError(f"{home} is there already and is not this user's directory")
        return
    fresh = home.parent / f".{home.name}.headgate-new"
    if fresh.is_dir() and not fresh.is_symlink():
        shutil.rmtree(fresh)
    fresh.mkdir(mode=0o700)
    if skeleton.is_dir():
        shutil.copytree(skeleton, fresh, symlinks=True, dirs_exist_ok=True)
    fresh.chmod(0o700)  # copytree copies the skeleton's own mode
    _hand_over(fresh, uid, gid)
    fresh.chmod(mode)
    os.chown(fresh, uid, gid)
    fresh.rename(home)


def _hand_over(tree: Path, uid: int, gid: int) -> None:
    """Give everything below `tree` away; links themselves, never what they point to."""
    for _, folders, files, folder in os.fwalk(tree, follow_symlinks=False):
        for name in (*folders, *files):
            os.chown(name, uid, gid, dir_fd=folder, follow_symlinks=False)


def _require_safe(folder: Path) -> None:
    real = folder.resolve()  # links above it count by where they lead
    for place in (real, *real.parents):
        status = place.stat()
        writable = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        # In a sticky folder nobody can exchange what is not theirs; they can put things there.
        sticky = status.st_mode & stat.S_ISVTX and place != real
        if status.st_uid not in {0, os.geteuid()} or (writable and not sticky):
            raise TargetError(f"{place} must be root's and writable by root alone")
