"""Strangers who try enrolment tokens: they write nothing, hold nobody up, and are slowed down."""

import asyncio
import contextlib
import sqlite3
from pathlib import Path
from typing import Any

WRONG = {"Authorization": f"Bearer hgenrol-{'a' * 32}"}


async def attempt(site: Any, key_line: str) -> Any:
    """A host certificate asked for with a token that never was."""
    body = {"public_key": key_line}
    return await site.client.post("/v1/host-certificates", json=body, headers=WRONG)


async def test_a_wrong_token_is_only_looked_up(site: Any, folder: Path, key_line: str) -> None:
    """While somebody else writes, a stranger is answered: no lock is asked for, no row written."""
    with contextlib.closing(sqlite3.connect(folder / "tokens.sqlite")) as writer:
        writer.execute("BEGIN IMMEDIATE")
        answer = await asyncio.wait_for(attempt(site, key_line), 2)
        assert (answer.status, (await answer.json())["code"]) == (401, "enrolment_unknown")
        writer.rollback()


async def test_one_source_is_slowed_down(site: Any, key_line: str) -> None:
    """After sixty attempts in a minute it is told to wait."""
    for _ in range(60):
        assert (await attempt(site, key_line)).status == 401
    answer = await attempt(site, key_line)
    assert (answer.status, (await answer.json())["code"]) == (429, "source_rate")
    assert 0 < int(answer.headers["Retry-After"]) <= 60
