"""Which of a node's files `node-setup --check` runs, and as whom: none that others can write."""

import os
import pwd
from collections.abc import Sequence
from pathlib import Path

import pytest

from headgate.command import Completed
from headgate.settings import SettingsError
from token_translator.nodes import places
from token_translator.nodes.settings import Node

ALICE = pwd.struct_passwd(("alice", "x", 20000, 20000, "", "/home/alice", "/bin/sh"))


class Ran(list[tuple[str, ...]]):
    """Commands that would have been run; each answers as a Python that is new enough."""

    async def run(self, argv: Sequence[str], **_: object) -> Completed:
        """Keep it."""
        self.append(tuple(argv))
        return Completed(argv=tuple(argv), status=0, stdout=b"3.11\n", stderr=b"")


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> Ran:
    """What the check runs, while it runs nothing."""
    ran = Ran()
    monkeypatch.setattr(places, "run", ran.run)
    return ran


@pytest.fixture
def roots(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder whose files pass for root's, but for those below `hers`."""
    (tmp_path / "hers").mkdir()

    def require(path: Path, _: frozenset[int]) -> None:
        if tmp_path / "hers" in (path, *path.parents):
            raise SettingsError(f"{path}: owned by uid 20000; it must be uid 0")

    monkeypatch.setattr(places, "require_unwritable", require)
    return tmp_path


def program(path: Path, first_line: str) -> Path:
    """A program of one line."""
    path.write_text(f"{first_line}\n")
    path.chmod(0o755)
    return path


async def states(session_program: Path, account: pwd.struct_passwd | None = ALICE) -> list[str]:
    """How the check of the session program went, step by step."""
    node = Node(realm="main", uid_first=20000, uid_last=29999, session_program=str(session_program))
    return [finding.state for finding in await places.session(node, account)]


async def test_node_places_run_no_program_that_others_can_write(tmp_path: Path, ran: Ran) -> None:
    """A session program found unsafe is not run, and nor is what its first line names."""
    unsafe = program(tmp_path / "session", "#!/usr/bin/python3")
    unsafe.chmod(0o777)
    assert await states(unsafe) == ["failed"]
    assert ran == []


@pytest.mark.parametrize("way", ["file", "link", "folder"])
async def test_node_places_run_no_interpreter_of_somebody(roots: Path, ran: Ran, way: str) -> None:
    """Root's program whose interpreter somebody else can replace is not run, and nor is that."""
    hers, mine = roots / "hers", program(roots / "python3", "#!/bin/sh")
    match way:
        case "file":
            interpreter = program(hers / "python3", "#!/bin/sh")
        case "link":
            (hers / "python3").symlink_to(mine)
            interpreter = roots / "python"
            interpreter.symlink_to("hers/python3")
        case _:
            (hers / "bin").symlink_to(roots)
            interpreter = hers / "bin" / "python3"
    assert (await states(program(roots / "session", f"#!{interpreter}")))[-1] == "failed"
    assert ran == []


async def test_node_places_ask_nothing_of_a_loop_of_links(roots: Path, ran: Ran) -> None:
    """A link to itself is a finding like any other."""
    (roots / "session").symlink_to("session")
    assert await states(roots / "session") == ["failed"]
    assert ran == []


async def test_node_places_run_programs_as_the_account(roots: Path, ran: Ran) -> None:
    """The interpreter and the program are run as the account, and without one not at all."""
    safe = program(roots / "session", f"#!{program(roots / 'python3', '#!/bin/sh')}")
    await states(safe)
    assert len(ran) == 2
    assert all(argv[:2] == ("setpriv", "--reuid=20000") for argv in ran)
    ran.clear()
    assert (await states(safe, None))[-2:] == ["skipped", "skipped"]
    assert ran == []


@pytest.mark.site  # only root can give a file away
async def test_node_places_know_a_link_of_somebody(tmp_path: Path) -> None:
    """Of a link its owner counts too, also in a folder where all may write, but only their own."""
    open_to_all = tmp_path / "tmp"
    open_to_all.mkdir()
    open_to_all.chmod(0o1777)
    link = open_to_all / "python3"
    link.symlink_to("/usr/bin/env")
    assert places.owned("it", str(link), executable=True).state == "ok"
    os.lchown(link, 20000, 20000)
    assert places.owned("it", str(link), executable=True).state == "failed"
