"""The files of a node: whose they are, what they hold, and what they do when they are run."""

import hashlib
import pwd
import re
import stat
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from headgate.command import CommandError, run
from headgate.settings import SettingsError
from token_translator import krl_fetch
from token_translator.nodes.findings import Finding, failed, ok, skipped, warning
from token_translator.nodes.settings import Node
from token_translator.signer.files import require_unwritable

SECONDS = 10.0
LIMIT = 64 * 1024
OLDEST_PYTHON = (3, 6)
MAX_LIST = 16 * 1024 * 1024
MAX_ACCOUNTS = 500
"""Accounts outside of the range whose principals are looked at; system accounts come first."""
READABLE, EXECUTABLE = 0o444, 0o555
NONCE = "headgate-node-check"
ENVIRONMENT = {"PATH": "/usr/bin:/bin"}
NO_ACCOUNT = "no account of the range: name one with --account"


def owned(check: str, path: str, *, executable: bool = False) -> Finding:
    """Whether a file, every folder above it and every link to it can be written by root alone."""
    try:
        real = Path(path).resolve(strict=True)
        require_unwritable(real, frozenset({0}))
        _require_links(Path(path))
        mode = real.stat().st_mode
    except (OSError, RuntimeError, SettingsError) as error:  # RuntimeError: a loop of links
        return failed(check, str(error))
    if not stat.S_ISREG(mode):
        return failed(check, f"{path} is not a regular file")
    wanted = EXECUTABLE if executable else READABLE
    if mode & wanted != wanted:
        return failed(
            check, f"{path}: mode {mode & 0o7777:o}; use {'0755' if executable else '0644'}"
        )
    return ok(check, path)


def _require_links(path: Path) -> None:
    """Refuse a path on which somebody else could have a link point elsewhere; it has no loop."""
    here = Path("/")
    for name in path.parts[1:]:
        here /= name
        if here.is_symlink():
            if owner := here.lstat().st_uid:
                raise SettingsError(f"{here}: owned by uid {owner}; it must be uid 0")
            require_unwritable(here.parent, frozenset({0}))
            _require_links(here.parent / here.readlink())
            here = here.resolve()


async def authorities(node: Node, known: Sequence[str] | None) -> list[Finding]:
    """The user authorities that sshd believes; `known` are the translator's lines, if asked."""
    mine = owned("authorities' file", node.user_ca)
    try:
        (await run(("ssh-keygen", "-l", "-f", node.user_ca), timeout=SECONDS)).checked()
        lines = _content(node.user_ca).decode("ascii").splitlines()
    except (CommandError, OSError, UnicodeDecodeError) as error:
        return [mine, failed("authorities are keys", str(error))]
    if known is None:
        return [mine, ok("authorities are keys")]
    here, there = _keys(lines), _keys(known)
    if here - there:
        detail = f"{len(here - there)} in {node.user_ca} that the translator does not name"
        return [mine, failed("authorities are the site's", detail)]
    if there - here:
        detail = f"{node.user_ca} lacks {len(there - here)} that the translator names"
        return [mine, warning("authorities are the site's", detail)]
    return [mine, ok("authorities are the site's")]


def _keys(lines: Sequence[str]) -> frozenset[tuple[str, ...]]:
    found = (tuple(line.split()[:2]) for line in lines)
    return frozenset(words for words in found if words and not words[0].startswith("#"))


async def revocation_list(node: Node, now: float | None = None) -> list[Finding]:
    """The list that sshd reads: whose, whether it is one, and how old."""
    path = node.revoked_keys
    try:
        _content(path)
        (await run(("ssh-keygen", "-Q", "-l", "-f", path), timeout=SECONDS)).checked()
        version = krl_fetch.version_of(_content(path))
        place = krl_fetch.Place(path)
    except FileNotFoundError:
        return [failed("revocation list", f"{path} is not there: sshd refuses every key")]
    except (OSError, CommandError, krl_fetch.Failure) as error:
        return [failed("revocation list", f"{path}: {error}")]
    try:
        known = krl_fetch.known(place)
        seconds, why = krl_fetch.age(place, known, MAX_LIST, time.time() if now is None else now)
    finally:
        place.close()
    whose = _writers(path, node.krl_user)
    if seconds > node.krl_max_age:
        detail = why or f"version {version} was confirmed {seconds:.0f} s ago"
        return [whose, failed("age of the revocation list", detail)]
    return [whose, ok("age of the revocation list", f"version {version}, {seconds:.0f} s")]


def _writers(name: str, user: str) -> Finding:
    check = "revocation list's file"
    try:
        owners = {0, pwd.getpwnam(user).pw_uid}
    except KeyError:
        owners = {0}
    path = Path(name).resolve()
    try:
        require_unwritable(path, frozenset(owners))
    except SettingsError as error:
        return failed(check, str(error))
    mode = path.stat().st_mode
    if mode & READABLE != READABLE:
        return warning(check, f"{path}: mode {mode & 0o7777:o}; use 0644")
    return ok(check, name)


def _content(path: str) -> bytes:
    return Path(path).read_bytes()


async def session(node: Node, account: pwd.struct_passwd | None) -> list[Finding]:
    """The session program: whose, of which release, and that it speaks when it is run.

    Nothing is run that anybody but root could have written, and nothing as root.
    """
    mine = owned("session program's file", node.session_program, executable=True)
    if mine.state != "ok":
        return [mine]
    found, content = [mine], _content(node.session_program)
    digest = hashlib.sha256(content).hexdigest()
    known = {*release_digests(), *node.session_digests}
    if digest in known:
        found.append(ok("session program's release", digest))
    else:
        found.append(failed("session program's release", f"{digest} is of no known release"))
    interpreter = content.split(b"\n", 1)[0].removeprefix(b"#!").decode(errors="replace").split()
    found.append(await _interpreter(interpreter, account))
    if found[-1].state != "failed":
        found.append(await _speaks(node, account))
    return found


