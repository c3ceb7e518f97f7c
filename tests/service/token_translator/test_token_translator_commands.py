"""`headgate-tokens` and `headgate-signer` as an administrator runs them."""

import asyncio
import json
import os
import socket
import sqlite3
import sys
from pathlib import Path
from typing import Any

import pytest


async def run(module: str, *arguments: object) -> tuple[int, str, str]:
    """Run a command to its end: status, output, complaints."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        module,
        *(str(argument) for argument in arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    stdout, stderr = await asyncio.wait_for(process.communicate(), 60)
    return process.returncode or 0, stdout.decode(), stderr.decode()


async def test_check_config(site: Any, folder: Path) -> None:
    """What was understood is printed, defaults included, and no secret with it."""
    status, output, _ = await run(
        "token_translator", "check-config", "--config", folder / "tokens.toml"
    )
    assert status == 0
    understood = json.loads(output)
    assert understood["delegation"]["max_age"] == 30 * 86400
    assert understood["url"] == site.url


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("[delegaton]\nmax_age = 60", "delegaton"),
        ("[delegation]\nlifetime = 600", "delegation"),
        ("[[rules]]\nname = 'r'\ngroup = ['x']", "group"),
    ],
)
async def test_settings_that_are_not_understood(
    site: Any, folder: Path, more: str, words: str
) -> None:
    """Status 78 and the place, for a misspelt key as for a value beyond its bounds."""
    assert site
    path = folder / "wrong.toml"
    path.write_text((folder / "tokens.toml").read_text() + more)
    status, _, complaint = await run("token_translator", "check-config", "--config", path)
    assert status == 78
    assert words in complaint
    assert "Traceback" not in complaint


async def test_tables_of_another_version(site: Any, folder: Path) -> None:
    """A service does not start on tables it does not know, and says what to run."""
    assert site
    with sqlite3.connect(folder / "tokens.sqlite") as database:
        database.execute("UPDATE alembic_version SET version_num = 'older'")
    database.close()
    status, _, complaint = await run(
        "token_translator", "serve", "--config", folder / "tokens.toml"
    )
    assert status == 78
    assert "headgate-tokens migrate" in complaint


async def test_explain(site: Any, folder: Path) -> None:
    """The decision about a token, rule by rule; nothing is signed for it."""
    token_file = folder / "token"
    token_file.write_text(site.issuer.token())
    arguments = ("explain", "--config", folder / "tokens.toml", "--token-file", token_file)
    status, output, _ = await run("token_translator", *arguments)
    assert status == 0
    assert "rule everybody with an active account: applies" in output
    assert "granted: hg:site1:alice until" in output
    site.registry.refuses("alice", "account_unknown")
    status, output, _ = await run("token_translator", *arguments, "--json")
    assert status == 1
    assert json.loads(output)["refusal"] == "account_unknown"


async def test_both_processes_from_start_to_end(site: Any, folder: Path, key_line: str) -> None:
    """Served by its own process: READY, a certificate, and a clean end at SIGTERM."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ready:
        ready.bind(str(folder / "notify.sock"))
        ready.settimeout(30)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        path = folder / "served.toml"
        path.write_text((folder / "tokens.toml").read_text() + f"[listen]\nport = {port}\n")
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "token_translator",
            "serve",
            "--config",
            str(path),
            env={**os.environ, "NOTIFY_SOCKET": str(folder / "notify.sock")},
            stderr=asyncio.subprocess.DEVNULL,
        )
        assert await asyncio.to_thread(ready.recv, 64) == b"READY=1"
        headers = {"Authorization": f"Bearer {site.issuer.token()}"}
        url = f"http://127.0.0.1:{port}/v1/certificates"
        async with site.client.session.post(
            url, json={"public_key": key_line}, headers=headers
        ) as answer:
            assert answer.status == 201
        process.terminate()
        assert await asyncio.wait_for(process.wait(), 30) == 0


async def test_a_long_token(site: Any, key_line: str) -> None:
    """Tokens of many groups are longer than most servers' header lines; they are read here."""
    token = site.issuer.token(groups=[f"group/number/{number}" for number in range(400)])
    assert 8192 < len(token) < 16384
    response = await site.post("/v1/certificates", {"public_key": key_line}, token=token)
    assert response.status == 201, await response.text()
