"""The session program against a hostile gateway, hostile files and other users of its machine."""

import json
import os
import secrets
import stat
import struct
import subprocess
import sys
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gateway.jobs import JobSpec, Sealed
from gateway.runner.plain import PlainRuntime
from gateway.runner.script import seal

PROGRAM = Path(__file__).parents[3] / "gateway" / "session" / "headgate_session.py"
ROW, OTHER_ROW = str(uuid.UUID(int=1, version=4)), str(uuid.UUID(int=2, version=4))
PREFIX = struct.Struct(">II")
SBATCH = """#!/bin/sh
printf '%s\\n' "$@" >> "$HOME/sbatch.args"
cat > "$HOME/sbatch.script"
if [ -e "$HOME/refuse" ]; then echo "sbatch: error: no" >&2; exit 1; fi
echo 7
"""


def frame(header: object, body: bytes = b"") -> bytes:
    """One frame, whatever its header is."""
    encoded = json.dumps(header).encode()
    return PREFIX.pack(len(encoded), len(body)) + encoded + body


@dataclass(frozen=True)
class Login:
    """An account on a login node whose sbatch writes down what it is asked."""

    home: Path

    def talk(self, sent: bytes, only: str | None = None) -> tuple[int, list[dict[str, Any]], str]:
        """Start the program as a certificate would; its status, its replies, its words."""
        nonce = secrets.token_urlsafe(24)
        restricted = () if only is None else ("--only", only)
        done = subprocess.run(
            [sys.executable, "-I", str(PROGRAM), *restricted],
            input=sent,
            env={
                "HOME": str(self.home),
                "PATH": f"{self.home}/bin:/usr/bin:/bin",
                "SSH_ORIGINAL_COMMAND": nonce,
            },
            capture_output=True,
            check=False,
            timeout=30,
        )
        _, _, data = done.stdout.partition(f"HGS1 {nonce}\n".encode())
        replies = []
        while data:
            header_size, body_size = PREFIX.unpack_from(data)
            end = PREFIX.size + header_size
            reply = json.loads(data[PREFIX.size : end])
            replies.append({**reply, "body": data[end : end + body_size]})
            data = data[end + body_size :]
        return done.returncode, replies, done.stderr.decode()

    def ask(self, header: dict[str, Any], body: bytes = b"", only: str | None = None) -> Any:
        """The last reply to one message."""
        return self.talk(frame({"id": 1, **header}, body), only)[1][-1]

    def job(self, row: str, command: str = "true", **environment: str) -> Sealed:
        """A job of a row in its directory."""
        spec = JobSpec(executable="/bin/sh", arguments=("-c", command), environment=environment)
        directory = str(self.home / "jobs" / row)
        return seal(
            row=row, uid=os.getuid(), spec=spec, directory=directory, runtime=PlainRuntime()
        )

    def submit(self, job: Sealed, only: str | None = None, **changed: Any) -> Any:
        """Submit a job, or what an attacker made of it."""
        script = changed.pop("script", job.script).encode()
        environment = changed.pop("environment", job.environment).encode()
        header = {
            "op": "submit",
            "row": job.row,
            "sbatch_args": list(job.sbatch_args),
            "directory": job.directory,
            "attempt": 1,
            "script_bytes": len(script),
            **changed,
        }
        return self.ask(header, script + environment, only)

    def asked(self) -> list[str]:
        """The words that sbatch got, of all its calls."""
        path = self.home / "sbatch.args"
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def login(tmp_path: Path) -> Login:
    """A fresh home directory."""
    home = tmp_path / "home"
    (home / "bin").mkdir(parents=True, mode=0o700)
    sbatch = home / "bin" / "sbatch"
    sbatch.write_text(SBATCH)
    sbatch.chmod(0o755)
    return Login(home)


def printed(login: Login, row: str, text: str) -> str:
    """A job's directory with something in its stdout."""
    directory = login.home / "jobs" / row
    (directory / ".headgate").mkdir(parents=True)
    (directory / "stdout").write_text(text)
    (directory / ".headgate" / "attempt").write_text("1")
    return str(directory)


# A stolen service credential: certificates with `--only`, and no user's token.


