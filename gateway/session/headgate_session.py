#!/usr/bin/python3 -I
"""Acts for the gateway as one user on a login node: submits and cancels jobs, handles their files.

Installed by the site, owned by root, and force-command of every certificate the gateway gets. It
needs Python 3.6 and its standard library, and imports nothing else. On standard input and output
it speaks frames: two big-endian u32 (length of the header, length of the body), a JSON header of
at most 1 MiB, at most 256 KiB of body. Frames of one message share an id; all but the last say
`more`. Before the first frame it prints `HGS1 <nonce>`; the nonce comes in SSH_ORIGINAL_COMMAND.

With `--only VERB:ROW[,sha256:DIGEST]` it does that one thing for that one job: a submission is
compared with the digest before it is handed to sbatch. `ping` says which release this is.
"""

import concurrent.futures
import contextlib
import errno
import fcntl
import hashlib
import heapq
import json
import os
import re
import stat
import struct
import subprocess
import sys
import threading
import time
import urllib.parse
from typing import IO, Any, Dict, Iterator, List, Optional, Tuple

PROTOCOL = "HGS1"
VERSION = 1
RELEASE = 2  # of what this program can do: 1 submits and reads output, 2 handles files, cleans up
MAX_HEADER = 1024 * 1024
MAX_BODY = 256 * 1024
MAX_MESSAGE = 64 * 1024 * 1024
MAX_WORDS = 4096
WORKERS = 8
PREFIX = struct.Struct(">II")
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
CONTENT = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
COMMAND_TIMEOUT = 60
LOCK_TIMEOUT = 90
MAX_ENTRIES = 1000
MAX_DEPTH = 200
DELETE_SECONDS = 20
STALE_UPLOAD = 86400
PRIVATE = ".headgate"
INHERITED = ("HOME", "LANG", "LOGNAME", "PATH", "SHELL", "SLURM_CONF", "TZ", "USER")
SBATCH_OPTIONS = frozenset(
    (
        "account",
        "chdir",
        "cpus-per-task",
        "error",
        "export",
        "gres",
        "job-name",
        "mem",
        "no-requeue",
        "nodes",
        "ntasks",
        "output",
        "partition",
        "reservation",
        "time",
    )
)
ALLOWED = {
    "submit": frozenset(("submit", "state", "ping")),
    "status": frozenset(("state", "ping")),
    "cancel": frozenset(("cancel", "withdraw", "state", "ping")),
    "collect": frozenset(("read", "state", "ping")),
    "clean": frozenset(("clean", "ping")),
}
# What libslurm's slurm_strerror and the C library say of a way to slurmctld that is broken.
AWAY = (
    "Unable to contact slurm controller",
    "Communication connection failure",
    "Communication shutdown failure",
    "Message send failure",
    "Message receive failure",
    "Socket timed out",
    "Zero Bytes were transmitted",
    "Unexpected message received",
    "Unexpected missing socket error",
    "Insane message length",
    "Header lengths are longer than data received",
    "Unspecified error",
    "Slurm temporarily unable to accept job",
    "Slurm controller not responding",
    "Slurm backup controller in standby",
    "I/O error writing script/environment to file",
    "Munge encode failed",
    "Protocol authentication error",
    "Invalid authentication credential",
    "Resource temporarily unavailable",
    "Broken pipe",
    "Connection refused",
    "Connection reset",
    "Connection timed out",
    "Network is unreachable",
    "No route to host",
    "Transport endpoint is not connected",
)
LIMITS = re.compile(r"(Assoc|QOS)\w*SubmitJob")
UPLOAD = re.compile(r"[A-Za-z0-9-]{8,64}\Z")
ROW = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")


class Refused(Exception):  # noqa: N818 - an answer, not an accident
    """Something the gateway must hear: a stable code and a sentence."""

    def __init__(
        self, code: str, words: Optional[str] = "", state: Optional[Dict[str, Any]] = None
    ) -> None:
        super().__init__(code)
        self.reply = {"ok": False, "code": code, "words": (words or "")[:MAX_WORDS], "state": state}


