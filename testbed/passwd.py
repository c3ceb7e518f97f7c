"""The site's private /etc: the host's without its people, with the suite's system accounts."""

import shutil
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from headgate.command import run

NO_HOME = "/nonexistent"
PEOPLE = range(1000, 60000)
_SYSTEM = range(999, 700, -1)
_COPY_SECONDS = 60.0

# The host's own secrets, and its settings for what the site runs itself: neither is for the site.
_NOT_COPIED = (
    "ssh/ssh_host_*",
    "ssl/private/*",
    "munge/munge.key",
    "krb5.keytab",
    "slurm",
    "zabbix/zabbix.conf.php",
    "passwd-",
    "shadow-",
    "group-",
    "gshadow-",
    "*.lock",
    "sudoers.d/*",
    "cron.d/*",
)


@dataclass(frozen=True, slots=True)
class Account:
    """An account of the site (passwd(5))."""

    name: str
    uid: int
    gid: int
    home: str
    shell: str


class NoAccountError(Exception):
    """The site has no account of that name."""


async def private_etc(etc: Path, system_users: Sequence[str]) -> None:
    """Make `etc` the site's /etc: a copy of the host's, with these system accounts added.

    The host's people (uid and gid 1000-59999) and everybody's password hashes are left out.

    Raises:
        CommandError: the copy failed.
    """
    copied = await run(("cp", "-a", "--reflink=auto", "/etc/.", str(etc)), timeout=_COPY_SECONDS)
    if not (etc / "passwd").exists():
        copied.checked()  # a file that vanished while it was copied is no loss; this one is
    etc.chmod(0o755)
    for pattern in _NOT_COPIED:
        for path in etc.glob(pattern):
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    _keep_in_place(etc / "resolv.conf")
    _accounts(etc, system_users)
    hosts = etc / "hosts"
    text = hosts.read_text(encoding="utf-8") if hosts.exists() else "127.0.0.1 localhost\n"
    hosts.write_text(f"127.0.0.1 testbed\n{text}", encoding="utf-8")


def account(etc: Path, name: str) -> Account:
    """The account of that name.

    Raises:
        NoAccountError: there is none.
    """
    for fields in _table(etc / "passwd"):
        if fields[0] == name:
            return Account(name, int(fields[2]), int(fields[3]), fields[5], fields[6])
    raise NoAccountError(f"this site has no account {name!r}")


def join(etc: Path, member: str, group: str) -> None:
    """Make an account a member of a group (group(5)).

    Raises:
        NoAccountError: there is no such account.
    """
    account(etc, member)
    rows = _table(etc / "group")
    for row in rows:
        if row[0] == group:
            row[3] = ",".join(filter(None, (*row[3].split(","), member)))
    _write(etc / "group", rows)


def _keep_in_place(path: Path) -> None:
    """A file instead of a link into places the site does not see."""
    if path.is_symlink():
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        path.unlink()
        path.write_text(text, encoding="utf-8")


def _accounts(etc: Path, system_users: Sequence[str]) -> None:
    people = {fields[0] for fields in _table(etc / "passwd") if int(fields[2]) in PEOPLE}
    circles = {fields[0] for fields in _table(etc / "group") if int(fields[2]) in PEOPLE}
    passwd = [fields for fields in _table(etc / "passwd") if fields[0] not in people]
    group = list(_without(_table(etc / "group"), circles, people))
    shadow = [[name, "*", *rest] for name, _, *rest in _table(etc / "shadow") if name not in people]
    gshadow = list(_without(_table(etc / "gshadow"), circles, people))
    taken = {int(fields[2]) for fields in (*passwd, *group)}
    free = (number for number in _SYSTEM if number not in taken)
    known = {fields[0] for fields in passwd}
    for name in system_users:
        if name in known:
            continue
        number = str(next(free))
        passwd.append([name, "x", number, number, "", NO_HOME, "/usr/sbin/nologin"])
        group.append([name, "x", number, ""])
        shadow.append([name, "*", "20000", "", "", "", "", "", ""])
        gshadow.append([name, "!", "", ""])
    for table, rows in (("passwd", passwd), ("group", group), ("shadow", shadow)):
        _write(etc / table, rows)
    _write(etc / "gshadow", gshadow)


def _without(
    rows: Iterable[list[str]], names: Collection[str], members: Collection[str]
) -> Iterator[list[str]]:
    """Rows of group(5) or gshadow(5) but those of `names`; `members` are taken from the rest."""
    for row in rows:
        if row[0] not in names:
            kept = [member for member in row[-1].split(",") if member and member not in members]
            yield [*row[:-1], ",".join(kept)]


def _table(path: Path) -> list[list[str]]:
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [line.split(":") for line in lines if ":" in line]


def _write(path: Path, rows: Iterable[Sequence[str]]) -> None:
    # In place: owner and mode (shadow's) stay as they were.
    path.write_text("".join(":".join(row) + "\n" for row in rows), encoding="utf-8")