def test_a_sealed_submission_is_exactly_what_was_sealed(login: Login):
    """Script, environment, options, directory or row of another making: nothing reaches sbatch."""
    job = login.job(ROW, SECRET="s")
    only = f"submit:{ROW},sha256:{job.digest()}"
    cut = len(job.script.encode())
    for changed in (
        {"script": job.script + "id\n"},
        {"environment": job.environment + "export LD_PRELOAD=/tmp/x\n"},
        {"script_bytes": cut - 1},
        {"script_bytes": cut + 1},
        {"sbatch_args": [*job.sbatch_args, "--partition=gpu"]},
        {"sbatch_args": list(reversed(job.sbatch_args))},
        {"directory": job.directory + "/"},
        {"directory": str(login.home / "jobs" / OTHER_ROW)},
    ):
        assert login.submit(job, only, **changed)["code"] == "digest"
    assert login.submit(job, only, row=OTHER_ROW)["code"] == "not_allowed"
    for nonsense in (None, -1, True, "1", 1.5, [1]):
        assert login.submit(job, only, script_bytes=nonsense)["code"] == "malformed"
        assert login.submit(job, only, attempt=nonsense)["code"] == "malformed"
    assert login.asked() == []
    assert login.submit(job, only)["job_id"] == 7
    assert (login.home / "sbatch.script").read_text() == job.script


@pytest.mark.parametrize(
    "only",
    [
        *(
            "",
            "submit",
            f"submit:{ROW}",
            f"submit:{ROW},sha256:",
            f"submit:{ROW},sha256:{'0' * 63}",
        ),
        *(f"submit:{ROW},sha256:{'0' * 64}\n", f"status:{ROW},sha256:{'0' * 64}"),
        *(f"exec:{ROW}", f"collect:{ROW} --only "),
    ],
)
def test_a_restriction_that_is_not_understood_allows_nothing(login: Login, only: str):
    """An empty, cut or unknown `--only` is never the whole session."""
    directory = printed(login, ROW, "secret")
    for op in ("submit", "cancel", "withdraw", "state", "read"):
        asked = {"op": op, "row": ROW, "directory": directory, "file": "stdout"}
        assert login.ask(asked, only=only)["code"] == "not_allowed"


def test_a_certificate_for_one_job_shows_no_other(login: Login):
    """The right to one row's state or output does not read another directory of the user."""
    own, other = printed(login, ROW, "own"), printed(login, OTHER_ROW, "other")
    read = {"op": "read", "row": ROW, "file": "stdout"}
    state = {"op": "state", "row": ROW}
    collect, status, cancel = f"collect:{ROW}", f"status:{ROW}", f"cancel:{ROW}"
    for place in (other, str(login.home), f"{own}-x", f"/{ROW}x", f"{own}/../{OTHER_ROW}"):
        assert not login.ask({**read, "directory": place}, only=collect)["ok"]
        assert not login.ask({**state, "directory": place}, only=status)["ok"]
        withdraw = {"op": "withdraw", "row": ROW, "directory": place, "attempt": 1}
        assert not login.ask(withdraw, only=cancel)["ok"]
    assert login.ask({**state, "directory": own}, only=status)["state"]["attempt"] == 1
    _, replies, _ = login.talk(frame({"id": 1, **read, "directory": own}), collect)
    assert [reply["body"] for reply in replies] == [b"own", b""]


def test_one_right_is_not_another(login: Login):
    """Each verb of `--only` opens its own operations and no more."""
    directory = printed(login, ROW, "own")
    allowed = {
        "status": {"state"},
        "cancel": {"state", "cancel", "withdraw"},
        "collect": {"state", "read"},
    }
    for verb, ops in allowed.items():
        for op in {"submit", "cancel", "withdraw", "state", "read", "clean", "exec"} - ops:
            asked = {"op": op, "row": ROW, "directory": directory, "file": "stdout"}
            assert login.ask(asked, only=f"{verb}:{ROW}")["code"] == "not_allowed"


# What reaches sbatch, whoever asks.