class Only:
    """What this session may do: one verb for one row, or (no text at all) everything."""

    def __init__(self, text: Optional[str]) -> None:
        self.ops = None  # type: Optional[frozenset[str]]
        self.row = self.digest = ""
        if text is not None:
            verb, _, rest = text.partition(":")
            self.row, _, self.digest = rest.partition(",sha256:")
            sealed = re.match(r"[0-9a-f]{64}\Z", self.digest) is not None
            well_formed = sealed if verb == "submit" else not self.digest
            self.ops = ALLOWED.get(verb, frozenset()) if well_formed else frozenset()

    def check(self, op: str, row: str) -> None:
        """Raise unless this session may do `op` for `row`."""
        if self.ops is None:
            return
        if op not in self.ops or (op != "ping" and row != self.row):
            raise Refused("not_allowed", "this session may not %s %s" % (op, row))

    def check_place(self, directory: str) -> None:
        """Raise unless a restricted session's directory is one of its row, by its name.

        The row alone says nothing about the place: who may look at one job is not shown others'.
        """
        if self.ops is not None and self.row not in directory.split("/"):
            raise Refused("not_allowed", "this directory is not of job %s" % self.row)

    def check_digest(self, digest: str) -> None:
        """Raise unless what is about to be submitted is what was sealed."""
        if self.ops is not None and digest != self.digest:
            raise Refused("digest", "what was sent is not what was sealed")


def canonical(document: Dict[str, Any]) -> bytes:
    """RFC 8785 for objects of ASCII keys, strings and integers."""
    text = json.dumps(document, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return text.encode("utf-8")


def sha256(data: bytes) -> str:
    """Digest in hex."""
    return hashlib.sha256(data).hexdigest()


def _above(path: str) -> List[str]:
    """A path and all that is above it."""
    parts = path.rstrip("/").split("/")
    return ["/".join(parts[:end]) or "/" for end in range(len(parts), 0, -1)]


def number(header: Dict[str, Any], name: str, default: Optional[int] = None, low: int = 0) -> int:
    """A whole number of a header, not below `low`."""
    value = header.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool) or value < low:
        raise Refused("malformed", "%s is not a number from %d" % (name, low))
    return value


class JobDirectory:
    """The files by which a job is found again: all of them in `.headgate` of its directory."""

    def __init__(self, path: object) -> None:
        if not isinstance(path, str) or not path.startswith("/") or "\0" in path:
            raise Refused("directory", "not an absolute path")
        if "/../" in path + "/":
            raise Refused("directory", "not an absolute path without ..")
        self.path = path
        self.private = os.path.join(path, PRIVATE)

    def create(self) -> None:
        """Make the directory, for its owner alone."""
        try:
            os.makedirs(self.path, mode=0o700, exist_ok=True)
            os.makedirs(self.private, mode=0o700, exist_ok=True)
        except OSError as error:
            code = "quota" if error.errno in (errno.EDQUOT, errno.ENOSPC) else "directory"
            raise Refused(code, "%s: %s" % (self.path, error.strerror)) from error
        self.require_ours()

    def require_ours(self) -> None:
        """Refuse a place that others could exchange: what lies in it is run as this user.

        As sshd's StrictModes, but up to the root; groups that may write are the site's business.
        """
        own = os.getuid()
        trusted = (own, 0, os.stat("/").st_uid)
        try:
            for place in (self.path, self.private):
                if os.stat(place).st_uid != own or os.path.islink(self.private):
                    raise Refused("directory", "%s is not yours" % place)
            for place in _above(self.private) + _above(os.path.realpath(self.private)):
                status = os.lstat(place)
                open_to_all = status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX
                if status.st_uid not in trusted or (open_to_all and stat.S_ISDIR(status.st_mode)):
                    raise Refused("directory", "%s could be changed by others" % place)
        except OSError as error:
            raise Refused("directory", "%s: %s" % (self.path, error.strerror)) from error

    def lock(self) -> int:
        """Keep others, and what is left of an earlier session, from submitting at the same time."""
        handle = os.open(os.path.join(self.private, "lock"), os.O_RDWR | os.O_CREAT, 0o600)
        deadline = time.monotonic() + LOCK_TIMEOUT
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno not in (errno.EACCES, errno.EAGAIN):
                    os.close(handle)
                    raise
                if time.monotonic() > deadline:
                    os.close(handle)
                    words = "a submission of this job is still under way"
                    raise Refused("busy", words) from error
                time.sleep(0.05)
            else:
                return handle

    def write(self, name: str, data: bytes) -> None:
        """A file that is there whole or not at all, also after a power cut."""
        path = os.path.join(self.private, name)
        partial = path + ".partial"
        handle = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(handle, view) :]
            os.fsync(handle)
        finally:
            os.close(handle)
        os.rename(partial, path)
        folder = os.open(self.private, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def remove(self, name: str) -> None:
        """Take a file away, if it is there."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(self.private, name))

    def read(self, name: str, limit: int = 65536) -> Optional[str]:
        """A small file's text, None where there is none."""
        try:
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
            handle = os.open(os.path.join(self.private, name), flags)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR):
                return None
            raise
        try:
            return os.read(handle, limit).decode("utf-8", "replace")
        finally:
            os.close(handle)

    def bar(self) -> None:
        """Claim the row for nobody, unless it has started: no start will run the payload.

        A controller may forget that a job was cancelled, and start it later.
        """
        path = os.path.join(self.private, "claim")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        with contextlib.suppress(OSError):  # claimed already, or no room: scancel has to do
            handle = os.open(path, flags, 0o600)
            try:
                os.write(handle, b"cancelled\n")
            finally:
                os.close(handle)

    def claim(self) -> Optional[str]:
        """Who claimed the row; `?` where that could not be written, None where nobody did."""
        text = self.read("claim")
        return None if text is None else text.strip() or "?"

    def state(self) -> Dict[str, Any]:
        """What the files say: attempts, what sbatch answered, the claim, the exit status."""
        submitted, refused = self.read("submitted"), self.read("refused")
        exit_text = (self.read("exit") or "").strip()
        return {
            "attempt": int(self.read("attempt") or 0),
            "submitted": json.loads(submitted) if submitted else None,
            "refused": json.loads(refused) if refused else None,
            "claim": self.claim(),
            "exit": int(exit_text) if re.match(r"\d+\Z", exit_text) else None,
            "failure": self.read("failure", MAX_WORDS),
        }


