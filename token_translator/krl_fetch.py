#!/usr/bin/python3 -I
"""`headgate-krl-fetch`: brings the revocation list to a node, from a timer, and never a bad one.

One file that needs Python 3.6, its standard library and ssh-keygen, and nothing of ours. It asks
`GET /v1/krl` with the ETag of what is installed, follows no redirect, accepts a list only if it is
complete, newer, one that ssh-keygen reads, and signed as today's by a key of `--user-ca`, and puts
it in place by a rename. On every failure the list that is there stays: an old one revokes less, but
none at all locks everybody out.

Exit status: 0 confirmed; 1 failed, and the list is younger than `--alarm-after`; 2 failed, and it
is older, or there is none; 64 wrong words; 75 another run is at it.

Sources: OpenSSH PROTOCOL.krl (the list's header), ssh-keygen(1), ALLOWED SIGNERS.
"""

import argparse
import contextlib
import fcntl
import hashlib
import http.client
import json
import os
import re
import signal
import ssl
import stat
import struct
import subprocess
import sys
import syslog
import tempfile
import time
import urllib.parse
from typing import Any, Dict, Iterator, List, NoReturn, Optional, Sequence, Tuple

Word = Tuple[str, List[str]]  # a statement of the signer's, and signatures of it in base64

CONFIRMED, FAILED, ALARM, USAGE, BUSY = 0, 1, 2, 64, 75
HEADER = struct.Struct(">8sIQQ")
MAGIC, FORMAT = b"SSHKRL\n\0", 1
LOOPBACK = frozenset(("127.0.0.1", "::1", "localhost"))
MODE, MAX_STATUS = 0o644, 64 * 1024
USER_CA = "/etc/ssh/headgate_user_ca.pub"
MAX_VERSION, MAX_JUMP = 2**62, 2**32  # beyond them every true one that follows would look old
ETAG = re.compile(r'(W/)?"[!#-~]{1,128}"')
ASK_AGAIN = frozenset(range(400, 500)) - {401, 403, 404, 429}
CLOCK_SLACK = 300.0  # a confirmation further in the future is a clock set back, and no proof
NAMESPACE = "krl@headgate"
STATEMENT = re.compile(r"v1;version=(\d{1,19});sha256=([0-9a-f]{64});at=(\d{1,12})")
ARMOUR = "-----BEGIN SSH SIGNATURE-----\n{}\n-----END SSH SIGNATURE-----\n"
STALE = 900.0  # what the signer said longer ago is no answer to a question of now


class Failure(Exception):  # noqa: N818 - an outcome that is reported, not an accident
    """Why there is no new list; the words are for the administrator."""


class Place:
    """The list's own folder, held open: nothing in it is found by way of a link."""

    def __init__(self, path: str) -> None:
        self.path = os.path.abspath(path)
        folder, self.name = os.path.split(self.path)
        self.status = f"{self.name}.status"
        try:
            self.folder = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            raise Failure(f"{folder}: {error.strerror}") from error

    def close(self) -> None:
        """Let the folder go."""
        os.close(self.folder)

    def read(self, name: str, limit: int) -> bytes:
        """A regular file's content; empty if there is none. Raises `Failure`."""
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
        try:
            with os.fdopen(os.open(name, flags, dir_fd=self.folder), "rb") as file:
                if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    raise Failure(f"{name} is not a regular file")
                content = file.read(limit + 1)
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise Failure(f"{name}: {error.strerror}") from error
        if len(content) > limit:
            raise Failure(f"{name} is larger than {limit} bytes")
        return content

    @contextlib.contextmanager
    def written(self, name: str, content: bytes) -> Iterator[str]:
        """The path of a durable new file, which takes that name at the end of the block.

        If the block raises, it goes away again. Raises `Failure`.
        """
        fresh = f".{name}.{os.getpid()}"
        try:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(fresh, dir_fd=self.folder)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
            with os.fdopen(os.open(fresh, flags, MODE, dir_fd=self.folder), "wb") as file:
                os.fchmod(file.fileno(), MODE)
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            yield os.path.join(os.path.dirname(self.path), fresh)
            os.rename(fresh, name, src_dir_fd=self.folder, dst_dir_fd=self.folder)
            os.fsync(self.folder)
        except OSError as error:
            raise Failure(f"{name}: {error.strerror}") from error
        finally:
            with contextlib.suppress(OSError):
                os.unlink(fresh, dir_fd=self.folder)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock beside the list; raises `BlockingIOError` if another run does."""
        name, flags = f".{self.name}.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
        try:
            lock = os.open(name, flags, 0o600, dir_fd=self.folder)
        except OSError as error:
            raise Failure(f"the lock: {error.strerror}") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        finally:
            os.close(lock)


def version_of(content: bytes) -> int:
    """The version in a list's header; raises `Failure` if it is no KRL of the format we know."""
    if not content.startswith(MAGIC) or len(content) < HEADER.size:
        raise Failure("no revocation list, or one cut short" if content else "there is no list")
    _, form, version, _ = HEADER.unpack_from(content)
    if form != FORMAT:
        raise Failure(f"the revocation list is of an unknown format ({form})")
    if version > MAX_VERSION:
        raise Failure(f"the revocation list's version {version} cannot be")
    return int(version)


