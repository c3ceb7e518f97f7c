"""Jobs of real users on real Slurm, submitted with nothing but a token."""

import asyncio
import signal
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from testbed.caller import Caller
from testbed.site import Site

pytestmark = pytest.mark.site

IMAGE = {"container": {"image": "headgate/demo:latest"}}
WHO = "id -un; id -u; ls /; cat /etc/passwd | wc -l"


@pytest.fixture(scope="session")
async def people(site: Site) -> AsyncIterator[dict[str, Caller]]:
    """Alice, bob and carol with accounts and tokens."""
    await site.import_accounts()
    async with aiohttp.ClientSession() as session:
        yield {
            name: Caller(session, str(site.addresses.gateway), await site.token(name))
            for name in ("alice", "bob", "carol")
        }


@pytest.fixture
def alice(people: dict[str, Caller]) -> Caller:
    """Alice, who is in the group gpu."""
    return people["alice"]


async def sacct(site: Site, job: dict[str, Any], fields: str) -> list[str]:
    """What accounting says of a job, found by its marker, once slurmdbd has heard of its end."""
    argv = ("sacct", "-a", "-n", "-X", "-P", "-o", f"{fields},End", "--name", f"hg-{job['id']}")
    while True:
        rows = (await site.slurm(*argv)).splitlines()
        if rows and not rows[0].endswith("|Unknown"):
            return [row.rpartition("|")[0] for row in rows]


async def test_a_container_job_runs_as_its_user_with_one_gpu(site: Site, alice: Caller):
    """The payload is inside the image, has the user's uid and one GPU, and its files are theirs."""
    command = f"{WHO}; echo gpu=$CUDA_VISIBLE_DEVICES; ls /bin/busybox; touch made; exit 7"
    job = await alice.run(command, **IMAGE, resources={"gpu_cores_per_process": 1})
    uid = str(site.account("alice").uid)
    lines = (await alice.output(job)).split()
    assert lines[:2] == ["alice", uid]
    assert "/bin/busybox" in lines
    assert {"gpu=0", "gpu=1", "gpu=2", "gpu=3"} & set(lines)
    assert (job["state"], job["exit_code"], job["effective"]["gpus"]) == ("failed", 7, 1)
    assert await sacct(site, job, "User,UID,State,ExitCode") == [f"alice|{uid}|FAILED|7:0"]
    made = await site.exec(("stat", "-c", "%U %a", f"{job['directory']}/made"))
    assert made.stdout.decode().split()[0] == "alice"


async def test_squeue_shows_the_job_under_the_users_name(site: Site, alice: Caller):
    """While it runs, the queue has the job with its marker and its owner."""
    job = await alice.submit("while [ ! -e stop ]; do sleep 0.1; done")
    await alice.until(job["id"], "active")
    row = await site.slurm("squeue", "-a", "-h", "-o", "%u %T", "--name", f"hg-{job['id']}")
    assert row.split() == ["alice", "RUNNING"]
    (await site.exec(("touch", f"{job['directory']}/stop"), user="alice")).checked()
    assert (await alice.until(job["id"]))["state"] == "completed"


async def test_a_cancelled_job_is_cancelled_in_slurm(site: Site, alice: Caller):
    """DELETE ends the job in REST and in accounting."""
    job = await alice.submit("sleep 600", **IMAGE)
    await alice.until(job["id"], "active")
    assert (await alice("DELETE", f"/v1/jobs/{job['id']}")).status == 202
    assert (await alice.until(job["id"]))["state"] == "canceled"
    (state,) = await sacct(site, job, "State")
    assert state.startswith("CANCELLED")


async def test_login_shells_and_start_up_files_do_not_matter(site: Site, people: dict[str, Caller]):
    """A tcsh user and one whose .bashrc prints and waits for nobody submit like anybody."""
    noise = b'echo "Welcome, $USER!"; seq 500; printf "HGS1 fake\\n"\n'
    (await site.exec(("tee", "/home/bob/.bashrc"), user="bob", stdin=noise)).checked()
    assert site.account("carol").shell == "/bin/tcsh"
    jobs = await asyncio.gather(*(people[name].run("id -un") for name in ("bob", "carol")))
    outputs = [
        await people[name].output(job) for name, job in zip(("bob", "carol"), jobs, strict=True)
    ]
    assert outputs == ["bob\n", "carol\n"]


