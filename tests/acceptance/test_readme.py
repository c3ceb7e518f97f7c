"""The README's story is what comes out."""

import asyncio
import re
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
STORY = re.compile(r"<!-- story -->\n```console\n(.*?)```", re.DOTALL)
VARYING = (
    (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "ID"),
    (r"\b([0-9a-f]{64}|[0-9a-f]{12})\b", "HASH"),
    (r"^[0-9a-f]{8} ", "ID "),
    (r"127\.0\.0\.1:\d+", "ADDRESS"),
    (r"\d+s\b", "SECONDS"),
    (r"GPU \d", "GPU N"),
    (r"\s+", " "),
)


def told(text: str) -> list[str]:
    """The lines of a story, with what differs from run to run replaced."""
    lines = []
    for line in text.splitlines():
        for pattern, word in VARYING:
            line = re.sub(pattern, word, line)  # noqa: PLW2901 - one rule after the other
        if line.strip():
            lines.append(line.strip())
    return lines


def ending(output: bytes) -> str:
    """How the demo ended: its last lines as they were printed."""
    return "\n".join(output.decode().splitlines()[-40:])


@pytest.mark.site
@pytest.mark.timeout(240)
async def test_the_readmes_story_is_what_the_demo_prints():
    """Each line of the README story comes out of the demo, in order, and the demo is true."""
    story = STORY.search((REPOSITORY / "README.md").read_text(encoding="utf-8"))
    assert story is not None
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "testbed.demo", "--site", "real"),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        cwd=REPOSITORY,
    )
    output, _ = await process.communicate()
    printed = told(output.decode())
    assert process.returncode == 0, ending(output)
    remaining = iter(printed)
    missing = [line for line in told(story[1]) if line not in remaining]
    assert missing == []


async def test_the_story_is_true_on_the_embedded_site():
    """The demo ends with 0 where there is neither root nor Slurm."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "testbed.demo", "--site", "embedded"),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        cwd=REPOSITORY,
    )
    output, _ = await process.communicate()
    assert process.returncode == 0, ending(output)