def ask(options: argparse.Namespace, etag: str) -> Tuple[Optional[bytes], str, Word]:
    """The list (None: unchanged), its ETag, and the signer's word. Redirects are refused.

    A question that is refused (4xx) is asked once more without its ETag, which may be why.
    Raises `Failure`: no connection, no TLS that is trusted, another status, or too much.
    """
    parts, limit = urllib.parse.urlsplit(options.url), options.max_bytes
    kind, known = http.client.HTTPConnection, {"timeout": options.timeout}  # type: Any, Any
    if parts.scheme == "https":
        known["context"] = ssl.create_default_context(cafile=options.ca_file)
        kind = http.client.HTTPSConnection
    connection = kind(parts.hostname or "", parts.port, **known)
    headers = {"Accept": "application/octet-stream", "User-Agent": "headgate-krl-fetch"}
    if etag:
        headers["If-None-Match"] = etag
    try:
        connection.request("GET", parts.path or "/", headers=headers)
        answer = connection.getresponse()
        said = answer.headers
        word = (said.get("Headgate-KRL-Signed", ""), said.get_all("Headgate-KRL-Signature", []))
        if answer.status == http.client.NOT_MODIFIED and etag:
            return None, etag, word
        if etag and answer.status in ASK_AGAIN:
            return ask(options, "")
        if answer.status != http.client.OK:
            raise Failure(f"the answer is {answer.status} {answer.reason!a:.100}")
        body = answer.read(limit + 1)
        if len(body) > limit:
            raise Failure(f"the answer is larger than {limit} bytes")
        # A list cut off between two sections is a list, too: it would only revoke less.
        length = said.get("Content-Length")
        if not answer.chunked and (length is None or int(length) != len(body)):
            raise Failure("the answer is cut short, or does not say how long it is")
        return body, _etag(said.get("ETag")), word
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise Failure(f"no answer: {error!a:.300}") from error
    finally:
        connection.close()


def _etag(said: object) -> str:
    # One that is too long, or is none, would be refused whenever it is sent back.
    return said if isinstance(said, str) and ETAG.fullmatch(said) else ""


def vouched(word: Word, version: int, digest: str, krl: str, options: argparse.Namespace) -> float:
    """When the signer said that this is the current list; `krl`: no key that it revokes may sign.

    Raises `Failure`: it said nothing, or of another list, or too long ago, or somebody else did.
    """
    said = STATEMENT.fullmatch(word[0])
    if said is None or (int(said.group(1)), said.group(2)) != (version, digest):
        raise Failure("the list comes without the signer's word, or with that for another one")
    at = float(said.group(3))
    if not -CLOCK_SLACK <= time.time() - at <= STALE:
        raise Failure(f"the signer's word is of {time.time() - at:.0f} s ago; is a clock wrong?")
    with tempfile.TemporaryDirectory() as folder:
        signers, signature = (os.path.join(folder, name) for name in ("signers", "signature"))
        with open(options.user_ca, "rb") as trusted, open(signers, "wb") as file:
            for key in (line.split() for line in trusted):
                if len(key) > 1 and not key[0].startswith(b"#"):
                    file.write(b'signer namespaces="%b" %b %b\n' % (NAMESPACE.encode(), *key[:2]))
        argv = ["-Y", "verify", "-f", signers, "-I", "signer", "-n", NAMESPACE, "-s", signature]
        argv += ["-r", krl] if krl else []
        for body in word[1][:4]:
            with open(signature, "wb") as file:
                file.write(ARMOUR.format(body).encode())
            if keygen(options, *argv, stdin=word[0].encode()):
                return at
    raise Failure(f"no key of {options.user_ca} has signed the list")


