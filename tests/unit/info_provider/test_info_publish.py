"""Publishing into a file."""

import errno
import os
from pathlib import Path

import pytest

from info_provider.publish import CannotWrite, to_file


def test_the_file_is_replaced_and_readable(tmp_path: Path) -> None:
    """The new document is there, mode 0644 whatever the umask, and nothing lies beside it."""
    path = tmp_path / "glue.json"
    before = os.umask(0o077)
    try:
        to_file(b"old", path)
        to_file(b"new", path)
    finally:
        os.umask(before)
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o644
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_leaves_the_last_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the write fails the old document stays and the half one is gone."""
    path = tmp_path / "glue.json"
    to_file(b"old", path)

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(CannotWrite, match="No space left"):
        to_file(b"new", path)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    """The sentence names the file."""
    with pytest.raises(CannotWrite, match=r"gone/glue.json: No such file"):
        to_file(b"new", tmp_path / "gone" / "glue.json")
