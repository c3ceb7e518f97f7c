"""A login by browser, begun at the prompt of a stock ssh: for one network, and told of."""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from testbed.site import Site
from tests.integration.laptop import SECONDS, Laptop, config, terminal

pytestmark = pytest.mark.site

ALLOWED = "127.0.0.2"
"""The address for which the site's front door offers it."""
ENTER = """\
#!/bin/sh
# Says what the prompt was, and presses Enter.
echo "prompt: $1" >&2
echo
"""


@pytest.fixture
async def laptop(site: Site, tmp_path: Path) -> Laptop:
    """A laptop that has no token; its person presses Enter at every prompt."""
    await site.import_accounts()
    (tmp_path / "askpass").write_text(ENTER)
    (tmp_path / "askpass").chmod(0o700)
    one = Laptop(tmp_path, site)
    one.config.write_text(config(tmp_path, site))
    return one


@contextlib.asynccontextmanager
async def ssh(laptop: Laptop, *arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A running `ssh`."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *laptop.argv(*arguments), env=laptop.environment, stdout=pipe, stderr=pipe
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def shown_code(process: asyncio.subprocess.Process) -> str:
    """The code that ssh shows its person."""
    assert process.stderr
    async with asyncio.timeout(SECONDS):
        while line := (await process.stderr.readline()).decode():
            if found := re.search(r"enter the code ([A-Z-]+);", line):
                return found[1]
    raise AssertionError("no code was shown")


async def decide(site: Site, code: str, decision: str) -> None:
    """What the person does in the browser."""
    form = {"user_code": code, "username": "alice", "decision": decision}
    async with (
        aiohttp.ClientSession(raise_for_status=True) as session,
        session.post(f"{site.addresses.issuer}device", data=form),
    ):
        pass


async def test_login_by_browser_and_the_word_about_it(laptop: Laptop):
    """A confirmed code opens the door; at the next terminal the person hears from where."""
    async with ssh(laptop, "-b", ALLOWED, "door", "id -un") as process:
        await decide(laptop.site, await shown_code(process), "approve")
        async with asyncio.timeout(SECONDS):
            stdout, _ = await process.communicate()
    assert stdout == b"alice\n"
    log = laptop.site.path("log", "frontdoor.log").read_text()
    assert "device_login_from_new_address" in log
    assert await first_lines(laptop) == [True, False]


async def first_lines(laptop: Laptop) -> list[bool]:
    """Whether each of two visits with a token begins with a word about a login by browser."""
    told = []
    for_us = str(laptop.site.addresses.frontdoor["audience"])
    token = await laptop.site.token("alice", audience=[for_us])
    (laptop.folder / "askpass").write_text(f"#!/bin/sh\necho '{token}'\n")
    for _ in range(2):
        async with terminal(laptop, "echo here") as window:
            line = await window.line()
            told.append(f"logins by browser from {ALLOWED} (" in line)
            while line != "here":
                line = await window.line()
    return told


async def test_refused_code(laptop: Laptop):
    """A code that the person refuses in the browser opens nothing."""
    async with ssh(laptop, "-b", ALLOWED, "door", "true") as process:
        await decide(laptop.site, await shown_code(process), "deny")
        async with asyncio.timeout(SECONDS):
            _, stderr = await process.communicate()
    assert process.returncode == 255
    assert b"Permission denied" in stderr


async def test_not_offered_to_others(laptop: Laptop):
    """From an address that is not listed there is no code, and Enter is no answer."""
    done = await laptop.ssh("door", "true")
    assert done.status == 255
    assert b"Access token: " in done.stderr
    assert b"code" not in done.stderr
