"""How strictly the person's own configuration checks a host's key: ours never asks for less."""

import re
from pathlib import Path

from headgate.cli.places import Places
from headgate.cli.ssh.config import FOLDER
from headgate.command import CommandError, run

SECONDS = 5.0
MAX_BYTES = 256 * 1024
_OURS = re.compile(rf"(?im)^(\s*include\s.*?)\S*\b{FOLDER}/\*\.conf")
_EMPTY = re.compile(r"(?im)^\s*include\s*$")
_SYSTEM = "\nMatch all\nInclude /etc/ssh/ssh_config\n"
"""ssh(1) leaves the system's file out where another is named; below a Host it would be that's."""


async def refuses_unknown(places: Places, host: str) -> bool:
    """Whether ssh, without our files, would refuse a host whose key nobody knows.

    `host` may have wildcards: some host of that pattern is asked about.
    """
    argv = ("ssh", "-G", "-F", "/dev/stdin", "--", re.sub(r"[*?]", "x", host))
    try:
        done = await run(
            argv,
            timeout=SECONDS,
            limit=MAX_BYTES,
            env=places.environ,
            stdin=_without_ours(places.ssh / "config").encode(),
        )
    except CommandError:
        return False
    # `yes` is written as `true` there.
    return b"\nstricthostkeychecking true\n" in b"\n" + done.stdout


def _without_ours(path: Path) -> str:
    try:
        text = path.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        text = ""
    own = _EMPTY.sub("", _OURS.sub(r"\1", text))
    return own.encode(errors="replace").decode() + _SYSTEM
