"""`headgate-info` as cron starts it."""

import json
from pathlib import Path

import pytest

from info_provider.__main__ import main

LEAST = """
[domain]
id = "example.org"
[service]
name = "hpc.example.org"
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A settings file of the least that is needed."""
    path = tmp_path / "info.toml"
    path.write_text(LEAST)
    return path


def test_check_config_prints_what_was_understood(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Defaults included."""
    assert main(["--config", str(config), "check-config"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["publish"]["accelerator_names"] == "v0.5"
    assert shown["domain"]["id"] == "example.org"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (LEAST + "[slurmm]\n", "slurmm"),
        (LEAST + '[publish]\naccelerator_names = "2019"\n', "accelerator_names"),
        (LEAST + '[[endpoint]]\nurl = "https://x"\nhealth = "x/readyz"\n', "endpoint.health"),
        ("[domain]\n", "id"),
    ],
)
def test_wrong_settings_end_with_78(
    config: Path, capsys: pytest.CaptureFixture[str], text: str, words: str
) -> None:
    """One line names the file and the place."""
    config.write_text(text)
    assert main(["--config", str(config), "run"]) == 78
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert words in error
    assert str(config) in error


def test_slurm_away_leaves_the_last_file(
    config: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit status 1, one line in the mail, and the published file as it was."""
    for name in ("scontrol", "squeue"):
        command = config.parent / name
        command.write_text("#!/bin/sh\necho 'slurm_load: Unable to contact' >&2\nexit 1\n")
        command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{config.parent}:/usr/bin:/bin")
    output = config.parent / "glue.json"
    output.write_text("last")
    assert main(["--config", str(config), "run", "--output", str(output)]) == 1
    error = capsys.readouterr().err
    assert error.startswith("headgate-info: nothing published: ")
    assert "Unable to contact" in error
    assert error.count("\n") == 1
    assert output.read_text() == "last"
