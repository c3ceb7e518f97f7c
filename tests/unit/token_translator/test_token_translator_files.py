"""Whose a file must be: ceilings and keys of the signer."""

import os
import pwd
from pathlib import Path

import pytest

from headgate.settings import SettingsError
from token_translator.signer.ceilings import Rate, read_ceilings
from token_translator.signer.files import read_private


@pytest.fixture
def ceilings(tmp_path: Path) -> Path:
    """A ceilings file of this process's uid."""
    path = tmp_path / "ceilings.toml"
    path.write_text("max_lifetime = 60\n")
    return path


def test_ceilings_of_the_embedded_site(ceilings: Path) -> None:
    """Where one uid runs everything the file may be that uid's."""
    assert read_ceilings(ceilings, embedded=True).max_lifetime == 60


@pytest.mark.site  # only root can give a file away
def test_ceilings_that_are_not_of_root(ceilings: Path) -> None:
    """A file of the signer's own or anybody's uid is refused."""
    os.chown(ceilings, 12345, -1)
    for embedded in (False, True):
        with pytest.raises(SettingsError, match="owned by uid 12345"):
            read_ceilings(ceilings, embedded=embedded)


@pytest.mark.parametrize("mode", [0o666, 0o664, 0o602])
def test_ceilings_that_others_can_write(ceilings: Path, mode: int) -> None:
    """Write permission for group or others is refused."""
    ceilings.chmod(mode)
    with pytest.raises(SettingsError, match="others can write"):
        read_ceilings(ceilings, embedded=True)


def test_ceilings_in_a_folder_that_others_can_write(tmp_path: Path) -> None:
    """Who can write the folder can put another file in its place."""
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o777)
    (folder / "ceilings.toml").write_text("")
    with pytest.raises(SettingsError, match="open: mode"):
        read_ceilings(folder / "ceilings.toml", embedded=True)


def test_ceilings_behind_a_link(ceilings: Path, tmp_path: Path) -> None:
    """A link is not followed."""
    (tmp_path / "link.toml").symlink_to(ceilings)
    with pytest.raises(SettingsError, match="symbolic link"):
        read_ceilings(tmp_path / "link.toml", embedded=True)


@pytest.mark.parametrize(
    "text",
    [
        "max_lifetim = 60",
        'principals = ["*"]',
        'principals = ["root"]',
        'session_programs = ["sh"]',
        'session_programs = ["/bin/sh -c"]',
        'extensions = ["permit-all"]',
        "per_minute = 0",
    ],
)
def test_ceilings_that_are_not_understood(ceilings: Path, text: str) -> None:
    """A ceiling that is misspelt or too wide keeps the signer from starting."""
    ceilings.write_text(text)
    with pytest.raises(SettingsError):
        read_ceilings(ceilings, embedded=True)


@pytest.mark.site  # only root can give a file away
def test_keys_of_somebody_else(tmp_path: Path) -> None:
    """A private key that belongs to another uid is not read, even where it could be."""
    path = tmp_path / "key"
    path.write_bytes(b"x")
    path.chmod(0o600)
    os.chown(path, 12345, -1)
    with pytest.raises(SettingsError, match="it is uid 12345's"):
        read_private(path)


def test_the_rate_is_steady() -> None:
    """A minute's worth at once, then as many as the minute has given back."""
    rate = Rate(60, now=0.0)
    assert [rate.take(0.0) for _ in range(61)] == [True] * 60 + [False]
    assert [rate.take(1.5), rate.take(1.5)] == [True, False]


def test_a_key_of_another_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever runs the command as the wrong user, root too, reads as whom to run it."""
    path = tmp_path / "key"
    path.touch(mode=0o600)
    owner = pwd.getpwuid(os.getuid()).pw_name
    monkeypatch.setattr(os, "geteuid", lambda: 4000012345)
    with pytest.raises(SettingsError, match=f"this runs as uid 4000012345: run it as {owner}"):
        read_private(path)
