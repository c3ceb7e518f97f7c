"""The session program's operations on files: confined, raced, bounded, and honest about names."""

import contextlib
import json
import os
import socket
import threading
import time
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.gateway.test_gateway_session import ROW, Login, frame, printed

OUTSIDE = "not yours to see"


@pytest.fixture
def login(tmp_path: Path) -> Login:
    """A fresh home directory with something beside the job's directory."""
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    (home / "secret").write_text(OUTSIDE)
    return Login(home)


@pytest.fixture
def job(login: Login) -> Path:
    """A job's directory."""
    return Path(printed(login, ROW, "out"))


def ask(login: Login, job: Path, op: str, path: str = "", body: bytes = b"", **more: Any) -> Any:
    """The last reply to one request, and all bytes that came with it."""
    header = {"id": 1, "op": op, "row": ROW, "directory": str(job), "path": path, **more}
    _, replies, words = login.talk(frame(header, body))
    assert replies, words
    return {**replies[-1], "body": b"".join(reply["body"] for reply in replies)}


def names(login: Login, job: Path, path: str = "", **more: Any) -> list[str]:
    """The names of a page."""
    return [entry["name"] for entry in json.loads(ask(login, job, "list", path, **more)["body"])]


def test_a_directory_is_listed_with_what_is_in_it(login: Login, job: Path):
    """Names, kinds, sizes and times; the job's own files are not shown."""
    (job / "sub").mkdir()
    (job / "link").symlink_to("stdout")
    os.mkfifo(job / "pipe")
    reply = ask(login, job, "list")
    entries = {entry["name"]: entry for entry in json.loads(reply["body"])}
    assert {name: entry["type"] for name, entry in entries.items()} == {
        "stdout": "file",
        "sub": "directory",
        "link": "link",
        "pipe": "other",
    }
    assert entries["stdout"]["size"] == 3
    assert entries["link"]["target"] == "stdout"
    assert reply["next"] == ""


def test_a_file_is_read_from_anywhere_to_anywhere(login: Login, job: Path):
    """Offset and limit count bytes; what is looked at is told with the same words."""
    (job / "sub").mkdir()
    (job / "sub" / "data").write_bytes(bytes(range(256)) * 4096)
    shown = ask(login, job, "stat", "sub/data")
    assert (shown["type"], shown["size"]) == ("file", 1024 * 1024)
    part = ask(login, job, "fetch", "sub/data", offset=300, limit=5, inode=shown["inode"])
    assert part["body"] == bytes(range(44, 49))
    assert len(ask(login, job, "fetch", "sub/data")["body"]) == 1024 * 1024


@pytest.mark.parametrize(
    "path", ["..", "../secret", "sub/../../secret", "%2e%2e/secret", ".", "a%2Fb", "a%00b", None, 7]
)
def test_no_path_leads_up(login: Login, job: Path, path: Any):
    """Dots, however they are written, slashes inside names, and no path at all."""
    for op in ("stat", "list", "fetch", "delete", "write"):
        reply = ask(login, job, op, path, upload="12345678", last=True)
        assert reply["code"] == "path"
        assert OUTSIDE.encode() not in reply["body"]
    assert (login.home / "secret").read_text() == OUTSIDE


@pytest.mark.parametrize("target", ["../../secret", "/etc/hostname", "stdout", "self"])
def test_links_are_not_followed(login: Login, job: Path, target: str):
    """Neither out of the directory nor inside it: whoever looks is told what it is."""
    (job / "self").symlink_to(target)
    assert ask(login, job, "stat", "self")["type"] == "link"
    for op in ("fetch", "list"):
        reply = ask(login, job, op, "self")
        assert reply["code"] in {"not_a_file", "not_a_directory"}
        assert reply["body"] == b""


def test_a_link_to_a_directory_is_no_way_out(login: Login, job: Path):
    """In the middle of a path it is refused, for reading, writing and removing."""
    (job / "up").symlink_to("../..")
    for op in ("stat", "fetch", "list", "delete"):
        assert ask(login, job, op, "up/secret")["code"] == "not_a_directory"
    reply = ask(login, job, "write", "up/secret", b"mine", upload="12345678", last=True)
    assert reply["code"] == "not_a_directory"
    assert (login.home / "secret").read_text() == OUTSIDE


def test_a_job_directory_that_is_a_link_is_refused(login: Login, job: Path):
    """The directory that a row names is itself no link to another."""
    moved = job.with_name("moved")
    job.rename(moved)
    job.symlink_to(moved)
    assert ask(login, job, "list")["code"] == "not_a_directory"


