"""Home directories: made beside their place, never through a link, never over somebody's."""

import os
from pathlib import Path

import pytest

from account_importer.directory import TargetError
from account_importer.homes import make_home

ME = {"uid": os.geteuid(), "gid": os.getegid()}


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A folder for homes that only we can write to."""
    base = tmp_path / "home"
    base.mkdir(mode=0o755)
    skeleton = tmp_path / "skel"
    (skeleton / "sub").mkdir(parents=True)
    (skeleton / ".profile").write_text("umask 077\n")
    (skeleton / "link").symlink_to("/etc/passwd")
    return base


def make(home: Path) -> None:
    """As the executor does."""
    make_home(home, **ME, mode=0o700, skeleton=home.parent.parent / "skel")


def test_a_home_comes_from_the_skeleton(base: Path) -> None:
    """Mode, files and links as links; doing it again changes nothing."""
    for _ in range(2):
        make(base / "alice")
        assert (base / "alice").stat().st_mode & 0o777 == 0o700
        assert (base / "alice/.profile").read_text() == "umask 077\n"
        assert (base / "alice/link").is_symlink()
        assert [path.name for path in base.iterdir()] == ["alice"]
        (base / "alice/.profile").write_text("umask 077\n")


def test_what_a_crash_left_is_removed(base: Path) -> None:
    """A half-made folder is made anew."""
    left = base / ".alice.headgate-new"
    left.mkdir()
    (left / "half").write_text("")
    make(base / "alice")
    assert not left.exists()
    assert not (base / "alice/half").exists()


def test_a_link_or_a_file_in_its_place_is_refused(base: Path) -> None:
    """Nothing is followed, nothing is overwritten."""
    (base / "alice").symlink_to("/root")
    (base / "bob").write_text("")
    for name in ("alice", "bob"):
        with pytest.raises(TargetError, match="there already"):
            make(base / name)


def test_a_home_of_somebody_else_is_refused(base: Path) -> None:
    """A directory another uid owns stays theirs."""
    (base / "alice").mkdir()
    with pytest.raises(TargetError, match="not this user's"):
        make_home(base / "alice", uid=os.geteuid() + 1, gid=0, mode=0o700, skeleton=base)


def test_a_folder_others_can_write_to_is_refused(base: Path) -> None:
    """Whoever can write beside a home could put a link in its way."""
    base.chmod(0o777)
    with pytest.raises(TargetError, match="root alone"):
        make(base / "alice")


def test_a_folder_further_up_counts_too(base: Path) -> None:
    """Whoever can exchange a folder above the homes could send root's changes elsewhere."""
    base.parent.chmod(0o775)
    with pytest.raises(TargetError, match="root alone"):
        make(base / "alice")
    base.parent.chmod(0o1777)  # sticky: what is root's stays in its place
    make(base / "alice")


@pytest.mark.site  # root alone can give folders away
def test_a_folder_above_that_is_somebody_elses_is_refused(base: Path) -> None:
    """The owner of a folder can exchange what is in it."""
    os.chown(base.parent, 12345, 12345)
    with pytest.raises(TargetError, match="root alone"):
        make(base / "alice")
