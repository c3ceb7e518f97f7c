"""The verbs of `headgate job`, as processes against a fake gateway."""

import asyncio
import re
import signal

import msgspec
import pytest

from tests.service.cli.command_line import CommandLine
from tests.service.client.fake_gateway import FakeGateway

FAILED = {
    "state": "failed",
    "exit_code": 3,
    "failure": {"kind": "payload", "retry": False, "detail": "The payload ended with 3."},
}


async def test_submit_prints_the_id_and_sends_what_was_asked(
    headgate: CommandLine, gateway: FakeGateway
):
    """Options become PSI/J fields; standard output is the id alone."""
    done = (
        await headgate(
            *("job", "submit", "--image", "debian", "--gpus", "1", "--cpus", "2", "--time", "10m"),
            *(
                "--memory",
                "4G",
                "--nodes",
                "2",
                "--queue",
                "gpu",
                "--name",
                "train",
                "--env",
                "A=1",
            ),
            *("--env", "HOME", "--", "python", "train.py", "--epochs", "3"),
        )
    ).checked()
    job = gateway.jobs[done.stdout.decode().strip()]
    assert job["spec"] == {
        "executable": "python",
        "arguments": ["train.py", "--epochs", "3"],
        "name": "train",
        "environment": {"A": "1", "HOME": str(headgate.home)},
        "container": {"image": "debian"},
        "resources": {
            "node_count": 2,
            "process_count": 2,
            "cpu_cores_per_process": 2,
            "gpu_cores_per_process": 1,
            "memory": 2**32,
        },
        "attributes": {"duration": 600, "queue_name": "gpu"},
    }


async def test_the_command_may_come_without_dashes(headgate: CommandLine, gateway: FakeGateway):
    """Everything after the first word that is no option belongs to the command."""
    (await headgate("job", "submit", "sort", "--json", "-r")).checked()
    (job,) = gateway.jobs.values()
    assert job["spec"] == {"executable": "sort", "arguments": ["--json", "-r"]}


@pytest.mark.parametrize(
    ("end", "status"),
    [
        ({"state": "completed", "exit_code": 0}, 0),
        (FAILED, 3),
        ({"state": "failed", "failure": {"kind": "time_limit", "detail": "Too long."}}, 124),
        ({"state": "failed", "failure": {"kind": "image", "detail": "No such image."}}, 126),
        ({"state": "canceled"}, 130),
    ],
)
async def test_wait_shows_the_output_and_ends_as_the_payload(
    headgate: CommandLine, gateway: FakeGateway, end: dict[str, object], status: int
):
    """Standard output is the job's, byte for byte; the exit status is documented."""
    gateway.said = bytes(range(256)) * 10
    gateway.plan = [{"state": "active"}, end]
    done = await headgate("job", "submit", "--wait", "--", "x")
    assert done.status == status
    assert done.stdout == gateway.said
    assert f"{end['state']}" in done.stderr.decode()


async def test_wait_with_json_is_the_ended_job_alone(headgate: CommandLine, gateway: FakeGateway):
    """One document on standard output, nothing on standard error, the payload's status."""
    gateway.said = b"hello"
    gateway.plan = [{"state": "active"}, FAILED]
    done = await headgate("job", "submit", "--wait", "--json", "--", "x")
    assert done.status == 3
    assert msgspec.json.decode(done.stdout)["failure"]["kind"] == "payload"
    assert done.stderr == b""


async def test_output_comes_while_the_job_runs(headgate: CommandLine, gateway: FakeGateway):
    """What a running job prints is shown before it ends."""
    gateway.said = b"first\n"
    gateway.plan = [{"state": "active"}]
    process = await headgate.start("job", "submit", "--wait", "--", "x")
    assert process.stdout is not None
    async with asyncio.timeout(30):
        assert await process.stdout.readline() == b"first\n"
        (job_id,) = gateway.jobs
        gateway.output[job_id] += b"second\n"
        gateway.jobs[job_id] |= {"state": "completed", "exit_code": 0}
        rest, _ = await process.communicate()
    assert rest == b"second\n"
    assert process.returncode == 0


async def test_ctrl_c_leaves_the_job_running(headgate: CommandLine, gateway: FakeGateway):
    """Interrupting the command asks for nothing, and says where the job is."""
    gateway.said = b"first\n"
    gateway.plan = [{"state": "active"}]
    process = await headgate.start("job", "submit", "--wait", "--", "x")
    assert process.stdout is not None
    async with asyncio.timeout(30):
        await process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, said = await process.communicate()
    (job_id,) = gateway.jobs
    assert process.returncode == 130
    assert job_id in said.decode()
    assert "Traceback" not in said.decode()
    assert not gateway.requests("DELETE")


async def test_a_refused_job_names_each_option(headgate: CommandLine, gateway: FakeGateway):
    """Every pointer comes with the option that was typed and its sentence."""
    done = await headgate("job", "submit", "--gpus", "9", "--queue", "x", "--", "y")
    words = done.stderr.decode()
    assert done.status == 1
    assert "--gpus (/resources/gpu_cores_per_process): No node has that many GPUs." in words
    assert "--queue (/attributes/queue_name): There is no such queue; there are: gpu." in words
    assert done.stdout == b""
    assert not gateway.jobs


async def test_a_refused_job_as_json(headgate: CommandLine):
    """With --json the problem document is on standard error; with --wait the status is 125."""
    done = await headgate("job", "submit", "--gpus", "9", "--wait", "--json", "--", "y")
    problem = msgspec.json.decode(done.stderr)
    assert done.status == 125
    assert done.stdout == b""
    assert problem["code"] == "too_many_gpus"
    assert [error["pointer"] for error in problem["errors"]] == [
        "/resources/gpu_cores_per_process",
        "/attributes/queue_name",
    ]