@contextlib.contextmanager
def special(path: Path, kind: str) -> Iterator[None]:
    """A file of that kind."""
    if kind == "fifo":
        os.mkfifo(path)
        yield
        return
    with socket.socket(socket.AF_UNIX) as listener:
        here = os.open(path.parent, os.O_RDONLY)
        try:
            listener.bind(f"/proc/self/fd/{here}/{path.name}")
            listener.listen()
            yield
        finally:
            os.close(here)


@pytest.mark.parametrize("kind", ["fifo", "socket"])
def test_special_files_are_neither_opened_nor_waited_for(login: Login, job: Path, kind: str):
    """They are listed, refused at once, and can be removed."""
    with special(job / "special", kind):
        assert ask(login, job, "stat", "special")["type"] == "other"
        assert ask(login, job, "fetch", "special")["code"] == "not_a_file"
        assert ask(login, job, "delete", "special")["ok"]
        assert not (job / "special").exists()


def test_a_directory_that_becomes_a_link_while_we_walk_is_no_way_out(login: Login, job: Path):
    """Swapped back and forth as fast as can be, no answer ever shows what is outside."""
    (job / "dir").mkdir()
    (job / "dir" / "secret").write_text("inside")
    (login.home / "elsewhere").mkdir()
    (login.home / "elsewhere" / "secret").write_text(OUTSIDE)
    (job / "bait").symlink_to(login.home / "elsewhere")
    done = threading.Event()

    def swap() -> None:
        while not done.is_set():
            (job / "dir").rename(job / "away")
            (job / "bait").rename(job / "dir")
            (job / "dir").rename(job / "bait")
            (job / "away").rename(job / "dir")

    swapping = threading.Thread(target=swap)
    swapping.start()
    try:
        header = {"op": "fetch", "row": ROW, "directory": str(job), "path": "dir/secret"}
        asked = b"".join(frame({"id": number, **header}) for number in range(1, 2000))
        _, replies, _ = login.talk(asked)
    finally:
        done.set()
        swapping.join()
    bodies = {reply["body"] for reply in replies}
    assert bodies <= {b"", b"inside"}
    codes = {reply.get("code") for reply in replies if not reply["ok"]}
    assert codes <= {"no_file", "not_a_directory"}
    assert codes


def test_the_jobs_own_files_are_nobodys_to_see_or_change(login: Login, job: Path):
    """Claim, environment and script decide whether a payload runs: no way leads to them."""
    for path in (".headgate", ".headgate/attempt"):
        for op in ("stat", "fetch", "list", "delete", "write"):
            reply = ask(login, job, op, path, upload="12345678", last=True)
            assert reply["code"] == "no_file"
    assert (job / ".headgate" / "attempt").read_text() == "1"
    (job / "sub" / ".headgate").mkdir(parents=True)  # of a job that starts jobs: just a name
    assert names(login, job, "sub") == [".headgate"]


def test_names_that_are_no_text_come_through(login: Login, job: Path):
    """Bytes that are not UTF-8, newlines, percent signs and spaces, there and back."""
    wild = [b"\xff\xfe", b"a\nb", b"100%", b" ", b"\xc3\xbc", b"-rf", b"%2e%2e", b"a\\b"]
    for name in wild:
        (job / os.fsdecode(name)).write_bytes(name)
    listed = names(login, job)
    assert {urllib.parse.unquote_to_bytes(name) for name in listed} == {*wild, b"stdout"}
    for name in listed:
        if name != "stdout":
            assert ask(login, job, "fetch", name)["body"] == urllib.parse.unquote_to_bytes(name)
            assert ask(login, job, "delete", name)["ok"]
    assert names(login, job) == ["stdout"]


def test_a_hundred_thousand_entries_come_in_pages(login: Login, job: Path):
    """In order, each once, and a page costs no more than a look at the names."""
    (job / "many").mkdir()
    folder = os.open(job / "many", os.O_RDONLY)
    for number in range(100_000):
        os.close(os.open(f"f{number:06d}", os.O_CREAT | os.O_WRONLY, dir_fd=folder))
    os.close(folder)
    before = time.monotonic()
    first = ask(login, job, "list", "many", limit=1000)
    second = ask(login, job, "list", "many", limit=1000, after=first["next"])
    last = ask(login, job, "list", "many", limit=1000, after="f098999")
    assert time.monotonic() - before < 30
    found = [entry["name"] for reply in (first, second) for entry in json.loads(reply["body"])]
    assert found == [f"f{number:06d}" for number in range(2000)]
    assert (len(json.loads(last["body"])), last["next"]) == (1000, "")
    assert ask(login, job, "delete", "many")["ok"]
    assert not (job / "many").exists()


