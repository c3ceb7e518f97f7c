"""What OpenSSH is told about a site: one Include file, and the line that includes it."""

import contextlib
import os
import re
import stat
from collections.abc import Sequence
from pathlib import Path

from headgate.cli.failures import CommandFailure
from headgate.cli.ssh.files import QUICK
from headgate.cli.ssh.hosts import Use
from headgate.cli.ssh.identity import Identity

FOLDER = "headgate"
INCLUDE = f"Include {FOLDER}/*.conf"
_PLAIN = re.compile(r"[A-Za-z0-9_/.,+@:=-]+")
_INCLUDED = re.compile(rf"(?im)^\s*include\s.*\b{FOLDER}/\*\.conf")


def path(folder: Path, identity: Identity) -> Path:
    """The Include file of a site, by its first identity; `folder` is OpenSSH's own."""
    return folder / FOLDER / f"{identity.directory.name}.conf"


def snippet(url: str, uses: Sequence[Use], program: Sequence[str]) -> str:
    """The Include file: for each host a block that renews first, and one that always holds.

    Raises:
        CommandFailure: a path here, or a name the site gave, is not one for a configuration.
    """
    lines = [f"# Of `headgate ssh-config` for {url}; it writes this file again with --write."]
    for use in uses:
        words = (*program, *QUICK, use.directory)
        renew = " ".join(words)
        if not all(_PLAIN.fullmatch(word) for word in words):
            raise CommandFailure(f"{renew!r} cannot be written into an SSH configuration.")
        lines += ["", f'Match host {use.node.host} exec "{renew}"', *_block(use.identity())]
        lines += [f"Match host {use.node.host}", *_block({**use.place(), **use.checking()})]
    return "\n".join([*lines, ""])


def _block(settings: dict[str, str]) -> list[str]:
    return [f"    {name} {value}" for name, value in settings.items()]


def included(folder: Path) -> bool:
    """Whether the person's configuration includes our files."""
    try:
        return bool(_INCLUDED.search((folder / "config").read_text(encoding="utf-8")))
    except FileNotFoundError:
        return False
    except (OSError, UnicodeDecodeError) as error:
        raise CommandFailure(f"{folder / 'config'} cannot be read: {error}.") from error


def include(folder: Path) -> None:
    """Put the Include line at the top of the person's configuration; all else stays as it is.

    At the top, because a line below a Host or Match would belong to that.

    Raises:
        CommandFailure: it cannot be read or written.
    """
    # Configurations are often links into a repository: write there, keep the link.
    path = Path(os.path.realpath(folder / "config"))
    temporary = path.with_name(f".{path.name}.headgate")
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        before = path.read_bytes() if path.exists() else b""
        mode = stat.S_IMODE(path.stat().st_mode) if before else 0o600
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.write(f"{INCLUDE}\n".encode() + (b"\n" + before if before else b""))
        temporary.replace(path)
    except OSError as error:
        raise CommandFailure(f"{path} cannot be written: {error.strerror}.") from error
