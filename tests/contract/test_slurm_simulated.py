"""The simulated cluster's processes: found again after its crash, ended with its site."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from headgate.command import Completed, run
from headgate.slurm.memory.process import SimulatedCluster
from headgate.slurm.memory.site import SMALL
from headgate.slurm.model import JobState, QueuedJob

DEADLINE = 60.0
COUNT = "#!/bin/sh\necho start >> {file}\nexec sleep 600\n"


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[SimulatedCluster]:
    """A simulated cluster of the test's own, ended with all its jobs."""
    running = SimulatedCluster(tmp_path / "c", SMALL)
    await running.start()
    yield running
    await running.down()


async def eventually(condition: Callable[[], Awaitable[bool]]) -> None:
    """Return as soon as a condition holds."""
    async with asyncio.timeout(DEADLINE):
        while not await condition():  # noqa: ASYNC110 - nothing tells us, so we look
            await asyncio.sleep(0.05)


async def command(cluster: SimulatedCluster, *argv: str, stdin: str = "") -> Completed:
    """Run one of the cluster's commands in an environment with a word of its own."""
    env = {"PATH": f"{cluster.commands}:/usr/bin:/bin", "WORD": "exported", "OTHER": "kept"}
    return await run(argv, timeout=DEADLINE, env=env, stdin=stdin.encode())


async def submit(cluster: SimulatedCluster, script: str, *options: str) -> int:
    """Submit a script and return the job's id."""
    options = ("--output=/dev/null", *options)
    done = await command(cluster, "sbatch", "--parsable", *options, stdin=script)
    return int(done.checked().stdout)


async def reached(cluster: SimulatedCluster, number: int, state: JobState) -> QueuedJob:
    """The row of a job once it is in a state."""
    found: list[QueuedJob] = []

    async def there() -> bool:
        rows = await cluster.reader().jobs(ended=True)
        found[:] = [row for row in rows if row.job_id == number]
        return bool(found) and found[0].state is state

    await eventually(there)
    return found[0]


async def processes(cluster: SimulatedCluster, number: int) -> dict[str, int]:
    """The process ids of a job, its step's and its script's, once it has them."""
    path = cluster.socket.parent / "spool" / f"job{number:05}" / "processes"
    await eventually(lambda: asyncio.to_thread(path.exists))
    found: dict[str, int] = json.loads(path.read_text())
    return found


def gone(process: int) -> bool:
    """Whether a process has ended (a zombie has)."""
    try:
        stat = Path(f"/proc/{process}/stat").read_text()
    except FileNotFoundError:
        return True
    return stat.rpartition(")")[2].split()[0] == "Z"


async def test_a_job_outlives_the_cluster_and_is_found_again(
    cluster: SimulatedCluster, tmp_path: Path
):
    """Killed and started again, the cluster knows a job that runs, and starts it no second time."""
    starts = tmp_path / "starts"
    number = await submit(cluster, COUNT.format(file=starts))
    await reached(cluster, number, JobState.RUNNING)
    await eventually(lambda: asyncio.to_thread(starts.exists))
    for _ in range(3):
        await cluster.kill()
        await cluster.start()
    await reached(cluster, number, JobState.RUNNING)
    assert starts.read_text() == "start\n"
    await command(cluster, "scancel", str(number))
    assert (await reached(cluster, number, JobState.CANCELLED)).exit_signal == signal.SIGTERM


async def test_jobs_taken_while_the_cluster_is_shot_at_run_exactly_once(
    cluster: SimulatedCluster, tmp_path: Path
):
    """Killed right after it acknowledged a job, the cluster runs it, and runs it once."""
    starts = tmp_path / "starts"
    numbers = []
    for _ in range(8):
        numbers.append(await submit(cluster, f"#!/bin/sh\necho $SLURM_JOB_ID >> {starts}\n"))
        await cluster.kill()
        await cluster.start()
    for number in numbers:
        await reached(cluster, number, JobState.COMPLETED)
    assert sorted(map(int, starts.read_text().split())) == numbers == list(range(1, 9))


async def test_what_ended_while_the_cluster_was_away_is_settled(
    cluster: SimulatedCluster, tmp_path: Path
):
    """The exit code of a job that ended unseen is known afterwards."""
    go = tmp_path / "go"
    script = f"#!/bin/sh\nuntil [ -e {go} ]; do sleep 0.05; done\nexit 5\n"
    number = await submit(cluster, script)
    await reached(cluster, number, JobState.RUNNING)
    waited = (await processes(cluster, number))["step"]
    await cluster.stop()
    go.touch()

    async def ended() -> bool:
        return gone(waited)

    await eventually(ended)
    await cluster.start()
    assert (await reached(cluster, number, JobState.FAILED)).exit_status == 5


