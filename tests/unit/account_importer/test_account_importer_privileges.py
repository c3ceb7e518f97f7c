"""The root part's own lock, against other users of the machine."""

import fcntl
import stat
from pathlib import Path

import pytest

from account_importer.privileges import BusyError, lock
from headgate.settings import SettingsError


def test_whoever_may_read_the_policy_cannot_stop_apply(tmp_path: Path) -> None:
    """A local user who locks the world-readable policy for ever holds up nothing."""
    policy = tmp_path / "policy.toml"
    policy.touch(mode=0o644)
    with policy.open("rb") as theirs:
        fcntl.flock(theirs, fcntl.LOCK_EX)
        lock(policy)
    (made,) = set(tmp_path.iterdir()) - {policy}
    assert stat.S_IMODE(made.stat().st_mode) == 0o600


def test_one_at_a_time(tmp_path: Path) -> None:
    """Who comes second is told that another one runs."""
    policy = tmp_path / "policy.toml"
    lock(policy)
    with pytest.raises(BusyError):
        lock(policy)


def test_a_link_in_the_place_of_the_lock_is_not_followed(tmp_path: Path) -> None:
    """Nothing elsewhere is opened for writing by root."""
    (tmp_path / ".policy.toml.lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SettingsError):
        lock(tmp_path / "policy.toml")
    assert not (tmp_path / "elsewhere").exists()
