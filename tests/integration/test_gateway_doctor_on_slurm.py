"""The doctor at the real site, well and with things broken on purpose."""

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from testbed.site import Site

pytestmark = [pytest.mark.site, pytest.mark.timeout(180)]

RENAMES = """
function slurm_job_submit(job, partitions, uid)
  job.name = "renamed"
  return slurm.SUCCESS
end
function slurm_job_modify(job, record, partitions, uid)
  return slurm.SUCCESS
end
"""


async def examined(site: Site, config: str = "") -> tuple[int, dict[str, dict[str, Any]]]:
    """Exit status, and findings by what was looked at."""
    token = site.folder.write("doctor.token", await site.token("alice"), mode=0o600)
    config = config or str(site.path("conf", "headgate-gateway.toml"))
    argv = (f"{site.addresses.venv}/bin/headgate-gateway", "doctor", "--config", config)
    more = ("--json", "--token-file", str(token), "--user", "alice", "--wait", "30")
    done = await site.exec((*argv, *more), timeout=90)
    assert done.stdout, done.stderr
    document = msgspec.json.decode(done.stdout)
    return done.status, {finding["check"]: finding for finding in document["findings"]}


def graded(found: dict[str, dict[str, Any]]) -> set[str]:
    """What is not ok."""
    return {check for check, finding in found.items() if finding["level"] != "ok"}


async def jobs_left(site: Site) -> str:
    """What Slurm still has of alice's."""
    return await site.slurm("squeue", "-h", "-u", "alice", "-o", "%j")


async def test_a_site_on_which_all_is_well(site: Site):
    """Every check is ok, nothing is left in the queue or in the user's home."""
    await site.import_accounts()
    status, found = await examined(site)
    assert (status, graded(found)) == (0, set())
    assert "n" in found["shared directory"]["words"]
    assert "hg-" not in await jobs_left(site)
    listed = await site.exec(("ls", "-A", "/home/alice/.headgate/jobs"))
    row = found["directory"]["words"].split("/")[-1].split()[0]
    assert row not in listed.stdout.decode()


@contextlib.asynccontextmanager
async def renaming(site: Site) -> AsyncIterator[None]:
    """The site's submit plugin gives every job another name, and all may write our program."""
    program = site.path("libexec", "headgate-session")
    conf = site.path("slurm", "slurm.conf").read_text(encoding="utf-8")
    site.folder.write("slurm/job_submit.lua", RENAMES)
    site.folder.write("slurm/slurm.conf", f"JobSubmitPlugins=lua\n{conf}")
    program.chmod(0o777)
    await site.slurm("scontrol", "reconfigure")
    try:
        yield
    finally:
        program.chmod(0o755)
        site.folder.write("slurm/slurm.conf", conf)
        await site.slurm("scontrol", "reconfigure")


async def test_a_plugin_that_renames_and_a_program_that_others_may_change(site: Site):
    """Both are found in one go, by real Slurm's own answer."""
    async with renaming(site):
        status, found = await examined(site)
    assert (status, graded(found)) == (1, {"marker", "session program"})
    assert "headgate-session" in found["session program"]["words"]


async def test_a_directory_that_cannot_be_made(site: Site):
    """A wrong `directory` is found before any job is submitted."""
    config = site.path("conf", "headgate-gateway.toml").read_text(encoding="utf-8")
    wrong = config.replace("[[clusters]]", '[[clusters]]\ndirectory = "/proc/{user}/{id}"', 1)
    assert wrong != config
    path = site.folder.write("conf/wrong-gateway.toml", wrong, mode=0o600)
    status, found = await examined(site, str(path))
    assert (status, graded(found)) == (1, {"directory"})
    assert "sbatch" not in found