def quoted(name: bytes) -> str:
    """A name in a message: names are bytes, and need not be text (RFC 3986 has the form)."""
    return urllib.parse.quote_from_bytes(name)


def components(text: object) -> List[bytes]:
    """The components of a path in a message; none of them leads up."""
    text = text if isinstance(text, str) else ".."
    parts = [urllib.parse.unquote_to_bytes(part) for part in text.split("/") if part]
    if any(part in (b"", b".", b"..") or b"/" in part or b"\0" in part for part in parts):
        raise Refused("path", "not a path below the job's directory")
    return parts


def kind_of(mode: int) -> str:
    """What a file is, in a word."""
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "directory"
    return "link" if stat.S_ISLNK(mode) else "other"


def missing(error: OSError) -> Refused:
    """What a failure to open something means; a pipe without a reader is one (ENXIO)."""
    if error.errno in (errno.ELOOP, errno.ENXIO):
        return Refused("not_a_file", "it is a link or a special file: none is followed or opened")
    if error.errno == errno.ENOTDIR:
        return Refused("not_a_directory", "a part of the path is no directory, or a link")
    return Refused("no_file" if error.errno == errno.ENOENT else "system", error.strerror)


def described(folder: int, name: bytes) -> Dict[str, Any]:
    """One entry of a directory."""
    status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    target = os.readlink(name, dir_fd=folder) if stat.S_ISLNK(status.st_mode) else b""
    return dict(about(status), name=quoted(name), target=quoted(target))


def about(status: os.stat_result) -> Dict[str, Any]:
    """What a file is, without its name."""
    return {
        "type": kind_of(status.st_mode),
        "size": status.st_size,
        "mtime_ns": status.st_mtime_ns,
        "mode": stat.S_IMODE(status.st_mode),
        "inode": "%x-%x" % (status.st_dev, status.st_ino),
    }


