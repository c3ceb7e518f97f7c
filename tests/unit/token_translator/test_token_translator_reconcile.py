"""What reconcile makes of the ledger's words: their order, their holes, and whose they are."""

import argparse
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from headgate.clock import HeldClock
from headgate.identity import Identity
from token_translator import reconcile_command
from token_translator.database import open_async_database, upgrade
from token_translator.enrolments import Enrolments
from token_translator.hold_store import DatabaseHolds
from token_translator.note_store import DatabaseNotes
from token_translator.reconcile_command import Stores
from token_translator.stops import Stops
from token_translator.store import DatabaseSeals

ISS = "https://iam.example/"


class Ledger:
    """A signer that has heard of ten changes."""

    async def marks(self) -> dict[str, int]:
        """Its marks."""
        return {"changes": 10}

    async def note(self, *_: object, **__: object) -> None:
        """Nothing is told here."""
        raise AssertionError


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[AsyncEngine]:
    """An empty database: one that was put back."""
    engine = open_async_database(f"sqlite+aiosqlite:///{tmp_path}/tokens.sqlite")
    async with engine.begin() as connection:
        await connection.run_sync(upgrade, "seals")
    yield engine
    await engine.dispose()


def noted(number: int, sub: str, event: str = "hold_placed", **personal: Any) -> dict[str, Any]:
    """One line of `ledger search --json`."""
    about = {"iss": ISS, "sub": sub, "realm": "site1", "detail": "by peer:x: lost", **personal}
    return {"kind": "noted", "event": event, "mark": ["changes", number], "personal": about}


async def test_the_last_word_about_each_hold_counts(
    engine: AsyncEngine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By its number, whenever it was told; what the ledger has cut short is named alone."""
    lifted, bobs, others = (str(uuid4()) for _ in range(3))
    entries = [
        noted(1, "alice", "hold_lifted", row="none"),
        noted(5, "erin", "hold_lifted", row=lifted, actor="peer:x"),
        noted(4, "erin", row=lifted, actor="peer:x"),
        noted(6, "bob", row=bobs, actor="peer:x"),
        noted(7, "bob", row=others, actor="peer:y"),
        noted(8, "bob", "hold_lifted", row=others, actor="peer:y"),
        noted(9, "carol"),
        noted(10, "do", row=str(uuid4()), actor="peer:x", cut=True),
    ]
    words = tmp_path / "ledger.json"
    words.write_text("\n".join(json.dumps(entry) for entry in entries))
    holds = DatabaseHolds(engine)
    seals = DatabaseSeals(engine)
    stores = Stores(DatabaseNotes(engine), holds, seals, Stops(engine), Enrolments(engine))
    options = argparse.Namespace(ledger=words, accept=True)
    clock = HeldClock()
    assert (
        await reconcile_command.run(options, stores, Ledger(), by="local:root", clock=clock)
    ) == 0
    said = capsys.readouterr().out
    assert "put back: 2 holds, 0 delegations, 0 services, 0 hosts" in said
    assert f"cut short in the ledger, not put back: do@{ISS}" in said
    found = {one.identity.sub: one for one in await holds.in_force(limit=9)}
    assert set(found) == {"bob", "carol"}
    assert (str(found["bob"].id), found["bob"].owner) == (bobs, "peer:x")
    assert found["bob"].reason == "lost"
    # Noted before notes had owners: the administrator's own.
    assert found["carol"].owner == "local:root"
    assert await holds.denial(Identity(ISS, "erin"), "site1") is None