def test_an_upload_is_there_whole_or_not_at_all(login: Login, job: Path):
    """Parts in order, a name at the end; parts that are missing, or come twice, end it."""
    ask(login, job, "write", "in/a b.bin", b"one", upload="first-try", offset=0)
    assert not (job / "in").exists()
    ask(login, job, "write", "in/a%20b.bin", b"two", upload="first-try", offset=3, last=True)
    made = job / "in" / "a b.bin"
    assert made.read_bytes() == b"onetwo"
    assert made.stat().st_mode & 0o777 == 0o600
    ask(login, job, "write", "x", b"one", upload="second-try", offset=0)
    lost = ask(login, job, "write", "x", b"three", upload="second-try", offset=6, last=True)
    assert lost["code"] == "malformed"
    assert not (job / "x").exists()
    assert list((job / ".headgate").glob("upload*")) == []


def test_an_upload_takes_the_place_of_a_link_not_of_what_it_points_to(login: Login, job: Path):
    """And of a file, but never of a directory."""
    (job / "link").symlink_to("../../secret")
    assert ask(login, job, "write", "link", b"new", upload="12345678", last=True)["ok"]
    assert (job / "link").read_text() == "new"
    assert (login.home / "secret").read_text() == OUTSIDE
    (job / "dir").mkdir()
    reply = ask(login, job, "write", "dir", b"new", upload="12345678", last=True)
    assert reply["code"] == "not_a_file"


def test_before_a_job_is_sent_there_can_be_files(login: Login):
    """An upload makes the job's directory, as the submission would."""
    job = login.home / "jobs" / ROW
    assert ask(login, job, "list")["code"] == "no_file"
    assert ask(login, job, "write", "in.txt", b"x", upload="12345678", last=True)["ok"]
    assert names(login, job) == ["in.txt"]


@pytest.mark.parametrize("upload", ["", "../x", "a/b", "short", None, "x" * 65])
def test_an_uploads_token_is_no_path(login: Login, job: Path, upload: Any):
    """It names a file among the job's own, and only such a one."""
    assert ask(login, job, "write", "x", b"x", upload=upload, last=True)["code"] == "path"


def test_what_is_removed_is_removed_with_all_in_it_and_nothing_else(login: Login, job: Path):
    """Links go, what they point to stays."""
    (job / "dir" / "deep").mkdir(parents=True)
    (job / "dir" / "deep" / "out").symlink_to("../../../..")
    (job / "dir" / "file").write_text("x")
    assert ask(login, job, "delete", "dir")["ok"]
    assert names(login, job) == ["stdout"]
    assert ask(login, job, "delete", "dir")["code"] == "no_file"
    assert (login.home / "secret").read_text() == OUTSIDE


def test_cleaning_removes_one_jobs_directory(login: Login, job: Path):
    """Under a sealed right for that row alone; again, it is no failure."""
    (job / "dir").mkdir()
    (job / "dir" / "up").symlink_to("/")
    other = Path(printed(login, ROW.replace("1", "3"), "other"))
    header = {"op": "clean", "row": ROW, "directory": str(other)}
    assert login.ask(header, only=f"clean:{ROW}")["code"] == "not_allowed"
    header["directory"] = str(job)
    assert login.ask(header, only=f"collect:{ROW}")["code"] == "not_allowed"
    assert login.ask(header, only=f"clean:{ROW}")["ok"]
    assert not job.exists()
    assert (other / "stdout").exists()
    assert login.ask(header, only=f"clean:{ROW}")["ok"]


def test_a_file_that_was_exchanged_is_not_taken_for_the_one_before(login: Login, job: Path):
    """Who reads in parts hears that there is another file now."""
    shown = ask(login, job, "stat", "stdout")
    (job / "new").write_text("new")
    (job / "new").rename(job / "stdout")
    reply = ask(login, job, "fetch", "stdout", inode=shown["inode"])
    assert (reply["code"], reply["body"]) == ("changed", b"")


def test_versions_that_do_not_fit_are_said(login: Login, job: Path):
    """A request of another protocol, or for what is not known here, is refused by name."""
    assert ask(login, job, "stat", v=2)["code"] == "version"
    reply = ask(login, job, "teleport")
    assert (reply["code"], "teleport" in reply["words"]) == ("op", True)
    assert ask(login, job, "ping")["release"] == 2