@pytest.mark.parametrize(
    "word",
    [
        *(
            "--wrap=id",
            "--uid=0",
            "--gid=0",
            "--get-user-env",
            "--prolog=/x",
            "--bb=x",
            "--chdi=/x",
        ),
        *("-Jx", "-D/", "script.sh", "--", "", "--partition=b", "--job-name=other"),
        *("--partition=a\n--wrap=id", "--partition=a\0"),
    ],
)
def test_options_are_those_of_the_list_and_come_once(login: Login, word: str):
    """Smuggled, abbreviated, repeated or control-character options end before sbatch."""
    job = login.job(ROW)
    words = [*job.sbatch_args, "--partition=a", word]
    assert login.submit(job, sbatch_args=words)["code"] == "option"
    assert login.asked() == []


@pytest.mark.parametrize("words", [None, "--export=ALL", {"--export": 1}, [1], [["--export=ALL"]]])
def test_options_are_a_list_of_words(login: Login, words: object):
    """Any other JSON in their place is refused, not tried."""
    assert login.submit(login.job(ROW), sbatch_args=words)["code"] == "option"


def test_a_job_without_its_marker_is_not_submitted(login: Login):
    """Another row's marker, or none, would let one job pass for another."""
    job = login.job(ROW)
    others = [word for word in job.sbatch_args if not word.startswith("--job-name")]
    for words in (others, [*others, f"--job-name=hg-{OTHER_ROW}"]):
        assert login.submit(job, sbatch_args=words)["code"] == "option"


# Files that are not what they should be.


@pytest.mark.parametrize("kind", ["symlink", "fifo", "directory", "nothing"])
def test_output_that_is_no_file_of_the_job(login: Login, kind: str):
    """A link to another file is not followed, a FIFO does not hang, a directory is no output."""
    directory = printed(login, ROW, "own")
    path = Path(directory, "stdout")
    path.unlink()
    {
        "symlink": lambda: path.symlink_to("/etc/hostname"),
        "fifo": lambda: os.mkfifo(path),
        "directory": path.mkdir,
        "nothing": lambda: None,
    }[kind]()
    asked = {"op": "read", "row": ROW, "directory": directory, "file": "stdout"}
    reply = login.ask(asked)
    assert (reply["ok"], reply["code"], reply["body"]) == (False, "no_file", b"")


@pytest.mark.parametrize("name", ["../stdout", "/etc/hostname", ".headgate/env", None, ["stdout"]])
def test_only_output_is_read(login: Login, name: object):
    """No other name in a job's directory, and no path, is served."""
    directory = printed(login, ROW, "own")
    asked = {"op": "read", "row": ROW, "directory": directory, "file": name}
    assert login.ask(asked)["code"] == "file"


@pytest.mark.parametrize("place", ["jobs", "", None, 5, "/srv/../etc", "/srv\0", "~"])
def test_a_directory_is_an_absolute_path(login: Login, place: object):
    """Relative, climbing or non-text directories are refused by every operation."""
    for op in ("state", "read", "withdraw"):
        asked = {"op": op, "row": ROW, "directory": place, "file": "stdout", "attempt": 1}
        assert login.ask(asked)["code"] == "directory"
    assert login.submit(login.job(ROW), directory=place)["code"] == "directory"


# Other users of the same machine, where job directories are not below a private home.


def test_a_directory_open_to_everybody_is_refused(login: Login):
    """Where anybody may rename our directory away, their files would be run as this user."""
    jobs = login.home / "jobs"
    jobs.mkdir()
    jobs.chmod(0o777)
    job = login.job(ROW)
    reply = login.submit(job)
    assert (reply["code"], login.asked()) == ("directory", [])
    assert login.ask({"op": "state", "row": ROW, "directory": job.directory})["code"] == "directory"
    jobs.chmod(0o1777)  # sticky: nobody can rename what is not theirs
    assert login.submit(job)["ok"]


@pytest.mark.site  # root alone can give files away
@pytest.mark.parametrize("whose", ["jobs", f"jobs/{ROW}", f"jobs/{ROW}/.headgate"])
def test_a_directory_made_by_somebody_else_is_refused(login: Login, whose: str):
    """A directory that another user made beforehand, at any level, is not used."""
    place = login.home / whose
    place.mkdir(parents=True)
    os.chown(place, 12345, 12345)
    assert login.submit(login.job(ROW))["code"] == "directory"
    assert login.asked() == []


