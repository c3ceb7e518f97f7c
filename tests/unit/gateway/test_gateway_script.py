"""The generated batch script, run by a real shell."""

import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.jobs import Attributes, Container, JobSpec, Resources, Sealed, check_spec
from gateway.observation import ALREADY_STARTED, NO_ROOM
from gateway.runner.plain import PlainRuntime
from gateway.runner.script import seal
from gateway.runner.udocker import UdockerRuntime, UdockerSettings
from headgate.problems import Invalid

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


# Injection: a canary that any word of ours would hatch, if a shell ever read it as its own.

TRAPS = (
    "$(touch canary)",
    "`touch canary`",
    "'; touch canary; '",
    '"; touch canary; "',
    "\ntouch canary\n",
    "\r\ntouch canary\r\n",
    "; touch canary #",
    "&& touch canary",
    "| touch canary",
    "> canary",
    "\\'; touch canary; \\'",
    "$'\\n'touch canary",
    "${IFS}touch${IFS}canary",
    "\nheadgate-\ntouch canary\n",
    "#SBATCH --uid=0\n",
    "-o",
    "--",
    "!!",
    "*",
    "~root",
    "\u2028",
)
HOSTILE = st.lists(st.sampled_from(TRAPS) | TEXT, min_size=1, max_size=4).map("".join)


@settings(max_examples=40, deadline=None)
@given(text=HOSTILE, value=HOSTILE)
def test_no_field_is_read_by_a_shell(
    tmp_path_factory: pytest.TempPathFactory, text: str, value: str
):
    """Executable, arguments, values, name and directory are words, whatever is in them."""
    place = tmp_path_factory.mktemp("job")
    spec = JobSpec(
        executable=f"./{text}" if text.strip("/.") else "./x",
        arguments=(text, value),
        environment={"VALUE": value},
        name=text,
    )
    folder = text.replace("/", "_")[:40].encode()[:200].decode(errors="ignore")
    directory = place / (folder if folder not in {"", ".", ".."} else "x")
    done = run(directory, spec)
    assert list(place.rglob("canary")) == []
    assert b"SBATCH" not in done.stdout
    directives = [
        line
        for line in seal_of(directory, spec).script.partition("umask")[0].splitlines()
        if line.startswith("#SBATCH")
    ]
    assert directives == []


def seal_of(directory: Path, spec: JobSpec) -> Sealed:
    """A job without a container."""
    return seal(row=ROW, uid=0, spec=spec, directory=str(directory), runtime=PlainRuntime())


IMAGES = ("a", "a/b:c", "127.0.0.1:5000/a/b@sha256:0", "A..B", "a--rm", "a:-v")


@pytest.mark.parametrize("image", IMAGES)
def test_an_image_is_one_word_of_udocker(tmp_path: Path, image: str):
    """The image reaches udocker as it was named, behind our options, and nothing else is run."""
    udocker = tmp_path / "udocker"
    udocker.write_text(f'#!/bin/sh\nprintf "%s|" "$@" >> {tmp_path}/asked; echo made\n')
    udocker.chmod(0o755)
    (tmp_path / "home" / ".udocker" / "containers").mkdir(parents=True)
    runtime = UdockerRuntime(UdockerSettings(program=str(udocker), registry="http://r:1"))
    spec = JobSpec(executable="true", container=Container(image))
    check_spec(spec)
    sealed = seal(row=ROW, uid=0, spec=spec, directory=f"{tmp_path}/job", runtime=runtime)
    (tmp_path / "job" / ".headgate").mkdir(parents=True)
    home = f"HOME={tmp_path}/home; export HOME\nexport headgate="
    subprocess.run(
        ["/bin/sh"],
        input=sealed.script.replace("export headgate=", home, 1).encode(),
        env={"SLURM_JOB_ID": "5", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        check=False,
    )
    asked = (tmp_path / "asked").read_text()
    assert asked.startswith(f"pull|--registry=http://r:1|{image}|create|{image}|name|made|hg-")


@pytest.mark.parametrize(
    "image",
    [
        "-a",
        "--registry=http://evil",
        "a b",
        "a;id",
        "a$(id)",
        "a`id`",
        "a\n",
        "",
        "a'b",
        "../a",
        "é",
    ],
)
def test_what_is_no_image_reference_is_refused(image: str):
    """Options, separators and shell words in an image's place end before any script is made."""
    with pytest.raises(Invalid):
        check_spec(JobSpec(executable="true", container=Container(image)))


def test_images_do_not_share_a_container():
    """Each image has a container of its own: no spelling is led to another's."""
    runtime = UdockerRuntime(UdockerSettings())
    prepared = {
        runtime.prepare(JobSpec(executable="x", container=Container(image))).split("container=")[1][
            :27
        ]
        for image in IMAGES
    }
    assert len(prepared) == len(IMAGES)


@pytest.mark.parametrize(
    "name", ["A B", "A=B", "1A", "", "A;id", "A\n", "A-B", "$(id)", "é", "A\0"]
)
def test_names_of_variables_are_names(name: str):
    """What would be more than a name in `export NAME=…` is refused."""
    with pytest.raises(Invalid):
        check_spec(JobSpec(executable="true", environment={name: "x"}))


def test_a_job_without_room_says_so_and_runs_nothing(tmp_path: Path):
    """A payload that could not be written whole is not run, and not taken for one that ran."""
    (tmp_path / ".headgate").mkdir()
    (tmp_path / ".headgate" / "payload").symlink_to("/dev/full")
    done = run(tmp_path, JobSpec(executable="/bin/touch", arguments=("ran",)))
    assert done.returncode == NO_ROOM
    assert b"cannot be written" in done.stderr
    assert not (tmp_path / "ran").exists()


def test_a_script_that_is_overwritten_while_it_runs_goes_on_as_it_was(tmp_path: Path):
    """Slurmd writes another job's script over it where an id is given away twice."""
    script = tmp_path / "slurm_script"
    spec = JobSpec(
        executable="/bin/sh",
        arguments=("-c", f"echo 'touch {tmp_path}/foreign' > {script}; exit 3", "x" * 20_000),
    )
    sealed = seal(row=ROW, uid=0, spec=spec, directory=str(tmp_path), runtime=PlainRuntime())
    (tmp_path / ".headgate").mkdir()
    script.write_text(sealed.script)
    done = subprocess.run(["/bin/sh", str(script)], check=False, env={"PATH": "/usr/bin:/bin"})
    assert done.returncode == 3
    assert not (tmp_path / "foreign").exists()