async def test_an_image_that_is_not_there_fails_with_udockers_words(alice: Caller):
    """The job fails as `image`, and says what udocker said."""
    job = await alice.run("true", container={"image": "headgate/none:1"})
    assert (job["state"], job["failure"]["kind"]) == ("failed", "image")
    assert "Error" in job["failure"]["detail"]


@pytest.mark.long
async def test_a_time_limit_is_told_as_one(alice: Caller):
    """A job that is cut off says that its time was over, not that it failed."""
    ended = await alice.run("sleep 600", attributes={"duration": 60})
    assert (ended["state"], ended["failure"]["kind"]) == ("failed", "time_limit")
    assert "1 min" in ended["failure"]["detail"]


async def test_environment_reaches_the_payload_and_nothing_else(site: Site, alice: Caller):
    """A value is in the payload's environment, neither in Slurm's memory nor in command lines."""
    value = "s3cret 'quoted' $(id)\nand a second line"
    job = await alice.submit(
        'printf "%s" "$SECRET"; while [ ! -e stop ]; do sleep 0.1; done',
        environment={"SECRET": value},
        **IMAGE,
    )
    running = await alice.until(job["id"], "active")
    native = running["native_id"]
    script = await site.slurm("scontrol", "write", "batch_script", native, "-")
    shown = await site.slurm("scontrol", "show", "job", native)
    processes = (await site.exec(("ps", "-eo", "args"))).stdout.decode()
    assert "s3cret" not in script + shown + processes
    (await site.exec(("touch", f"{job['directory']}/stop"), user="alice")).checked()
    ended = await alice.until(job["id"])
    assert (ended["state"], await alice.output(ended)) == ("completed", value)


async def started(site: Site, job: dict[str, Any]) -> str:
    """How often a payload that appends to `starts` has started."""
    done = await site.exec(("cat", f"{job['directory']}/starts"))
    return done.stdout.decode()


async def test_killed_between_answer_and_submission_the_job_runs_once(site: Site, alice: Caller):
    """A gateway killed after 201 and before sbatch sends the job after its restart, tokenless."""
    await site.stop("sshd")
    try:
        job = await alice.submit("echo start >> starts")
        await site.signal("gateway", signal.SIGKILL)
    finally:
        await site.start("sshd")
    await site.start("gateway")
    ended = await alice.until(job["id"])
    assert ended["state"] == "completed"
    assert await started(site, job) == "start\n"
    assert len(await sacct(site, job, "JobID")) == 1


async def test_killed_while_sbatch_waits_the_job_runs_once(site: Site, alice: Caller):
    """A gateway killed while sbatch waits for a stopped slurmctld neither loses nor doubles."""
    await site.signal("slurmctld", signal.SIGSTOP)
    try:
        job = await alice.submit("echo start >> starts")
        attempt = f"{job['directory']}/.headgate/attempt"
        while (await site.exec(("test", "-e", attempt))).status:
            pass  # until the session has asked sbatch
        await site.signal("gateway", signal.SIGKILL)
    finally:
        await site.signal("slurmctld", signal.SIGCONT)
    await site.start("gateway")
    ended = await alice.until(job["id"])
    assert ended["state"] == "completed"
    assert await started(site, job) == "start\n"
    assert len(await sacct(site, job, "JobID")) == 1


async def test_while_slurm_is_down_jobs_stay_new_and_say_why(site: Site, alice: Caller):
    """A job admitted while slurmctld is down waits with a reason, and runs when it is back."""
    await site.signal("slurmctld", signal.SIGKILL)
    try:
        job = await alice.submit("echo start >> starts")
        shown = await alice.told(job["id"])
        assert shown["state"] == "new"
        assert "Slurm does not answer" in shown["status_message"]
    finally:
        await site.start("slurmctld")
    assert (await alice.until(job["id"]))["state"] == "completed"
    assert await started(site, job) == "start\n"


async def test_one_user_may_ask_for_much_at_once(alice: Caller):
    """32 requests side by side go through one connection, with sshd's own limits."""
    job = await alice.run("echo out")
    path = f"/v1/jobs/{job['id']}/stdout"
    answers = await asyncio.gather(*(alice("GET", path) for _ in range(32)))
    assert {(answer.status, answer.body) for answer in answers} == {(200, b"out\n")}