@pytest.mark.site  # root alone can give links away
def test_a_link_of_somebody_else_is_not_followed(login: Login):
    """A link in the way that another user could turn elsewhere later is refused."""
    (login.home / "elsewhere").mkdir()
    (login.home / "jobs").symlink_to(login.home / "elsewhere")
    os.chown(login.home / "jobs", 12345, 12345, follow_symlinks=False)
    assert login.submit(login.job(ROW))["code"] == "directory"
    os.chown(login.home / "jobs", os.getuid(), 0, follow_symlinks=False)
    assert login.submit(login.job(ROW))["ok"]  # the user's own link is theirs


def test_a_link_in_the_place_of_the_private_files(login: Login):
    """`.headgate` as a link is refused: what is written for this job would land elsewhere."""
    directory = login.home / "jobs" / ROW
    directory.mkdir(parents=True)
    (login.home / "other").mkdir()
    (directory / ".headgate").symlink_to(login.home / "other")
    assert login.submit(login.job(ROW))["code"] == "directory"
    assert list((login.home / "other").iterdir()) == []


def test_what_a_job_keeps_is_for_its_owner_alone(login: Login):
    """Directories are 0700 and files 0600, whatever the user's umask was."""
    job = login.job(ROW, SECRET="s3cret")
    assert login.submit(job)["ok"]
    private = Path(job.directory, ".headgate")
    modes = {stat.S_IMODE(path.stat().st_mode) for path in private.iterdir()}
    places = (private, private.parent, private.parent.parent)
    assert modes == {0o600}
    assert {stat.S_IMODE(path.stat().st_mode) for path in places} == {0o700}
    assert "s3cret" in (private / "env").read_text()


def test_a_refused_job_leaves_no_environment_behind(login: Login):
    """Secrets of a job that will never start, to remove them, do not stay in its directory."""
    (login.home / "refuse").touch()
    job = login.job(ROW, SECRET="s3cret")
    assert login.submit(job)["code"] == "refused"
    found = [path for path in login.home.rglob("*") if path.is_file()]
    assert not [path for path in found if "s3cret" in path.read_text()]


# Frames.


@pytest.mark.parametrize(
    "sent",
    [
        *(b"GET / HTTP/1.1\r\n\r\n", PREFIX.pack(2**31, 0), PREFIX.pack(0, 2**31)),
        *(PREFIX.pack(3, 0) + b"{x}", PREFIX.pack(2, 0) + b"\xff\xff"),
        *(PREFIX.pack(100_000, 0) + b"[" * 100_000, frame([]), frame({"op": "ping"})),
        *(frame({"id": key, "op": "ping"}) for key in ("1", [1], 1.5)),
    ],
)
def test_frames_that_are_none_end_the_session(login: Login, sent: bytes):
    """Who does not speak the protocol is told so in one line, and served no more."""
    status, replies, words = login.talk(sent + frame({"id": 2, "op": "ping"}))
    assert (status, replies) == (1, [])
    assert (words[:18], words.count("\n")) == ("headgate-session: ", 1)


def test_unfinished_messages_have_a_bound_together(login: Login):
    """Many messages that never end do not fill the login node's memory."""
    part = bytes(256 * 1024)
    sent = b"".join(frame({"id": key, "more": True}, part) for key in range(260))
    status, replies, words = login.talk(sent)
    assert (status, replies) == (1, [])
    assert "messages over" in words


def test_finished_messages_give_their_room_back(login: Login):
    """A session serves more than its bound over time."""
    part = bytes(256 * 1024)
    ping = {"op": "ping"}
    one = [{**ping, "id": 1, "more": True}] * 60
    sent = b"".join(frame(header, part) for header in [*one, {**ping, "id": 1}] * 6)
    status, replies, _ = login.talk(sent)
    assert (status, len(replies)) == (0, 6)


@pytest.mark.parametrize("nonce", ["", "id", "a" * 15, "a" * 65, "a" * 16 + ";id", "a" * 16 + "\n"])
def test_people_are_sent_away(nonce: str):
    """A shell, scp, sftp or any command asked for with such a certificate is not given."""
    done = subprocess.run(
        [sys.executable, "-I", str(PROGRAM)],
        input=b"",
        env={"SSH_ORIGINAL_COMMAND": nonce},
        capture_output=True,
        check=False,
        timeout=30,
    )
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"not for people" in done.stderr
