"""Where the programs read their settings: alike for all of them."""

import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

from headgate.settings import EX_CONFIG

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]
PROGRAMS = sorted(set(SCRIPTS) - {"headgate", "headgate-krl-fetch"})
"""Those of services; people's command, and what nodes have, need no such file."""


def status(program: str, words: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    """How a program ends when it is called with these words."""
    module, _, function = SCRIPTS[program].partition(":")
    monkeypatch.setattr(sys, "argv", [program, *words])
    try:
        return int(getattr(import_module(module), function)())
    except SystemExit as ended:
        return int(ended.code or 0)


@pytest.mark.parametrize("program", PROGRAMS)
def test_settings_are_named_before_or_after_the_verb(
    program: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """`--config` is read from either place, and from the usual one where neither says it."""
    option = ["--config", str(tmp_path / "none.toml")]
    for words in ([*option, "check-config"], ["check-config", *option]):
        assert status(program, words, monkeypatch) == EX_CONFIG
        assert f"{program}: {tmp_path}/none.toml: No such file" in capsys.readouterr().err
    assert status(program, ["check-config"], monkeypatch) == EX_CONFIG
    usual = f"/etc/headgate/{program.removeprefix('headgate-')}.toml"
    assert f"{program}: {usual}: No such file" in capsys.readouterr().err