def keygen(options: argparse.Namespace, *argv: str, stdin: bytes = b"") -> bool:
    """Whether ssh-keygen says yes; raises `Failure` if it says nothing."""
    words, none = (options.ssh_keygen, *argv), subprocess.DEVNULL
    known = {"input": stdin, "timeout": options.timeout}  # type: Any
    try:
        done = subprocess.run(words, stdout=none, stderr=none, check=False, **known)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Failure(f"ssh-keygen: {error}") from error
    return done.returncode == 0


def fetch(place: Place, options: argparse.Namespace, before: Dict[str, Any]) -> Dict[str, Any]:
    """Ask, look, install; what the status shall say. Raises `Failure`: nothing was changed."""
    there, signed = place.read(place.name, options.max_bytes), not options.no_signature
    # What somebody changed by hand is not what the ETag is of.
    same = there and before.get("sha256") == hashlib.sha256(there).hexdigest()
    body, etag, word = ask(options, _etag(before.get("etag")) if same else "")
    content = there if body is None else body
    version, digest = version_of(content), hashlib.sha256(content).hexdigest()
    old = _version_there(there)
    krl = place.path if old else ""
    at = vouched(word, version, digest, krl, options) if signed else time.time()
    if not options.accept_rollback:
        newest = max(int(before.get("version", 0)), old)
        if version < newest:
            raise Failure(f"version {version} is older than {newest}, which was here already")
        if version - newest > MAX_JUMP:
            raise Failure(f"version {version} is too far above {newest}")
        if signed and before.get("signed") and at < float(before["confirmed_at"]) - CLOCK_SLACK:
            raise Failure("the signer's word is older than the one before")
    if body is not None:
        with place.written(place.name, body) as path:
            if not keygen(options, "-Q", "-l", "-f", path):
                raise Failure("ssh-keygen does not read the revocation list")
    said = {"etag": etag, "sha256": digest, "version": version, "confirmed_at": at}
    return dict(said, signed=signed)


def _version_there(content: bytes) -> int:
    # A list that is broken is no reason to keep it: anything valid is better.
    try:
        return version_of(content)
    except Failure:
        return 0


def known(place: Place) -> Dict[str, Any]:
    """What the status file says of the list; nothing if it cannot be read."""
    try:
        said = json.loads(place.read(place.status, MAX_STATUS).decode())
        if float(said["confirmed_at"]) and 0 <= int(said["version"]) <= MAX_VERSION:
            return dict(said)
    except (Failure, ValueError, TypeError, KeyError, OverflowError, RecursionError):
        pass  # it says nothing then; the list itself is looked at anyway
    return {}


