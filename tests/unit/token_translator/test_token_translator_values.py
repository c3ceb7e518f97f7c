"""The small parts: seals, throttles, group commits, the empty revocation list, tables."""

import asyncio
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from headgate.identity import Identity
from headgate.problems import Conflict
from headgate.settings import SettingsError
from token_translator.database import open_database, require_current, upgrade
from token_translator.group_commit import GroupCommit
from token_translator.seals import ONLY, Seal, Verb, settle
from token_translator.signer.krl import RevocationList
from token_translator.tables import METADATA
from token_translator.throttle import Throttle

ROW = UUID("8dc9fb12-85dc-4579-8a35-173cfb92d976")


def seal(digest: str = "ab" * 32, sub: str = "alice", instance: str = "gateway") -> Seal:
    """A seal of the same row."""
    identity = Identity("https://iam.example/", sub)
    return Seal(instance, ROW, digest, identity, "site1", "c", "t", datetime.now(UTC))


def test_settling_a_group() -> None:
    """Within a group as over time the first seal of a row counts; services do not meet."""
    known = [seal()]
    wanted = [
        seal(),
        seal("cd" * 32),
        seal(sub="bob"),
        seal(instance="b"),
        seal("cd" * 32, instance="b"),
    ]
    outcomes = settle(wanted, known)
    assert outcomes[0] is False
    assert isinstance(outcomes[1], Conflict)
    assert isinstance(outcomes[2], Conflict)
    assert outcomes[3] is True
    assert isinstance(outcomes[4], Conflict)


@pytest.mark.parametrize("verb", list(Verb))
def test_commands_are_what_the_signer_allows(verb: Verb) -> None:
    """Each verb's command is the program and exactly one permitted word."""
    program, _, only = seal().command("/x/session", verb).partition(" --only ")
    assert program == "/x/session"
    assert ONLY.fullmatch(only)
    assert ("sha256:" in only) == (verb is Verb.SUBMIT)


def test_a_throttle_opens_again() -> None:
    """So many a minute for each name, and the wait is said."""
    throttle = Throttle(2)
    assert [throttle.take("a", now) for now in (0.0, 1.0, 2.0)] == [0.0, 0.0, 58.0]
    assert throttle.take("b", 2.0) == 0.0
    assert throttle.take("a", 60.0) == 0.0
    assert throttle.take("a", 60.5) == 0.5


def test_a_throttle_forgets_the_quiet() -> None:
    """Names that were quiet for a minute take no memory."""
    throttle = Throttle(1)
    for name in range(100):
        throttle.take(name, 0.0)
    throttle.take("new", 61.0)
    assert len(throttle._taken) == 1


async def test_commits_are_grouped() -> None:
    """What comes while one commit is under way shares the next one."""
    groups: list[list[int]] = []
    gate = asyncio.Event()

    async def commit(items: Sequence[int]) -> Sequence[int | Exception]:
        groups.append(list(items))
        await gate.wait()
        return [ValueError(str(item)) if item == 3 else item * 2 for item in items]

    group = GroupCommit[int, int](commit)
    tasks = [asyncio.create_task(group.submit(0))]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    tasks += [asyncio.create_task(group.submit(number)) for number in range(1, 5)]
    await asyncio.sleep(0)
    gate.set()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    await group.close()
    assert groups == [[0], [1, 2, 3, 4]]
    assert [result for result in results if isinstance(result, int)] == [0, 2, 4, 8]
    assert isinstance(results[3], ValueError)


async def test_a_group_that_fails_tells_everybody() -> None:
    """A failed commit reaches each of its callers, and the next group is tried afresh."""
    failing = True

    async def commit(items: Sequence[int]) -> Sequence[int | Exception]:
        if failing:
            raise OSError("disk full")
        return list(items)

    group = GroupCommit[int, int](commit)
    results = await asyncio.gather(group.submit(1), group.submit(2), return_exceptions=True)
    assert [type(result) for result in results] == [OSError, OSError]
    failing = False
    assert await group.submit(3) == 3


async def test_a_caller_who_leaves_disturbs_nobody() -> None:
    """A cancelled caller's item is committed with the others all the same."""

    async def commit(items: Sequence[int]) -> Sequence[int | Exception]:
        await asyncio.sleep(0)
        return list(items)

    group = GroupCommit[int, int](commit)
    leaver = asyncio.create_task(group.submit(1))
    stayer = asyncio.create_task(group.submit(2))
    await asyncio.sleep(0)
    leaver.cancel()
    assert await stayer == 2


def test_openssh_reads_the_empty_list(tmp_path: Path) -> None:
    """`ssh-keygen -Ql` shows version and comment of a list that revokes nothing."""
    moment = datetime(2026, 11, 21, tzinfo=UTC)
    (tmp_path / "krl").write_bytes(RevocationList(7, moment, "of site1").encode())
    subprocess.run(["ssh-keygen", "-q", "-N", "", "-f", str(tmp_path / "key")], check=True)
    argv = ["ssh-keygen", "-Q", "-l", "-f", str(tmp_path / "krl"), str(tmp_path / "key.pub")]
    shown = subprocess.check_output(argv, text=True)
    assert "# KRL version 7" in shown
    assert "# Comment: of site1" in shown
    assert shown.rstrip().endswith("ok")


def test_migrations_make_the_tables(tmp_path: Path) -> None:
    """The newest version of the database is what the code's tables say."""
    engine = open_database(f"sqlite:///{tmp_path}/seals.sqlite")
    with engine.connect() as connection, pytest.raises(SettingsError, match="run it"):
        require_current(connection, "seals", "it")
    with engine.begin() as connection:
        upgrade(connection, "seals")
    with engine.connect() as connection:
        require_current(connection, "seals", "it")
        assert compare_metadata(MigrationContext.configure(connection), METADATA) == []
    engine.dispose()