@pytest.mark.parametrize(
    ("option", "state", "restarts"),
    [("--no-requeue", JobState.NODE_FAIL, 0), ("--requeue", JobState.RUNNING, 1)],
)
async def test_a_node_that_fails_takes_its_job_along(
    cluster: SimulatedCluster, tmp_path: Path, option: str, state: JobState, restarts: int
):
    """A job whose processes vanish is NODE_FAIL, or goes back to the queue and starts anew."""
    starts = tmp_path / "starts"
    number = await submit(cluster, COUNT.format(file=starts), option, "--job-name=hg-1")
    await reached(cluster, number, JobState.RUNNING)
    await eventually(lambda: asyncio.to_thread(starts.exists))
    await cluster.kill()
    for process in (await processes(cluster, number)).values():
        os.kill(process, signal.SIGKILL)
    await cluster.start()
    row = await reached(cluster, number, state)
    assert row.restarts == restarts
    since = datetime.now(UTC) - timedelta(hours=1)
    rows = (await cluster.reader().accounted(["hg-1"], since=since))["hg-1"]
    assert [found.state for found in rows] == [JobState.NODE_FAIL, JobState.RUNNING][: restarts + 1]


async def test_nothing_of_a_job_outlives_it(cluster: SimulatedCluster, tmp_path: Path):
    """A process that a script left behind in a session of its own ends with the script."""
    left = tmp_path / "left"
    script = f'#!/bin/sh\nsetsid sh -c "echo \\$\\$ > {left}; exec sleep 600" &\n'
    script += f"until [ -s {left} ]; do sleep 0.05; done\n"
    await reached(cluster, await submit(cluster, script), JobState.COMPLETED)
    assert gone(int(left.read_text()))


async def test_no_job_outlives_its_site(tmp_path: Path):
    """When whoever holds the cluster is gone, cluster and jobs end, even a killed cluster's."""
    holder = SimulatedCluster(tmp_path / "c", SMALL)
    await holder.start()
    numbers = [await submit(holder, "#!/bin/sh\nexec sleep 600\n") for _ in range(2)]
    for number in numbers:
        await reached(holder, number, JobState.RUNNING)
    scripts = [(await processes(holder, number))["script"] for number in numbers]
    await holder.kill()
    assert not any(map(gone, scripts))
    await holder.down()

    async def ended() -> bool:
        return all(map(gone, scripts))

    await eventually(ended)


@pytest.mark.parametrize(
    ("export", "seen"),
    [
        ("ALL", "exported kept "),
        ("NIL", "  "),
        ("NONE", "  "),
        ("WORD,NEW=x", "exported  x"),
        ("ALL,NEW=x", "exported kept x"),
    ],
)
async def test_the_environment_of_a_job_is_what_was_exported(
    cluster: SimulatedCluster, tmp_path: Path, export: str, seen: str
):
    """--export decides what a job sees; the variables of Slurm are always there."""
    out = tmp_path / "out-%x"
    script = '#!/bin/sh\necho "$WORD $OTHER $NEW|$SLURM_JOB_NAME|$SLURM_JOB_NODELIST"\n'
    options = (f"--export={export}", f"--output={out}", "--job-name=env")
    await reached(cluster, await submit(cluster, script, *options), JobState.COMPLETED)
    assert (tmp_path / "out-env").read_text() == f"{seen}|env|n1\n"


async def test_files_and_folders_of_a_job(cluster: SimulatedCluster, tmp_path: Path):
    """Output and error apart; a missing folder is /tmp with a word, a missing output is 0:53."""
    script = "#!/bin/sh\npwd\necho oops >&2\n"
    options = (f"--chdir={tmp_path}", "--output=o", "--error=e")
    await reached(cluster, await submit(cluster, script, *options), JobState.COMPLETED)
    assert (tmp_path / "o").read_text() == f"{tmp_path}\n"
    assert (tmp_path / "e").read_text() == "oops\n"
    options = (f"--chdir={tmp_path}/none", f"--output={tmp_path}/o")
    await reached(cluster, await submit(cluster, script, *options), JobState.COMPLETED)
    first, second, third = (tmp_path / "o").read_text().splitlines()
    assert "couldn't chdir" in first
    assert (second, third) == ("/tmp", "oops")  # noqa: S108 - where Slurm goes
    number = await submit(cluster, script, f"--output={tmp_path}/none/o")
    row = await reached(cluster, number, JobState.FAILED)
    assert (row.exit_status, row.exit_signal) == (0, 53)