class Tree:
    """What lies below a job's directory, and nothing else.

    Each component is opened in the directory before it, links are never followed: what is
    exchanged for a link while we walk is refused. Nobody finds the job's own `.headgate` here.
    """

    def __init__(self, path: str) -> None:
        self.open = []  # type: List[int]
        self.enter(os.fsencode(path))

    def close(self) -> None:
        """Let go of what was walked through."""
        while self.open:
            os.close(self.open.pop())

    def enter(self, name: bytes) -> int:
        """Open a directory in the last one that was opened."""
        if len(self.open) > MAX_DEPTH:
            raise Refused("path", "too deep")
        try:
            self.open.append(os.open(name, FOLDER, dir_fd=self.open[-1] if self.open else None))
        except OSError as error:
            raise missing(error) from error
        return self.open[-1]

    def find(self, parts: List[bytes], *, make: bool = False) -> Tuple[int, bytes]:
        """The open directory that has the last component, and that one's name.

        With no component the directory itself; with `make`, what is missing above is made.
        """
        if parts[:1] == [os.fsencode(PRIVATE)]:
            raise Refused("no_file", "there is no such file")
        for name in parts[:-1]:
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(name, 0o700, dir_fd=self.open[-1])
            self.enter(name)
        return self.open[-1], parts[-1] if parts else b"."

    def status(self, parts: List[bytes]) -> os.stat_result:
        """What is at a path; a link is described as itself."""
        folder, name = self.find(parts)
        try:
            return os.stat(name, dir_fd=folder, follow_symlinks=False)
        except OSError as error:
            raise missing(error) from error

    def file(self, parts: List[bytes]) -> int:
        """An open regular file; what else there may be is not waited for."""
        folder, name = self.find(parts)
        try:
            handle = os.open(name, CONTENT, dir_fd=folder)
        except OSError as error:
            raise missing(error) from error
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            os.close(handle)
            raise Refused("not_a_file", "it is not a regular file")
        return handle

    def names(self) -> List[bytes]:
        """What is in the last directory that was opened, but for what is ours."""
        private = os.fsencode(PRIVATE) if len(self.open) == 1 else None
        return [name for name in map(os.fsencode, os.listdir(self.open[-1])) if name != private]


def forget_uploads(private: int) -> None:
    """Take away what uploads that were given up have left."""
    for name in os.listdir(private):
        if name.startswith("upload-"):
            with contextlib.suppress(FileNotFoundError):
                status = os.stat(name, dir_fd=private, follow_symlinks=False)
                if status.st_mtime < time.time() - STALE_UPLOAD:
                    os.unlink(name, dir_fd=private)


def remove_all(folder: int, names: List[bytes], until: float, depth: int = 0) -> None:
    """Take away what is in an open directory, links themselves, nothing through them."""
    for name in names:
        if time.monotonic() > until:
            raise Refused("unfinished", "more is to be removed")
        with contextlib.suppress(IsADirectoryError):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=folder)
            continue
        with contextlib.suppress(OSError):  # it is empty, and need not be open to us
            os.rmdir(name, dir_fd=folder)
            continue
        if depth > MAX_DEPTH:
            raise Refused("path", "too deep")
        inner = os.open(name, FOLDER, dir_fd=folder)
        try:
            remove_all(inner, [os.fsencode(one) for one in os.listdir(inner)], until, depth + 1)
        finally:
            os.close(inner)
        os.rmdir(name, dir_fd=folder)


def run(argv: List[str], stdin: bytes = b"", keep: Tuple[int, ...] = ()) -> Tuple[int, str, str]:
    """Run a command to its end; its status and its bounded words."""
    # A job inherits this environment whole (--export=ALL): nothing of a user's start-up files, nor
    # an SBATCH_* that would speak louder than what was sealed, may be in it.
    environment = {name: os.environ[name] for name in INHERITED if name in os.environ}
    try:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            pass_fds=keep,
            start_new_session=True,
        )
    except OSError as error:
        raise Refused("command", "%s: %s" % (argv[0], error.strerror)) from error
    try:
        out, err = process.communicate(stdin, timeout=COMMAND_TIMEOUT)
    except subprocess.TimeoutExpired as error:
        # Left to itself it may still be heard by slurmctld: the lock it inherited says so.
        words = "%s did not answer within %d s" % (argv[0], COMMAND_TIMEOUT)
        raise Refused("away", words) from error
    return process.returncode, out.decode("utf-8", "replace"), err.decode("utf-8", "replace")


def words_of(value: object) -> List[str]:
    """A list of words of a header."""
    if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
        raise Refused("option", "sbatch options are a list of words")
    return value


def require_unsent(
    directory: JobDirectory, before: Dict[str, Any], attempt: int, digest: str
) -> None:
    """Raise unless nothing speaks against handing this attempt to sbatch now."""
    refused = before["refused"]
    if refused and refused["attempt"] >= attempt and refused["digest"] == digest:
        # A late copy of a request that was refused long ago: its job has ended so.
        raise Refused("refused", refused["words"])
    if directory.read("withdrawn") is not None:
        raise Refused("withdrawn", "the job was cancelled before it was submitted")
    if before["claim"]:
        raise Refused("claimed", before["claim"], state=before)
    if before["attempt"] >= attempt:
        # Killed between asking sbatch and writing down its answer: only looking can tell.
        raise Refused("unsettled", "an earlier submission was not heard of", state=before)


