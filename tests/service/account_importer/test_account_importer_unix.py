"""The real useradd, in namespaces of its own, with the root part apart from the rest."""

import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from headgate.command import run
from headgate.settings import command_environment

UNSHARE = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")


@pytest.mark.site
async def test_accounts_are_made_once_whatever_is_killed(tmp_path: Path) -> None:
    """Either half of apply is killed before and after useradd: every account is there once."""
    if os.geteuid() != 0 or shutil.which("useradd") is None:
        pytest.fail("this part needs root and the distribution's passwd package")
    driver = Path(__file__).with_name("namespace_driver.py")
    # The driver is started by its path: what it imports of the checkout is found by this.
    environment = command_environment(PYTHONPATH=str(driver.parents[3]))
    argv = [*UNSHARE, sys.executable, str(driver), str(tmp_path)]
    done = await run(argv, timeout=240, env=environment)
    outcome = json.loads(done.checked().stdout.splitlines()[-1])
    statuses = outcome["statuses"]
    assert all(status != 0 for key, status in statuses.items() if key.startswith("killed")), outcome
    assert all(status == 0 for key, status in statuses.items() if "more" in key), outcome
    assert outcome["expiry"] == ["1", ""]
    names = {"alice", "bob", "carol"} | {
        f"user{moment}{part}" for moment in ("before", "after") for part in ("executor", "other")
    }
    assert set(outcome["passwd"]) == set(outcome["registry"]) == set(outcome["homes"]) == names
    uids = [uid for uid, *_ in outcome["passwd"].values()]
    assert sorted(uids) == list(range(20000, 20007))
    for name, (uid, gid, shell, home) in outcome["passwd"].items():
        assert (gid, home) == (uid, f"/srv/home/{name}")
        assert shell == ("/bin/sh" if name == "carol" else "/bin/bash")
        assert outcome["registry"][name] == [uid, "active"]
        assert outcome["homes"][name] == [uid, 0o700, True]
    assert outcome["database"] == ["hg-accounts"]
    assert outcome["left"] == []
    assert [row["reason"] for row in outcome["refused"]] == ["daemon is reserved"]
