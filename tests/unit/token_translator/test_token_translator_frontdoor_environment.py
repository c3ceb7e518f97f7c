"""The variables that a client sends for its session."""

import asyncssh
import pytest

from token_translator.frontdoor.environment import MAX_VARIABLES, Environment


def test_only_the_locale_is_kept():
    """What would not go to the login node takes no room."""
    kept = Environment()
    kept[b"LANG"] = b"C.UTF-8"
    kept[b"LD_PRELOAD"] = b"/srv/evil.so"
    kept[b"LC_ALL"] = b"x" * 300
    kept[b"LC_TIME"] = b"\xff"
    assert kept == {b"LANG": b"C.UTF-8"}


def test_some_are_kept_and_no_more():
    """Of too many good ones the first are kept; a later value takes an earlier one's place."""
    kept = Environment()
    for n in range(30):
        kept[b"LC_" + bytes([65 + n // 26, 65 + n % 26])] = b"C"
    kept[b"LC_AA"] = b"D"
    assert len(kept) == MAX_VARIABLES
    assert kept[b"LC_AA"] == b"D"


def test_the_hundred_and_first_ends_the_connection():
    """The same variable over and over counts each time."""
    kept = Environment()
    for _ in range(100):
        kept[b"A"] = b""
    with pytest.raises(asyncssh.DisconnectError):
        kept[b"A"] = b""


def test_sixteen_kibibytes_end_the_connection():
    """Names and values together are 16 KiB at most."""
    kept = Environment()
    kept[b"A" * 8192] = b"x" * 8192
    with pytest.raises(asyncssh.DisconnectError):
        kept[b"A"] = b""
