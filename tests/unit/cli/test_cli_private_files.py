"""Private files are private, whole, and never somebody else's."""

import os
import stat
from pathlib import Path

import pytest

from headgate.cli import private_files
from headgate.cli.private_files import PrivateFileError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file in a directory that does not exist yet."""
    return tmp_path / "state" / "file"


def test_what_is_written_is_read(path: Path):
    """Content survives, mode is 0600 in a 0700 directory, no leftovers lie beside it."""
    private_files.write(path, b"one")
    private_files.write(path, b"two")
    assert private_files.read(path) == b"two"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert [p.name for p in path.parent.iterdir()] == ["file"]


def test_mode_does_not_depend_on_umask(tmp_path: Path):
    """A generous umask opens nothing: no file, and no directory made for it at any depth."""
    path = tmp_path / "home" / "state" / "file"
    before = os.umask(0)
    try:
        private_files.write(path, b"x")
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [stat.S_IMODE(p.stat().st_mode) for p in list(path.parents)[:2]] == [0o700, 0o700]


def test_no_file_is_none(path: Path):
    """Absence is no error."""
    assert private_files.read(path) is None
    assert not private_files.remove(path)


def test_a_link_is_not_read(path: Path, tmp_path: Path):
    """A symbolic link in place of the file is refused."""
    target = tmp_path / "target"
    target.write_bytes(b"x")
    target.chmod(0o600)
    path.parent.mkdir()
    path.symlink_to(target)
    with pytest.raises(PrivateFileError, match="cannot be read"):
        private_files.read(path)


def test_a_link_is_replaced_not_followed(path: Path, tmp_path: Path):
    """Writing puts a file in the link's place and leaves its target alone."""
    target = tmp_path / "target"
    target.write_bytes(b"untouched")
    path.parent.mkdir(mode=0o700)
    path.symlink_to(target)
    private_files.write(path, b"new")
    assert target.read_bytes() == b"untouched"
    assert not path.is_symlink()


def test_an_open_file_is_refused(path: Path):
    """A file that others can read is named, with the command that mends it."""
    private_files.write(path, b"x")
    path.chmod(0o640)
    with pytest.raises(PrivateFileError, match="chmod 600"):
        private_files.read(path)


def test_a_directory_that_others_write_is_refused(path: Path):
    """Nothing is put where somebody else could exchange it."""
    path.parent.mkdir()
    path.parent.chmod(0o777)
    with pytest.raises(PrivateFileError, match="chmod go-w"):
        private_files.write(path, b"x")


def test_a_fifo_is_refused_and_does_not_block(path: Path):
    """What is no plain file is not read."""
    path.parent.mkdir()
    os.mkfifo(path, 0o600)
    with pytest.raises(PrivateFileError, match="plain file"):
        private_files.read(path)


def test_a_lock_is_held_by_one(path: Path, monkeypatch: pytest.MonkeyPatch):
    """A second holder waits, and gives up with a sentence."""
    monkeypatch.setattr(private_files, "LOCK_SECONDS", 0.0)
    with (
        private_files.lock(path),
        pytest.raises(PrivateFileError, match="another command"),
        private_files.lock(path),
    ):
        pass
    with private_files.lock(path):
        pass