async def test_a_lost_answer_is_one_job(headgate: CommandLine, gateway: FakeGateway):
    """The command survives a dropped connection and a busy gateway, with a single job."""
    gateway.faults = [("POST", "drop"), ("POST", "busy")]
    done = (await headgate("job", "submit", "--", "x")).checked()
    assert list(gateway.jobs) == [done.stdout.decode().strip()]


async def test_list_is_plain_without_a_terminal(headgate: CommandLine, gateway: FakeGateway):
    """In a pipe: full ids and names, one line per job, no escape sequences."""
    name = "a name that is much longer than a column of a terminal would be"
    ids = [gateway.add_job(name=name, state="active")["id"] for _ in range(3)]
    lines = (await headgate("job", "list")).checked().stdout.decode().splitlines()
    assert [line.split()[0] for line in lines] == ["ID", *reversed(ids)]
    assert all(name in line and "\x1b" not in line for line in lines[1:])


async def test_list_as_json(headgate: CommandLine, gateway: FakeGateway):
    """An object with the jobs, newest first, no more than asked for."""
    ids = [gateway.add_job()["id"] for _ in range(5)]
    document = await headgate.json("job", "list", "--limit", "2")
    assert [job["id"] for job in document["jobs"]] == ids[:2:-1]


async def test_a_terminal_gets_colours_in_80_columns(headgate: CommandLine, gateway: FakeGateway):
    """No line is wider than the terminal, states are coloured, hostile names are harmless."""
    gateway.add_job(name="x" * 200, state="failed", exit_code=1)
    gateway.add_job(name="\x1b]0;owned\x07", state="active", effective={"queue_name": "q" * 9})
    shown = await headgate.on_terminal("job", "list")
    assert "\x1b[1;31mfailed" in shown
    assert "\x1b]0;" not in shown
    assert "…" in shown
    plain = re.sub(r"\x1b\[[0-9;]*m", "", shown)
    assert max(len(line) for line in plain.splitlines()) <= 80


async def test_an_id_can_be_shortened(headgate: CommandLine, gateway: FakeGateway):
    """The beginning of an id will do where it is unique."""
    job = gateway.add_job(id="abcd1234-0000-4000-8000-000000000000")
    gateway.add_job(id="abcd5678-0000-4000-8000-000000000000")
    shown = await headgate.json("job", "show", "abcd12")
    assert shown["id"] == job["id"]
    ambiguous = await headgate("job", "show", "abcd")
    assert ambiguous.status == 1
    assert "Several jobs begin with abcd" in ambiguous.stderr.decode()
    nobody = await headgate("job", "show", "ffff")
    assert "headgate job list" in nobody.stderr.decode()


async def test_show_says_what_happened(headgate: CommandLine, gateway: FakeGateway):
    """State, reason and request are in words."""
    job = gateway.add_job(**FAILED, started_at="2026-01-01T12:00:00Z")
    shown = (await headgate("job", "show", job["id"])).checked().stdout.decode()
    assert "failed (exit code 3)" in shown
    assert "payload: The payload ended with 3." in shown


async def test_logs_are_the_jobs_own_bytes(headgate: CommandLine, gateway: FakeGateway):
    """Output passes unchanged; as JSON it is text."""
    job = gateway.add_job(state="completed")
    gateway.output[job["id"]] = b"\xff\x00ok\n"
    assert (await headgate("job", "logs", job["id"])).checked().stdout == b"\xff\x00ok\n"
    document = await headgate.json("job", "logs", job["id"])
    assert document == {"job": job["id"], "stdout": "\ufffd\x00ok\n"}


async def test_logs_of_a_job_that_has_printed_nothing(headgate: CommandLine, gateway: FakeGateway):
    """That is a remark, not an error."""
    done = (await headgate("job", "logs", gateway.add_job()["id"])).checked()
    assert done.stdout == b""
    assert "nothing yet" in done.stderr.decode()


async def test_logs_can_follow(headgate: CommandLine, gateway: FakeGateway):
    """Following ends with the job."""
    job = gateway.add_job(state="queued")
    gateway.output[job["id"]] = b"all of it"
    gateway.plans[job["id"]] = [{}, {"state": "active"}, {"state": "completed"}]
    done = (await headgate("job", "logs", "--follow", job["id"])).checked()
    assert done.stdout == b"all of it"


async def test_cancel(headgate: CommandLine, gateway: FakeGateway):
    """A job is canceled by its short id, again without harm."""
    job = gateway.add_job(state="active")
    for _ in range(2):
        done = (await headgate("job", "cancel", job["id"][:8])).checked()
        assert f"{job['id']} is canceled." in done.stderr.decode()
    assert gateway.jobs[job["id"]]["state"] == "canceled"


async def test_nonsense_is_usage(headgate: CommandLine):
    """A wrong option is status 2, in words or as a problem."""
    done = await headgate("job", "submit", "--time", "soon", "--", "x")
    assert done.status == 2
    assert "write 90s, 10m, 1h30m" in done.stderr.decode()
    as_json = await headgate("job", "submit", "--json", "--time", "soon", "--", "x")
    assert msgspec.json.decode(as_json.stderr)["code"] == "usage"


async def test_a_reader_that_leaves_is_no_error(headgate: CommandLine, gateway: FakeGateway):
    """`headgate job logs | head` ends quietly."""
    job = gateway.add_job(state="completed")
    gateway.output[job["id"]] = b"x" * 5_000_000
    process = await headgate.start("job", "logs", job["id"])
    assert process.stdout is not None
    async with asyncio.timeout(30):
        await process.stdout.read(10)
        process.stdout._transport.close()
        said = await process.stderr.read()
        await process.wait()
    assert said == b""
    assert process.returncode == 1
