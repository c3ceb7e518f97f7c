"""Killed between any two steps of apply, the next run finishes: nothing lost, nothing doubled."""

from pathlib import Path
from typing import Any

import pytest

from account_importer.store import PlanState


async def prepared(open_site: Any, folder: str) -> Any:
    """A site with an approved plan that blocks one user and creates two others."""
    site = await open_site(folder)
    directory = site.issuer.directory
    for name in ("alice", "bob"):
        directory.change(name, groups=())
    await site.settle()  # carol alone
    for name in ("alice", "bob"):
        directory.change(name, groups=("hpc",))
    directory.change("carol", active=False)
    importer = site.importer()
    await importer.pull()
    found = await importer.plan()
    assert [c.kind for c in found.plan.changes] == ["block", "create", "create"]
    await importer.approve(found.plan.digest, "ada")
    return site


async def test_apply_survives_a_kill_at_every_step(
    open_site: Any, tmp_path_factory: pytest.TempPathFactory, killed: type[BaseException]
) -> None:
    """For each step in turn: kill there, run again, and the end is the same as without."""
    kills = 0
    for number in range(1000):
        site = await prepared(open_site, str(tmp_path_factory.mktemp("site")))
        site.issuer.directory.change("carol", active=False)
        site.fuse.left = number
        try:
            await site.importer().apply()
        except killed:
            kills += 1
        finished = site.fuse.left is not None and site.fuse.left >= 0
        site.fuse.left = None
        await site.importer().apply()
        assert site.machine.calls == ["useradd carol", "useradd alice", "useradd bob"]
        assert {n: u.uid for n, u in site.machine.users.items()} == {
            "carol": 20000,
            "alice": 20001,
            "bob": 20002,
        }
        assert site.machine.expired == {"carol"}
        async with site.store().reading("r") as book:
            states = {e.account: (e.state, e.version) for e in (await book.entries()).values()}
            assert await book.plans([PlanState.APPROVED, PlanState.APPLYING]) == []
            (stored,) = [p for p in await book.plans(list(PlanState)) if b"bob" in p.document]
            assert set((await book.journal(stored.digest)).values()) == {"done"}
        assert states == {
            "alice": ("active", 1),
            "bob": ("active", 1),
            "carol": ("blocked", 2),
        }
        assert (await site.importer().plan()).plan.changes == ()
        site.issuer.directory.change("carol", active=True)
        if finished:
            break
    assert kills > 20  # every transaction three times, every change of the target


@pytest.mark.parametrize("number", [0, 1, 2])
async def test_a_killed_pull_or_plan_leaves_the_whole_or_nothing(
    open_site: Any, tmp_path: Path, number: int, killed: type[BaseException]
) -> None:
    """A reading and a plan are one transaction each."""
    site = await open_site(tmp_path)
    for verb in ("pull", "plan"):
        site.fuse.left = number
        with pytest.raises(killed):
            await getattr(site.importer(), verb)()
        site.fuse.left = None
        await getattr(site.importer(), verb)()
    found = await site.importer().plan()
    assert [(c.account, c.uid) for c in found.plan.changes] == [
        ("alice", 20000),
        ("bob", 20001),
        ("carol", 20002),
    ]