def outcome(
    directory: JobDirectory, attempt: int, digest: str, said: Tuple[int, str, str]
) -> Dict[str, Any]:
    """What sbatch's end means, written down before it is told."""
    status, out, words = said
    if status < 0 or any(sign in words for sign in AWAY if status):
        raise Refused("away", words or "sbatch was ended by signal %d" % -status)
    if status != 0:
        directory.remove("env")  # no start will read and remove it
        directory.write("attempt", str(attempt - 1).encode("ascii"))
        if LIMITS.search(words):
            raise Refused("limit", words)
        refusal = {"attempt": attempt, "digest": digest, "words": words[:MAX_WORDS]}
        directory.write("refused", json.dumps(refusal).encode("ascii"))
        raise Refused("refused", words)
    job_id, _, cluster = out.strip().partition(";")
    if not job_id.isdigit():
        raise Refused("away", "sbatch answered %r" % out[:200])
    answer = {"attempt": attempt, "job_id": int(job_id), "cluster": cluster}
    # The job is in Slurm, whatever the disk says. Asked again, the gateway has to look.
    with contextlib.suppress(OSError):
        directory.write("submitted", json.dumps(answer).encode("ascii"))
    return dict(answer, ok=True, words=words[:MAX_WORDS])


class Session:
    """One conversation with the gateway."""

    def __init__(self, only: Only, source: IO[bytes], sink: IO[bytes]) -> None:
        self.only = only
        self.source = source
        self.sink = sink
        self.sending = threading.Lock()

    def serve(self) -> None:
        """Answer until the gateway hangs up."""
        pool = concurrent.futures.ThreadPoolExecutor(WORKERS)
        partial = {}  # type: Dict[int, Tuple[Dict[str, Any], List[bytes]]]
        held = 0
        while True:
            frame = self.receive()
            if frame is None:
                break
            header, body = frame
            key = header["id"]
            first, bodies = partial.pop(key, (header, []))
            bodies.append(body)
            # All that is unfinished counts, also an empty frame: many messages are much memory too.
            held += len(body) + PREFIX.size
            if held > MAX_MESSAGE:
                raise SystemExit("headgate-session: messages over %d bytes" % MAX_MESSAGE)
            if header.get("more"):
                partial[key] = (first, bodies)
            else:
                held -= sum(len(part) + PREFIX.size for part in bodies)
                pool.submit(self.answer, first, b"".join(bodies))
        pool.shutdown()

    def receive(self) -> Optional[Tuple[Dict[str, Any], bytes]]:
        """The next frame, None at the end."""
        prefix = self.source.read(PREFIX.size)
        if len(prefix) < PREFIX.size:
            return None
        header_size, body_size = PREFIX.unpack(prefix)
        if header_size > MAX_HEADER or body_size > MAX_BODY:
            raise SystemExit("headgate-session: a frame over its limit")
        header = self.source.read(header_size)
        body = self.source.read(body_size)
        if len(header) < header_size or len(body) < body_size:
            return None
        try:
            document = json.loads(header.decode("utf-8"))
        except (ValueError, RecursionError) as error:
            raise SystemExit("headgate-session: a header that is not JSON") from error
        if not isinstance(document, dict) or not isinstance(document.get("id"), int):
            raise SystemExit("headgate-session: a header without an id")
        return document, body

    def send(self, header: Dict[str, Any], body: bytes = b"") -> None:
        """One frame, whole."""
        encoded = json.dumps(header).encode("ascii")
        with self.sending:
            self.sink.write(PREFIX.pack(len(encoded), len(body)) + encoded + body)
            self.sink.flush()

    def answer(self, header: Dict[str, Any], body: bytes) -> None:
        """Do what one message asks for and reply, whatever happens."""
        key = header["id"]
        try:
            reply = self.dispatch(key, header, body)
        except Refused as refused:
            reply = refused.reply
        except OSError as error:
            quota = error.errno in (errno.EDQUOT, errno.ENOSPC)
            words = "%s: %s" % (error.filename or "", error.strerror)
            reply = {"ok": False, "code": "quota" if quota else "system", "words": words}
        except Exception as error:  # noqa: BLE001 - the gateway must hear of it, not wait for ever
            reply = {"ok": False, "code": "bug", "words": repr(error)[:MAX_WORDS]}
        self.send(dict(reply, v=VERSION, id=key))

    def dispatch(self, key: int, header: Dict[str, Any], body: bytes) -> Dict[str, Any]:
        """The reply to one message."""
        if header.get("v", VERSION) != VERSION:
            raise Refused("version", "this session program speaks version %d" % VERSION)
        op, row = str(header.get("op")), str(header.get("row", ""))
        if op != "ping" and not ROW.match(row):
            raise Refused("row", "not a row id")
        self.only.check(op, row)
        doing = {
            "ping": self.ping,
            "submit": lambda: self.submit(row, header, body),
            "cancel": lambda: self.cancel(row, header),
            "withdraw": lambda: self.withdraw(header),
            "state": lambda: self.state(header),
            "read": lambda: self.read(key, header),
            "stat": lambda: self.stat(header),
            "list": lambda: self.list(key, header),
            "fetch": lambda: self.fetch(key, header),
            "write": lambda: self.write(header, body),
            "delete": lambda: self.delete(header),
            "clean": lambda: self.clean(header),
        }  # type: Dict[str, Any]
        if op not in doing:
            raise Refused("op", "this session program has no operation %s" % op)
        return dict(doing[op]())

    @staticmethod
    def ping() -> Dict[str, Any]:
        """What this is, and where: what its administrator has to know to mend it."""
        here = {"uid": os.getuid(), "python": sys.version.split()[0], "time": time.time()}
        path = os.path.realpath(__file__)
        states = [(place, os.stat(place)) for place in _above(path)]
        unsafe = [place for place, status in states if status.st_uid or status.st_mode & 0o022]
        folders = os.environ.get("PATH", os.defpath).split(":")
        found = [os.path.join(folder, name) for name in ("sbatch", "scancel") for folder in folders]
        commands = [command for command in found if os.access(command, os.X_OK)]
        return dict(here, ok=True, release=RELEASE, path=path, unsafe=unsafe, commands=commands)

    def submit(self, row: str, header: Dict[str, Any], body: bytes) -> Dict[str, Any]:
        """Hand one sealed job to sbatch, once per attempt; said again, answer the same again."""
        size = number(header, "script_bytes")
        script, environment = body[:size], body[size:]
        arguments = words_of(header.get("sbatch_args"))
        self.check_arguments(row, arguments)
        directory = JobDirectory(header.get("directory"))
        sealed = {
            "v": VERSION,
            "row": row,
            "uid": os.getuid(),
            "script_sha256": sha256(script),
            "sbatch_args": arguments,
            "directory": directory.path,
            "env_sha256": sha256(environment),
        }
        digest = sha256(canonical(sealed))
        self.only.check_digest(digest)
        attempt = number(header, "attempt", low=1)
        argv = ["sbatch", "--parsable", *arguments]
        directory.create()
        lock = directory.lock()
        try:
            before = directory.state()
            submitted = before["submitted"]
            if submitted and submitted["attempt"] >= attempt:
                return dict(submitted, ok=True, again=True)
            require_unsent(directory, before, attempt, digest)
            if environment:
                directory.write("env", environment)
            directory.write("attempt", str(attempt).encode("ascii"))
            # The lock stays with sbatch: what it does after we are gone is not done beside another.
            return outcome(directory, attempt, digest, run(argv, script, keep=(lock,)))
        finally:
            os.close(lock)

    @staticmethod
    def check_arguments(row: str, arguments: List[str]) -> None:
        """Only options of the list, each once, its value in the same word, and the right marker."""
        seen = set()
        for argument in arguments:
            name, _, _ = argument[2:].partition("=")
            if not argument.startswith("--") or name not in SBATCH_OPTIONS or name in seen:
                raise Refused("option", "sbatch option %s is not allowed" % argument[:64])
            if re.search(r"[\x00-\x1f\x7f]", argument):
                raise Refused("option", "the value of sbatch option --%s is not plain" % name)
            seen.add(name)
        if "--job-name=hg-" + row not in arguments:
            raise Refused("option", "the job does not carry its marker")

    def cancel(self, row: str, header: Dict[str, Any]) -> Dict[str, Any]:
        """End a job; one that is not there any more is no failure."""
        directory = self.directory(header) if "directory" in header else None
        if directory and os.path.isdir(directory.private):
            directory.require_ours()
        try:
            argv = ["scancel", "--name=hg-" + row, str(number(header, "job_id", low=1))]
            status, _, words = run(argv)
        finally:
            # Only now: a start before scancel would lose its claim, and be FAILED in Slurm's books.
            if directory and os.path.isdir(directory.private):
                directory.bar()
        if status != 0 and "Invalid job id" not in words and "already completing" not in words:
            raise Refused("away" if any(sign in words for sign in AWAY) else "refused", words)
        return {"ok": True, "words": words[:MAX_WORDS]}

    def withdraw(self, header: Dict[str, Any]) -> Dict[str, Any]:
        """See to it that a job nobody has handed to sbatch never will be, by no late request."""
        directory = self.directory(header)
        attempt = number(header, "attempt", low=1)
        directory.create()
        lock = directory.lock()
        try:
            state = directory.state()
            withdrawn = state["attempt"] < attempt
            if withdrawn:
                directory.write("withdrawn", b"")
            return {"ok": True, "withdrawn": withdrawn, "state": state}
        finally:
            os.close(lock)

    def directory(self, header: Dict[str, Any]) -> JobDirectory:
        """The directory that a message names, if this session may look into it."""
        directory = JobDirectory(header.get("directory"))
        self.only.check_place(directory.path)
        return directory

    def state(self, header: Dict[str, Any]) -> Dict[str, Any]:
        """What the job's own files say, once nobody is submitting it."""
        directory = self.directory(header)
        if not os.path.isdir(directory.private):
            return {"ok": True, "state": None}
        directory.require_ours()
        lock = directory.lock()
        try:
            return {"ok": True, "state": directory.state()}
        finally:
            os.close(lock)

    def read(self, key: int, header: Dict[str, Any]) -> Dict[str, Any]:
        """Send what a job has printed, from an offset on."""
        offset, limit = number(header, "offset", 0), number(header, "limit", MAX_MESSAGE)
        if header.get("file") not in ("stdout", "stderr"):
            raise Refused("file", "no such file")
        with self.tree(header) as tree:
            try:
                handle = tree.file([os.fsencode(header["file"])])
            except Refused as refused:
                raise Refused("no_file", str(refused.reply["words"])) from refused
        return self.send_file(key, handle, offset, limit)

    def send_file(self, key: int, handle: int, offset: int, left: int) -> Dict[str, Any]:
        """Send an open file from an offset on, and close it."""
        try:
            status = os.fstat(handle)
            os.lseek(handle, offset, os.SEEK_SET)
            while left > 0:
                chunk = os.read(handle, min(MAX_BODY, left))
                if not chunk:
                    break
                left -= len(chunk)
                self.send({"v": VERSION, "id": key, "ok": True, "more": True}, chunk)
        finally:
            os.close(handle)
        return {"ok": True, "size": status.st_size}

    def send_body(self, key: int, body: bytes) -> None:
        """Send what is in memory."""
        for start in range(0, len(body), MAX_BODY):
            header = {"v": VERSION, "id": key, "ok": True, "more": True}
            self.send(header, bytes(body[start : start + MAX_BODY]))

    @contextlib.contextmanager
    def tree(self, header: Dict[str, Any], *, make: bool = False) -> Iterator[Tree]:
        """The tree of the directory that a message names, if it is there and ours."""
        directory = self.directory(header)
        if make:
            directory.create()
        elif not os.path.isdir(directory.private):
            raise Refused("no_file", "there is no such directory")
        directory.require_ours()
        tree = Tree(directory.path)
        try:
            yield tree
        finally:
            tree.close()

    def stat(self, header: Dict[str, Any]) -> Dict[str, Any]:
        """What is at a path."""
        with self.tree(header) as tree:
            return dict(about(tree.status(components(header.get("path")))), ok=True)

    def list(self, key: int, header: Dict[str, Any]) -> Dict[str, Any]:
        """A page of a directory by the names' bytes: those after a name, so many at most."""
        after = components(header.get("after", ""))
        limit = min(number(header, "limit", MAX_ENTRIES, low=1), MAX_ENTRIES)
        entries = []
        with self.tree(header) as tree:
            parts = components(header.get("path"))
            tree.find([*parts, b""])
            names = (name for name in tree.names() if not after or name > after[0])
            page = heapq.nsmallest(limit + 1, names)
            for name in page[:limit]:
                with contextlib.suppress(FileNotFoundError):
                    entries.append(described(tree.open[-1], name))
        body, more = json.dumps(entries).encode("ascii"), {"ok": True, "more": True}
        for start in range(0, len(body), MAX_BODY):
            self.send(dict(more, v=VERSION, id=key), body[start : start + MAX_BODY])
        return {"ok": True, "next": quoted(page[limit - 1]) if len(page) > limit else ""}

    def fetch(self, key: int, header: Dict[str, Any]) -> Dict[str, Any]:
        """Send a file from an offset on, as long as it is the one that was looked at."""
        offset, limit = number(header, "offset", 0), number(header, "limit", MAX_MESSAGE)
        with self.tree(header) as tree:
            handle = tree.file(components(header.get("path")))
        if header.get("inode", "") not in ("", about(os.fstat(handle))["inode"]):
            os.close(handle)
            raise Refused("changed", "there is another file now")
        return self.send_file(key, handle, offset, limit)

    def write(self, header: Dict[str, Any], body: bytes) -> Dict[str, Any]:
        """Take a part of a file; it is there, whole, once the last one is."""
        parts, upload = components(header.get("path")), str(header.get("upload"))
        if not parts or not UPLOAD.match(upload):
            raise Refused("path", "not a file that could be written")
        offset, last = number(header, "offset", 0), header.get("last") is True
        with self.tree(header, make=True) as tree:
            private = os.open(PRIVATE, FOLDER, dir_fd=tree.open[0])
            tree.open.insert(0, private)  # closed with the rest
            if not offset:
                forget_uploads(private)
            flags = os.O_WRONLY | os.O_NOFOLLOW | (0 if offset else os.O_CREAT | os.O_EXCL)
            handle = os.open("upload-" + upload, flags, 0o600, dir_fd=private)
            try:
                if os.fstat(handle).st_size != offset:
                    raise Refused("malformed", "a part is missing")  # noqa: TRY301 - undone below
                os.lseek(handle, offset, os.SEEK_SET)
                view = memoryview(body)
                while view:
                    view = view[os.write(handle, view) :]
                if last:
                    os.fsync(handle)
                    folder, name = tree.find(parts, make=True)
                    os.rename("upload-" + upload, name, src_dir_fd=private, dst_dir_fd=folder)
            except BaseException as error:
                os.unlink("upload-" + upload, dir_fd=private)
                if isinstance(error, IsADirectoryError):
                    raise Refused("not_a_file", "a directory is there") from error
                raise
            finally:
                os.close(handle)
        return {"ok": True}

    def delete(self, header: Dict[str, Any]) -> Dict[str, Any]:
        """Remove a file, a link itself, or a directory with all that is in it."""
        parts = components(header.get("path"))
        if not parts:
            raise Refused("path", "a job's directory itself is not removed")
        with self.tree(header) as tree:
            tree.status(parts)
            remove_all(tree.open[-1], parts[-1:], time.monotonic() + DELETE_SECONDS)
        return {"ok": True}

    def clean(self, header: Dict[str, Any]) -> Dict[str, Any]:
        """Remove a job's directory, its own files last: until then it is known whose it is."""
        directory = self.directory(header)
        if os.path.isdir(directory.private):
            with self.tree(header) as tree:
                for names in (tree.names(), [os.fsencode(PRIVATE)]):
                    remove_all(tree.open[0], names, time.monotonic() + DELETE_SECONDS)
            os.rmdir(directory.path)
        return {"ok": True}


def main() -> None:
    """Announce the session, then serve it."""
    only = None
    if sys.argv[1:2] == ["--only"] and len(sys.argv) == 3:  # noqa: PLR2004 - the option, its value
        only = sys.argv[2]
    elif sys.argv[1:]:
        raise SystemExit("headgate-session: this program is for the gateway, not for people")
    nonce = os.environ.get("SSH_ORIGINAL_COMMAND", "")
    if not re.match(r"[A-Za-z0-9_-]{16,64}\Z", nonce):
        raise SystemExit("headgate-session: this program is for the gateway, not for people")
    os.umask(0o077)
    sink = sys.stdout.buffer
    sink.write(("%s %s\n" % (PROTOCOL, nonce)).encode("ascii"))
    sink.flush()
    Session(Only(only), sys.stdin.buffer, sink).serve()


if __name__ == "__main__":
    main()