def age(place: Place, said: Dict[str, Any], limit: int, now: float) -> Tuple[float, str]:
    """Seconds since the list was last said to be the current one, and why it is of no use."""
    try:
        version_of(place.read(place.name, limit))
    except Failure as failure:
        return float("inf"), str(failure)
    if "confirmed_at" not in said:
        return float("inf"), "nobody has confirmed the list yet"
    seconds = now - float(said["confirmed_at"])
    if not seconds >= -CLOCK_SLACK:  # also for NaN
        return float("inf"), "the list is confirmed in the future: the clock was set back"
    return max(0.0, seconds), ""


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Fetch once, or only look (`--check`); returns the exit status."""
    options = _parser().parse_args(argv)
    syslog.openlog("headgate-krl-fetch", syslog.LOG_PID, syslog.LOG_DAEMON)
    try:
        _require_safe(options.url, plain_http=options.plain_http)
        place = Place(options.file)
    except Failure as failure:
        _say(syslog.LOG_ERR, str(failure))
        return USAGE
    try:
        with _deadline(options.timeout), place.locked():
            return _once(place, options)
    except BlockingIOError:
        _say(syslog.LOG_WARNING, "another run is at it")
        return BUSY
    except Failure as failure:
        _say(syslog.LOG_ERR, f"ALARM: {failure}")
        return ALARM
    finally:
        place.close()


def _once(place: Place, options: argparse.Namespace) -> int:
    said, wrong = known(place), ""
    if not options.check:
        try:
            said = fetch(place, options, said)
        except (Failure, OSError) as error:
            wrong = str(error)
        said.update(error=wrong, result="failed" if wrong else "confirmed")
        with place.written(place.status, json.dumps(said, sort_keys=True).encode() + b"\n"):
            pass
    return _judge(place, options, said, wrong)


def _judge(place: Place, options: argparse.Namespace, said: Dict[str, Any], wrong: str) -> int:
    seconds, why = age(place, said, options.max_bytes, time.time())
    if seconds > options.alarm_after:
        why = why or f"the list is too old: of {seconds:.0f} s ago"
        _say(syslog.LOG_ERR, f"ALARM: {wrong}; {why}" if wrong else f"ALARM: {why}")
        return ALARM
    if wrong:
        _say(syslog.LOG_WARNING, f"{wrong}; the list of {seconds:.0f} s ago stays")
        return FAILED
    syslog.syslog(syslog.LOG_INFO, f"version {said['version']}, {seconds:.0f} s old")
    return CONFIRMED


def _require_safe(url: str, *, plain_http: bool) -> None:
    try:
        parts = urllib.parse.urlsplit(url)
        parts.port  # noqa: B018 - it is parsed when asked for
    except ValueError as error:
        raise Failure(f"--url: {error}") from error
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or "@" in url:
        raise Failure("--url: not an http or https address, or with a user's name in it")
    if parts.scheme == "http" and not plain_http and parts.hostname not in LOOPBACK:
        raise Failure("--url: http beyond this machine can be forged; use https, or --plain-http")


@contextlib.contextmanager
def _deadline(seconds: float) -> Iterator[None]:
    # For name resolution and drops of an answer too, which no socket's timeout ends.
    def late(_: int, __: object) -> None:
        raise Failure(f"it did not end within {seconds:g} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _say(level: int, words: str) -> None:
    syslog.syslog(level, words)
    sys.stderr.write(f"headgate-krl-fetch: {words}\n")


class _Parser(argparse.ArgumentParser):
    """An argument parser whose files, named by `@FILE`, have comments, and option and value."""

    def convert_arg_line_to_args(self, arg_line: str) -> List[str]:
        """The words of a line of such a file."""
        return [] if arg_line.strip().startswith("#") else arg_line.split(None, 1)

    def error(self, message: str) -> NoReturn:
        """End with the status of a command that was told nonsense (sysexits.h)."""
        self.exit(USAGE, f"headgate-krl-fetch: {message}\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="headgate-krl-fetch",
        description="Bring the revocation list to this node; @FILE reads options from a file.",
        fromfile_prefix_chars="@",
    )
    parser.add_argument("--url", required=True, help="the translator's /v1/krl")
    parser.add_argument("--file", required=True, help="sshd's RevokedKeys; its status: FILE.status")
    parser.add_argument("--user-ca", default=USER_CA, help="sshd's TrustedUserCAKeys")
    parser.add_argument("--no-signature", action="store_true", help="believe any server (EL 8)")
    parser.add_argument("--ca-file", help="PEM certificates to trust for https; else the system's")
    parser.add_argument("--timeout", type=float, default=20.0, help="seconds for all of it")
    parser.add_argument("--alarm-after", type=float, default=3600.0, help="an older list alarms")
    parser.add_argument("--max-bytes", type=int, default=16 * 1024 * 1024, help="no larger list")
    parser.add_argument("--accept-rollback", action="store_true", help="take any version, once")
    parser.add_argument("--plain-http", action="store_true", help="http to another machine")
    parser.add_argument("--check", action="store_true", help="fetch nothing, judge the age")
    parser.add_argument("--ssh-keygen", default="/usr/bin/ssh-keygen", help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    sys.exit(main())
