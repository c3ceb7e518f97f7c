"""The generated batch script, run by a real shell."""

import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.jobs import Attributes, Container, JobSpec, Resources
from gateway.observation import ALREADY_STARTED
from gateway.runner.plain import PlainRuntime
from gateway.runner.script import seal
from gateway.runner.udocker import UdockerRuntime, UdockerSettings

ROW = "6f3b6c1e-0000-4000-8000-000000000001"
TEXT = st.text(alphabet=st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
SHOW = 'for a in "$@"; do printf "%s\\0" "$a"; done; printf "%s\\0" "$VALUE"'


def run(directory: Path, spec: JobSpec) -> subprocess.CompletedProcess[bytes]:
    """Run a job's script the way slurmd does."""
    sealed = seal(row=ROW, uid=0, spec=spec, directory=str(directory), runtime=PlainRuntime())
    private = directory / ".headgate"
    private.mkdir(parents=True, exist_ok=True)
    if sealed.environment:
        (private / "env").write_text(sealed.environment)
    return subprocess.run(
        ["/bin/sh"],
        input=sealed.script.encode(),
        env={"SLURM_JOB_ID": "5", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        check=False,
    )


@settings(max_examples=25, deadline=None)
@given(arguments=st.lists(TEXT, max_size=4), value=TEXT)
def test_arguments_and_environment_survive_byte_for_byte(
    tmp_path_factory: pytest.TempPathFactory, arguments: list[str], value: str
):
    """Whatever a user writes reaches the payload unchanged."""
    spec = JobSpec(
        executable="/bin/sh",
        arguments=("-c", SHOW, "sh", *arguments),
        environment={"VALUE": value},
    )
    done = run(tmp_path_factory.mktemp("job") / "a 'b' $c", spec)
    assert done.stdout.split(b"\0")[:-1] == [text.encode() for text in (*arguments, value)]
    assert done.returncode == 0


def test_the_environment_is_removed_before_the_payload_runs(tmp_path: Path):
    """The file with the environment's values is gone when the payload looks for it."""
    spec = JobSpec(
        executable="/bin/sh",
        arguments=("-c", "ls .headgate; echo $SECRET"),
        environment={"SECRET": "s3cret"},
    )
    done = run(tmp_path, spec)
    assert b"s3cret" in done.stdout
    assert b"env" not in done.stdout


def test_a_second_start_does_not_run_the_payload(tmp_path: Path):
    """The claim of the first start stops the second."""
    spec = JobSpec(executable="/bin/sh", arguments=("-c", "echo ran; exit 3"))
    first, second = run(tmp_path, spec), run(tmp_path, spec)
    assert (first.returncode, first.stdout) == (3, b"ran\n")
    assert (second.returncode, second.stdout) == (ALREADY_STARTED, b"")
    assert (tmp_path / ".headgate/exit").read_text() == "3\n"


def test_a_payload_that_cannot_start_says_so(tmp_path: Path):
    """A missing executable ends with the shell's status and words."""
    done = run(tmp_path, JobSpec(executable="/nonexistent/program"))
    assert done.returncode == 127
    assert b"not found" in done.stderr


def test_resources_become_sbatch_options(tmp_path: Path):
    """Each resource has its option, GPUs per node, memory in MiB, time to the second."""
    spec = JobSpec(
        executable="x",
        resources=Resources(
            node_count=2,
            process_count=4,
            cpu_cores_per_process=3,
            gpu_cores_per_process=1,
            memory=3 * 1024**3,
        ),
        attributes=Attributes(duration=5400, queue_name="gpu", account="proj"),
    )
    sealed = seal(row=ROW, uid=0, spec=spec, directory=str(tmp_path), runtime=PlainRuntime())
    assert {
        f"--job-name=hg-{ROW}",
        "--nodes=2",
        "--ntasks=4",
        "--cpus-per-task=3",
        "--gres=gpu:2",
        "--mem=3072M",
        "--time=1:30:00",
        "--partition=gpu",
        "--account=proj",
    } <= set(sealed.sbatch_args)


def test_environment_values_reach_neither_script_nor_options(tmp_path: Path):
    """Slurm keeps scripts and options: a user's values are in neither."""
    spec = JobSpec(executable="x", environment={"TOKEN": "s3cret"}, container=Container("a/b:c"))
    runtime = UdockerRuntime(UdockerSettings())
    sealed = seal(row=ROW, uid=0, spec=spec, directory=str(tmp_path), runtime=runtime)
    assert "s3cret" not in sealed.script + "".join(sealed.sbatch_args)
    assert "s3cret" in sealed.environment
