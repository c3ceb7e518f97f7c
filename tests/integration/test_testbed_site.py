"""What a user finds on the site: Slurm with GPUs, private places, containers, a login node."""

import pwd
import sys

import pytest

from headgate.command import run
from testbed.registry import udocker_environment
from testbed.site import Site

pytestmark = pytest.mark.site


async def test_a_job_runs_as_its_user_with_one_gpu(site: Site, user: str):
    """A batch job that asks for a GPU runs as the user and is told which one it has."""
    wrap = 'id -un; echo "gpu $CUDA_VISIBLE_DEVICES"; echo "on $SLURMD_NODENAME"'
    await site.slurm(
        "sbatch", "-W", "-p", "gpu", "--gpus=1", "-o", "out", "--wrap", wrap, user=user
    )
    name, gpu, node = (
        (site.path(*site.account(user).home[1:].split("/")) / "out").read_text().splitlines()
    )
    assert name == user
    assert gpu in {"gpu 0", "gpu 1", "gpu 2", "gpu 3"}
    assert node in {"on n1", "on n2"}


async def test_gpus_are_not_shared(site: Site, user: str):
    """All eight GPUs are handed out, and the next job waits for resources."""
    hold = ("sbatch", "--parsable", "-p", "gpu", "--gpus=4", "-N1", "--wrap", "sleep 60")
    jobs = [(await site.slurm(*hold, user=user)).strip() for _ in range(3)]
    try:
        listed = ("squeue", "-h", "-o", "%T", "-j", ",".join(jobs))
        states = (await site.slurm(*listed)).split()
        while states.count("RUNNING") < 2:
            states = (await site.slurm(*listed)).split()
        assert sorted(states) == ["PENDING", "RUNNING", "RUNNING"]
    finally:
        await site.slurm("scancel", *jobs, user=user)


async def test_nodes_have_a_tmp_of_their_own(site: Site, user: str):
    """What a job leaves in /tmp on one node is not there on another, nor on the login node."""
    await site.slurm("srun", "-w", "n1", "touch", "/tmp/left-on-n1", user=user)  # noqa: S108 - its own /tmp is the point
    for node, expected in (("n1", "left-on-n1"), ("n2", "")):
        assert (await site.slurm("srun", "-w", node, "ls", "/tmp", user=user)).strip() == expected  # noqa: S108 - its own /tmp is the point
    assert "left-on-n1" not in await site.slurm("ls", "/tmp")  # noqa: S108 - its own /tmp is the point


async def test_accounting_names_the_user(site: Site, user: str):
    """An ended job is in slurmdbd under its user's name."""
    job = (await site.slurm("sbatch", "--parsable", "-W", "--wrap", "true", user=user)).strip()
    listed = ("sacct", "-n", "-X", "-P", "-j", job, "-o", "User,State")
    while (await site.slurm(*listed)).strip() != f"{user}|COMPLETED":
        pass  # slurmdbd writes a little later


async def test_people_get_their_accounts_by_one_verb(site: Site):
    """`accounts` does what the administrator does, any number of times."""
    testbed = (sys.executable, "-m", "testbed", "--name", site.path().name)
    for _ in range(2):
        assert (await run((*testbed, "accounts"), timeout=120)).status == 0
    done = await run((*testbed, "exec", "--user", "alice", "--", "id", "-un"), timeout=60)
    assert (done.status, done.stdout) == (0, b"alice\n"), done.stderr


async def test_the_hosts_people_are_not_in_the_site(site: Site, user: str):
    """The site's passwd has system accounts and its own users only; the host's has none of them."""
    rows = [line.split(":") for line in site.path("etc", "passwd").read_text().splitlines()]
    inside = {(row[0], int(row[2])) for row in rows if 1000 <= int(row[2]) < 60000}
    people = {(one.pw_name, one.pw_uid) for one in pwd.getpwall() if 1000 <= one.pw_uid < 60000}
    assert user in {name for name, _ in inside}
    assert not inside & people


async def test_a_container_comes_from_the_local_registry(site: Site, user: str):
    """Without the internet, udocker pulls the image and runs it; the exit code is the payload's."""
    env = {**udocker_environment(site.folder), "UDOCKER_LOGLEVEL": "2"}
    registry = f"--registry={site.addresses.registry}"
    image = site.addresses.image
    for arguments in (("pull", registry, image), ("create", "--name=demo", image)):
        (await site.exec(("udocker", *arguments), user=user, env=env)).checked()
    inside = (
        "run",
        "--nobanner",
        "--pull=never",
        "demo",
        "/bin/sh",
        "-c",
        "busybox | head -1; exit 7",
    )
    done = await site.exec(("udocker", *inside), user=user, env=env)
    assert done.stdout.startswith(b"BusyBox")
    assert done.status == 7
