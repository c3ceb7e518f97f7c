"""The command: every verb as a process of its own, with its exit status and its words."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from headgate.command import Completed, run
from testbed.issuer.core import Fault


def settings(
    site: Any, folder: Path, more: str = "", *, level: str = "error", pull_seconds: int = 0
) -> Path:
    """A settings file in mapping mode, with everything it needs."""
    secret = folder / "secret"
    secret.touch(mode=0o600)
    secret.write_text("s3:cret\n")
    path = folder / "accounts.toml"
    path.write_text(
        f"""
realm = "r"
mode = "mapping"
database = "sqlite+aiosqlite:///{folder}/cli.db"
audience = "http://accounts"
how_to_ask = "Ask the service desk."
log_level = "{level}"
{more}
[source]
issuer = "{site.issuer.url}"
client_id = "importer"
client_secret_file = "{secret}"
groups_any = ["hpc"]
pull_seconds = {pull_seconds}
[mapping]
account = "me"
uid = 1000
gid = 1000
home = "/home/me"
[approval]
kinds = []
"""
    )
    return path


async def command(config: Path, *arguments: str) -> Completed:
    """Run one verb."""
    argv = [sys.executable, "-m", "account_importer", "--config", str(config), *arguments]
    return await run(argv, timeout=60)


async def test_the_verbs_in_their_order(site: Any, tmp_path: Path) -> None:
    """migrate, pull, plan, approve, apply and show, as an administrator types them."""
    config = settings(site, tmp_path)
    too_early = await command(config, "pull")
    assert too_early.status == 78
    assert b"headgate-accounts migrate" in too_early.stderr
    for verb, words in (("migrate", b""), ("pull", b"4 users, 0 blocked"), ("plan", b"link")):
        done = await command(config, verb)
        assert (done.status, words in done.stdout) == (0, True), done
    plan = json.loads((await command(config, "plan", "--json")).stdout)
    assert (plan["state"], len(plan["changes"])) == ("proposed", 3)
    unknown = await command(config, "approve", "0123456789")
    assert unknown.status == 1
    approved = await command(config, "approve", plan["hash"][:12], "--by", "ada")
    assert b"approved by ada" in approved.stdout
    applied = json.loads((await command(config, "apply", "--json")).stdout)
    assert applied == {
        "plans": [{"hash": plan["hash"], "state": "applied", "made": 3, "problems": []}]
    }
    assert b"nothing is approved" in (await command(config, "apply")).stdout
    shown = json.loads((await command(config, "show", "--json")).stdout)
    assert {(a["account"], a["uid"], a["state"]) for a in shown["accounts"]} == {
        ("me", 1000, "active")
    }


async def test_statuses_tell_the_timer_what_happened(site: Any, tmp_path: Path) -> None:
    """75 for a source that is away, 3 for the brake, 78 for settings."""
    config = settings(site, tmp_path)
    await command(config, "migrate")
    await command(config, "pull")
    plan = json.loads((await command(config, "plan", "--json")).stdout)
    await command(config, "approve", plan["hash"])
    await command(config, "apply")
    site.issuer.faults.append(Fault("/scim", status=503, times=1))
    away = await command(config, "pull")
    assert (away.status, b"503" in away.stderr) == (75, True)
    site.issuer.directory.clear()
    empty = await command(config, "pull")
    assert (empty.status, b"the source is empty" in empty.stderr) == (3, True)
    allowed = await command(config, "pull", "--allow-denials", "3")
    assert (allowed.status, allowed.stdout) == (0, b"0 users, 3 blocked\n")
    wrong = await command(settings(site, tmp_path, "colour = 1"), "check-config")
    assert wrong.status == 78
    assert b"colour" in wrong.stderr
    assert b"s3:cret" not in wrong.stderr + wrong.stdout + away.stderr


async def test_serve_answers_pulls_plans_and_stops(site: Any, tmp_path: Path) -> None:
    """The service reads and plans by itself, is ready, and ends with 0 when told to."""
    config = settings(site, tmp_path, level="info", pull_seconds=60)
    await command(config, "migrate")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "account_importer", "--config", str(config), "serve"),
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    seen: dict[str, dict[str, Any]] = {}
    async with asyncio.timeout(60):
        while not {"listening", "planned"} <= set(seen):
            line = json.loads(await process.stderr.readline())
            seen[line["event"]] = line
    assert seen["planned"]["changes"] == 3
    async with site.session.get(seen["listening"]["address"] + "/readyz") as response:
        assert response.status == 200
    process.terminate()
    await process.communicate()
    assert process.returncode == 0
