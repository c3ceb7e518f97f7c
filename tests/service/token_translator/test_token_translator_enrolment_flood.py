"""Strangers who try enrolment tokens: they write nothing, hold nobody up, and are slowed down."""

import asyncio
import contextlib
import sqlite3
from pathlib import Path
from typing import Any

from multidict import CIMultiDict

WRONG = {"Authorization": f"Bearer hgenrol-{'a' * 32}"}


async def attempt(site: Any, key_line: str, **more: str) -> Any:
    """A host certificate asked for with a token that never was."""
    body, headers = {"public_key": key_line}, {**WRONG, **more}
    return await site.client.post("/v1/host-certificates", json=body, headers=headers)


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
    # Behind a proxy it is somebody else; what a stranger puts before does not count.
    for named in ("192.0.2.7", "198.51.100.1, 192.0.2.7", "192.0.2.7, 127.0.0.1"):
        assert (await attempt(site, key_line, **{"X-Forwarded-For": named})).status == 401


async def test_a_proxy_that_adds_a_line_of_its_own_is_heard(site: Any, key_line: str) -> None:
    """What a client wrote into a line before the proxy's makes it nobody else."""
    lines = [{"X-Forwarded-For": f"192.0.2.{number}"} for number in range(61)]
    for number, before in enumerate(lines):
        headers = CIMultiDict({**WRONG, **before})
        headers.add("X-Forwarded-For", "203.0.113.7")
        body = {"public_key": key_line}
        answer = await site.client.post("/v1/host-certificates", json=body, headers=headers)
        assert answer.status == (401 if number < 60 else 429)


async def test_who_is_no_proxy_names_nobody(start: Any, key_line: str) -> None:
    """Somebody who is not listed is counted by their own address, whatever they say."""
    async with start("[connections]\nproxies = []\n") as site:
        for number in range(60):
            answer = await attempt(site, key_line, **{"X-Forwarded-For": f"192.0.2.{number}"})
            assert answer.status == 401
        answer = await attempt(site, key_line, **{"X-Forwarded-For": "192.0.2.99"})
        assert answer.status == 429