def release_digests() -> frozenset[str]:
    """SHA-256 of the session program that came with this release."""
    source = Path(__file__).parents[2] / "gateway" / "session" / "headgate_session.py"
    if not source.is_file():
        return frozenset()
    return frozenset({hashlib.sha256(source.read_bytes()).hexdigest()})


async def _interpreter(words: Sequence[str], account: pwd.struct_passwd | None) -> Finding:
    check = "session program's interpreter"
    if not words or not words[0].startswith("/"):
        return failed(check, "its first line names none")
    mine = owned(check, words[0], executable=True)
    if mine.state != "ok":
        return mine
    if account is None:
        return skipped(check, NO_ACCOUNT)
    question = "import sys; print('%d.%d' % sys.version_info[:2])"
    argv = as_user(account, (words[0], "-I", "-c", question))
    try:
        done = (await run(argv, timeout=SECONDS, limit=LIMIT, env=ENVIRONMENT)).checked()
    except CommandError as error:
        return failed(check, str(error))
    version = done.stdout.decode(errors="replace").strip()
    numbers = re.fullmatch(r"(\d{1,3})\.(\d{1,3})", version)
    if not numbers or tuple(map(int, numbers.groups())) < OLDEST_PYTHON:
        return failed(check, f"{words[0]} is no Python of 3.6 or newer: {version[:20]!r}")
    return ok(check, f"{words[0]}, Python {version}")


async def _speaks(node: Node, account: pwd.struct_passwd | None) -> Finding:
    check = "session program runs"
    if account is None:
        return skipped(check, NO_ACCOUNT)
    argv = as_user(account, (node.session_program, "--only", "status:none"))
    environment = {**ENVIRONMENT, "SSH_ORIGINAL_COMMAND": NONCE, "HOME": account.pw_dir}
    try:
        done = await run(argv, timeout=SECONDS, limit=LIMIT, env=environment)
    except CommandError as error:
        return failed(check, str(error))
    if done.stdout.startswith(f"HGS1 {NONCE}\n".encode()):
        return ok(check, f"as {account.pw_name}")
    words = done.stderr.decode(errors="replace").strip()[-300:]
    return failed(check, f"as {account.pw_name} it says: {words or 'nothing'}")


def as_user(account: pwd.struct_passwd, argv: Sequence[str]) -> tuple[str, ...]:
    """A command that, run by root, runs another one as somebody."""
    who = (f"--reuid={account.pw_uid}", f"--regid={account.pw_gid}")
    return ("setpriv", *who, "--clear-groups", *argv)


async def principals(node: Node, account: pwd.struct_passwd | None) -> list[Finding]:
    """That an account of the range has exactly its principal, and nobody else one at all."""
    if node.principals == "files":
        return list(_principals_files(node))
    mine = owned("principals program's file", node.principals_program, executable=True)
    if mine.state != "ok":
        return [mine]
    try:
        user = pwd.getpwnam(node.principals_user)
    except KeyError:
        return [mine, failed("principals", f"there is no user {node.principals_user}")]
    found = [mine]
    if account is None:
        found.append(skipped("principals of the range", "no account of the range to ask for"))
    else:
        found.append(await _prints(node, user, account))
    wrong = [
        other.pw_name
        for other in strangers(node)
        if (await _prints(node, user, other)).state != "ok"
    ]
    check = "no principals outside of the range"
    found.append(failed(check, ", ".join(wrong)) if wrong else ok(check, "root, staff, services"))
    return found


def strangers(node: Node) -> list[pwd.struct_passwd]:
    """Accounts that no certificate may open, root and the system's first, a bounded number."""
    others = (one for one in pwd.getpwall() if not node.principals_of(one.pw_name, one.pw_uid))
    return sorted(others, key=lambda one: one.pw_uid)[:MAX_ACCOUNTS]


async def _prints(node: Node, user: pwd.struct_passwd, account: pwd.struct_passwd) -> Finding:
    check = "principals of the range"
    name, uid = account.pw_name, account.pw_uid
    argv = as_user(user, (node.principals_program, name, str(uid)))
    try:
        done = await run(argv, timeout=SECONDS, limit=LIMIT, env=ENVIRONMENT)
    except CommandError as error:
        return failed(check, str(error))
    wanted = _as_lines(node.principals_of(name, uid))
    printed = done.stdout.decode(errors="replace")
    if printed != wanted:
        return failed(check, f"for {name} it prints {printed[:200]!r}, not {wanted!r}")
    if wanted and done.status:
        return failed(check, f"for {name} it ends with status {done.status}: sshd denies")
    return ok(check, f"{name}: {' '.join(wanted.split())}")


def _as_lines(principals: Sequence[str]) -> str:
    return "".join(f"{principal}\n" for principal in principals)


def _principals_files(node: Node) -> Iterator[Finding]:
    folder, wrong = Path(node.principals_folder), []
    try:
        for path in sorted(folder.iterdir()):
            require_unwritable(path.resolve(), frozenset({0}))
            try:
                wanted = node.principals_of(path.name, pwd.getpwnam(path.name).pw_uid)
            except KeyError:
                wanted = ()
            if not wanted or path.read_text(encoding="ascii") != _as_lines(wanted):
                wrong.append(path.name)
    except (OSError, UnicodeDecodeError, SettingsError) as error:
        yield failed("principals files", str(error))
        return
    if wrong:
        yield failed("principals files", f"not what they have to be: {', '.join(wrong[:20])}")
    else:
        yield ok("principals files", str(folder))