async def test_options_in_the_script_count_less(cluster: SimulatedCluster):
    """#SBATCH lines are options, and those of the command line go before them."""
    script = "#!/bin/sh\n#SBATCH -J inside --hold\n# a comment\n#SBATCH --time=3\ntrue\n"
    await submit(cluster, script, "--job-name=outside")
    (row,) = (await cluster.reader().jobs_named(["outside"]))["outside"]
    assert (row.reason, row.time_limit_minutes) == ("JobHeldUser", 3)
    (await command(cluster, "scontrol", "release", str(row.job_id))).checked()
    await reached(cluster, row.job_id, JobState.COMPLETED)


async def test_scancel_takes_only_what_is_both_named_and_numbered(cluster: SimulatedCluster):
    """An id with another job's name cancels nothing; an id that nobody has is no failure."""
    number = await submit(cluster, "#!/bin/sh\nexec sleep 600\n", "--job-name=hg-1")
    await reached(cluster, number, JobState.RUNNING)
    for argv in (["--name=hg-2", str(number)], ["9999"], ["--name=hg-2"], ["--user=daemon"]):
        assert (await command(cluster, "scancel", *argv)).status == 0
    await reached(cluster, number, JobState.RUNNING)
    assert (await command(cluster, "scancel")).status == 1
    assert (await command(cluster, "scancel", "x")).stderr == b"scancel: error: Invalid job id x\n"
    await command(cluster, "scancel", "--name=hg-1", str(number))
    await reached(cluster, number, JobState.CANCELLED)


async def test_a_signal_is_only_sent(cluster: SimulatedCluster, tmp_path: Path):
    """Scancel --signal lets the job decide what to make of it."""
    ready = tmp_path / "ready"
    script = f'#!/bin/sh\ntrap "exit 7" USR1\ntouch {ready}\nwhile :; do sleep 0.05; done\n'
    number = await submit(cluster, script)
    await eventually(lambda: asyncio.to_thread(ready.exists))
    (await command(cluster, "scancel", "--signal=USR1", str(number))).checked()
    assert (await reached(cluster, number, JobState.FAILED)).exit_status == 7


async def test_what_people_look_at(cluster: SimulatedCluster):
    """squeue, sinfo and scontrol show what is there; an option nobody knows is refused."""
    number = await submit(cluster, "#!/bin/sh\nexec sleep 600\n", "--gres=gpu:1", "-J", "mine")
    await reached(cluster, number, JobState.RUNNING)
    assert b"RUNNING" in (await command(cluster, "squeue", "-h", "--me")).stdout
    assert b"gpu:tesla:4" in (await command(cluster, "sinfo")).stdout
    shown = (await command(cluster, "scontrol", "show", "job", str(number))).stdout.decode()
    assert "JobName=mine" in shown
    assert "gres/gpu:tesla=1" in shown
    assert b"UP" in (await command(cluster, "scontrol", "ping")).stdout
    assert (await command(cluster, "scontrol", "show", "job", "99")).status == 1
    assert (await command(cluster, "scontrol", "reboot")).stderr.startswith(b"invalid keyword")
    test = await command(cluster, "sbatch", "--test-only", "--wrap=true")
    assert b"sbatch: Job 2 to start at" in test.stderr
    await cluster.stop()
    down = await command(cluster, "scontrol", "ping")
    assert (down.status, b"DOWN" in down.stderr + down.stdout) == (1, True)
    refused = await command(cluster, "sbatch", "--wrap=true")
    assert b"Unable to contact slurm controller (connect failure)" in refused.stderr


async def test_two_clusters_on_one_journal_are_refused(cluster: SimulatedCluster):
    """A second process on the same journal ends at once."""
    second = SimulatedCluster(cluster.socket.parent, SMALL)
    with pytest.raises(OSError, match="did not start"):
        await second.start()
    await second.down()
    assert await cluster.reader().nodes()


async def test_only_its_own_account_may_speak_to_it(cluster: SimulatedCluster):
    """The socket, the journal and the folder are closed to everybody else."""
    folder = cluster.socket.parent
    for path, mode in ((folder, 0o700), (cluster.socket, 0o600), (folder / "journal", 0o600)):
        assert path.stat().st_mode & 0o777 == mode
