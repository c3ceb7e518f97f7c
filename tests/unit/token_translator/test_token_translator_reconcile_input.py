"""Where `headgate-tokens reconcile` reads the ledger's word from."""

import argparse
import io
import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headgate.clock import HeldClock
from headgate.settings import SettingsError
from token_translator import reconcile_command

NOW = datetime(2026, 11, 21, tzinfo=UTC)
ERIN = {"iss": "https://iam.example/", "sub": "erin", "detail": "left the project"}
LINE = {"kind": "noted", "event": "hold_placed", "mark": ["changes", 1], "personal": ERIN}


async def reconcile(path: str) -> int:
    """Look at what is lost, on a database that is known to be an older one."""

    async def reached() -> Any:
        nothing = {name: lambda _: 0 for name in ("kept", "told", "number")}
        return SimpleNamespace(went_back_at=NOW, **nothing)

    async def marks() -> dict[str, int]:
        return {"changes": 1}

    stores: Any = SimpleNamespace(notes=SimpleNamespace(reached=reached))
    ledger: Any = SimpleNamespace(marks=marks)
    options = argparse.Namespace(ledger=Path(path), accept=False)
    return await reconcile_command.run(
        options, stores, ledger, by="local:root", clock=HeldClock(NOW)
    )


async def test_the_ledgers_word_comes_through_a_pipe(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--ledger -` reads standard input: no file with names in clear has to be readable."""
    content = io.TextIOWrapper(io.BytesIO(json.dumps(LINE).encode() + b"\n"))
    monkeypatch.setattr(sys, "stdin", content)
    assert await reconcile("-") == 1
    assert "hold: erin@https://iam.example/ in all realms" in capsys.readouterr().out


async def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    """It is said who could not read it, and what to do instead."""
    with pytest.raises(SettingsError) as refused:
        await reconcile(str(tmp_path / "none"))
    words = str(refused.value)
    assert words.startswith(f"{tmp_path}/none: No such file or directory (as ")
    assert "--ledger -" in words
    assert "Errno" not in words


async def test_a_file_of_something_else(tmp_path: Path) -> None:
    """What is no such output is told as that."""
    (tmp_path / "odd").write_bytes(b"\xff\xfe")
    with pytest.raises(SettingsError, match="not the output of `ledger search --json`"):
        await reconcile(str(tmp_path / "odd"))
