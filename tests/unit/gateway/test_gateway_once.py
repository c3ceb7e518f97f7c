"""The session program's part in never losing and never doubling a job."""

import os
import subprocess
import sys
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gateway.jobs import JobSpec, Sealed
from gateway.observation import ALREADY_STARTED
from gateway.runner.plain import PlainRuntime
from gateway.runner.script import seal
from gateway.sessions.frames import Decoder, encode

PROGRAM = Path(__file__).parents[3] / "gateway" / "session" / "headgate_session.py"
NONCE = "n" * 24


@dataclass(frozen=True)
class Home:
    """An account with an sbatch of the test's own."""

    path: Path

    def sbatch(self, script: str) -> None:
        """From now on sbatch does this; each call leaves a line in `calls`."""
        program = self.path / "bin" / "sbatch"
        program.write_text(f'#!/bin/sh\ncat > /dev/null; echo call >> "$HOME/calls"\n{script}\n')
        program.chmod(0o755)

    def calls(self) -> int:
        """How often sbatch was called."""
        file = self.path / "calls"
        return len(file.read_text().splitlines()) if file.exists() else 0

    def job(self) -> Sealed:
        """A new job."""
        row = str(uuid.uuid4())
        return seal(
            row=row,
            uid=os.getuid(),
            spec=JobSpec(executable="/bin/true"),
            directory=str(self.path / row),
            runtime=PlainRuntime(),
        )

    def ask(self, header: dict[str, Any], body: bytes = b"") -> dict[str, Any]:
        """The reply to one message."""
        done = subprocess.run(
            [sys.executable, "-I", str(PROGRAM)],
            input=encode({"id": 1, **header}, body),
            env={
                "HOME": str(self.path),
                "PATH": f"{self.path}/bin:/usr/bin:/bin",
                "SSH_ORIGINAL_COMMAND": NONCE,
            },
            capture_output=True,
            check=True,
            timeout=30,
        )
        (reply, _) = list(Decoder(NONCE).feed(done.stdout))[-1]
        return reply

    def submit(self, job: Sealed, attempt: int = 1) -> dict[str, Any]:
        """Submit a job."""
        script = job.script.encode()
        header = {
            "op": "submit",
            "row": job.row,
            "sbatch_args": list(job.sbatch_args),
            "directory": job.directory,
            "attempt": attempt,
            "script_bytes": len(script),
        }
        return self.ask(header, script)

    def withdraw(self, job: Sealed, attempt: int = 1) -> dict[str, Any]:
        """Withdraw a job."""
        place = {"row": job.row, "directory": job.directory}
        return self.ask({"op": "withdraw", **place, "attempt": attempt})


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A fresh one, whose sbatch answers 7."""
    (tmp_path / "home" / "bin").mkdir(parents=True, mode=0o700)
    made = Home(tmp_path / "home")
    made.sbatch("echo 7")
    return made


def test_a_withdrawn_job_is_not_submitted_by_a_late_request(home: Home):
    """What was under way to sbatch when its owner cancelled never gets there."""
    job = home.job()
    assert home.withdraw(job)["withdrawn"] is True
    late = home.submit(job)
    assert (late["ok"], late["code"], home.calls()) == (False, "withdrawn", 0)


def test_a_submitted_job_cannot_be_withdrawn(home: Home):
    """Then it is known, and has to be cancelled."""
    job = home.job()
    assert home.submit(job)["job_id"] == 7
    assert home.withdraw(job)["withdrawn"] is False
    assert home.submit(job)["job_id"] == 7


def test_a_refused_job_is_not_submitted_by_a_late_copy(home: Home):
    """Refused once, the same request is answered the same, and Slurm is not asked again."""
    job = home.job()
    home.sbatch("echo 'sbatch: error: no such thing' >&2; exit 1")
    first = home.submit(job)
    home.sbatch("echo 7")
    late = home.submit(job)
    assert (late["code"], late["words"], home.calls()) == ("refused", first["words"], 1)


@pytest.mark.parametrize(
    ("script", "code"),
    [
        ("kill -KILL $$", "away"),
        ("echo 'sbatch: error: Munge encode failed: no munged' >&2; exit 1", "away"),
        ("echo 'Batch job submission failed: Socket timed out' >&2; exit 1", "away"),
        ("echo 'submission failed: Unexpected missing socket error' >&2; exit 1", "away"),
        ("echo nonsense", "away"),
    ],
)
def test_an_end_of_sbatch_that_tells_nothing_is_no_refusal(home: Home, script: str, code: str):
    """Killed, or without a way to Slurm, it may have submitted or not: looking settles it."""
    job = home.job()
    home.sbatch(script)
    assert home.submit(job)["code"] == code
    home.sbatch("echo 7")
    assert home.submit(job)["code"] == "unsettled"
    assert home.submit(job, attempt=2)["job_id"] == 7


def test_a_limit_of_the_site_leaves_the_attempt_free(home: Home):
    """Nothing was submitted: the same attempt is good when there is room again."""
    job = home.job()
    home.sbatch("echo 'sbatch: error: AssocMaxSubmitJobLimit' >&2; exit 1")
    assert home.submit(job)["code"] == "limit"
    home.sbatch("echo 7")
    assert home.submit(job)["job_id"] == 7


def test_a_full_disk_after_sbatch_answered_does_not_deny_the_job(home: Home):
    """The job is in Slurm: its id is told, although it cannot be written down."""
    job = home.job()
    # The name is taken by a folder: as much in the way of a file as a full disk.
    home.sbatch(f"mkdir -p '{job.directory}/.headgate/submitted.partial'; echo 7")
    assert home.submit(job)["job_id"] == 7


def test_an_empty_claim_is_a_claim(home: Home):
    """A start that could not write who it is has happened all the same."""
    job = home.job()
    home.withdraw(job)
    private = Path(job.directory, ".headgate")
    (private / "withdrawn").unlink()
    (private / "claim").touch()
    again = home.submit(job)
    assert (again["code"], again["state"]["claim"], home.calls()) == ("claimed", "?", 0)


def test_a_cancelled_job_does_not_start_later(home: Home):
    """A controller that forgets the cancellation starts a script that runs nothing."""
    job = home.job()
    scancel = home.path / "bin" / "scancel"
    scancel.write_text("#!/bin/sh\n")
    scancel.chmod(0o755)
    home.submit(job)
    header = {"op": "cancel", "row": job.row, "job_id": 7, "directory": job.directory}
    assert home.ask(header)["ok"]
    assert home.ask(header)["ok"]
    started = subprocess.run(
        ["/bin/sh"],
        input=job.script.encode(),
        env={"PATH": "/usr/bin:/bin"},
        capture_output=True,
        check=False,
    )
    assert started.returncode == ALREADY_STARTED
    assert Path(job.directory, ".headgate", "claim").read_text() == "cancelled\n"


@pytest.mark.parametrize("answer", ["exit 0", "echo 'Unable to contact' >&2; exit 1"])
def test_slurm_hears_of_a_cancellation_before_the_claim_is_taken(home: Home, answer: str):
    """A job that starts meanwhile ends CANCELLED in Slurm's books too, and not FAILED."""
    job = home.job()
    home.submit(job)
    claim = Path(job.directory, ".headgate", "claim")
    scancel = home.path / "bin" / "scancel"
    scancel.write_text(f"#!/bin/sh\n[ -e '{claim}' ] && echo late >> \"$HOME/late\"\n{answer}\n")
    scancel.chmod(0o755)
    home.ask({"op": "cancel", "row": job.row, "job_id": 7, "directory": job.directory})
    assert not (home.path / "late").exists()
    assert claim.read_text() == "cancelled\n"


def test_cancelling_what_runs_leaves_its_claim(home: Home):
    """The claim of a payload that has started is its own."""
    job = home.job()
    home.submit(job)
    claim = Path(job.directory, ".headgate", "claim")
    claim.write_text("7 n1\n")
    (home.path / "bin" / "scancel").symlink_to("/bin/true")
    place = {"row": job.row, "directory": job.directory}
    assert home.ask({"op": "cancel", "job_id": 7, **place})["ok"]
    assert claim.read_text() == "7 n1\n"
