"""The target: local users and groups by shadow-utils, seen through NSS and through the files."""

import grp
import os
import pwd
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

from account_importer.directory import Change, Facts, Kind, TargetError, UnixUser
from account_importer.homes import make_home
from headgate.command import CommandError, Completed, run

PASSWD = Path("/etc/passwd")
GROUP = Path("/etc/group")
ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"}
DEADLINE_SECONDS = 60.0
OUTPUT_LIMIT = 64 * 1024

K = TypeVar("K")
V = TypeVar("V")

Run = Callable[[Sequence[str]], Awaitable[Completed]]


async def run_tool(argv: Sequence[str]) -> Completed:
    """One shadow-utils command, with a deadline and a clean environment."""
    return await run(argv, timeout=DEADLINE_SECONDS, limit=OUTPUT_LIMIT, env=ENVIRONMENT)


def observe(names: Iterable[str] = (), ids: Iterable[int] = ()) -> Facts:
    """Users and groups from NSS and from the files; needs no right.

    NSS may not list everybody (LDAP without enumeration), so `names` and `ids` are asked for one
    by one; the files are read as well, for NSS may be told to ignore them.
    """
    users = [*_passwd_file(), *pwd.getpwall()]
    groups = [*_group_file(), *((entry.gr_name, entry.gr_gid) for entry in grp.getgrall())]
    for name in names:
        users += _known(pwd.getpwnam, name)
        groups += [(entry.gr_name, entry.gr_gid) for entry in _known(grp.getgrnam, name)]
    for number in ids:
        users += _known(pwd.getpwuid, number)
        groups += [(entry.gr_name, entry.gr_gid) for entry in _known(grp.getgrgid, number)]
    return Facts(
        users={
            entry.pw_name: UnixUser(
                name=entry.pw_name,
                uid=entry.pw_uid,
                gid=entry.pw_gid,
                mark=entry.pw_gecos.partition(",")[0],
                home=entry.pw_dir,
            )
            for entry in users
        },
        groups=dict(groups),
    )


def _known(look_up: Callable[[K], V], key: K) -> list[V]:
    try:
        return [look_up(key)]
    except KeyError:
        return []


def _passwd_file() -> list[pwd.struct_passwd]:
    """The file's own lines, passwd(5); a line that is none is nobody's account."""
    found: list[pwd.struct_passwd] = []
    for line in PASSWD.read_text(encoding="utf-8", errors="replace").splitlines():
        fields = line.split(":")
        if len(fields) == 7 and fields[2].isdigit() and fields[3].isdigit():  # noqa: PLR2004 - passwd(5) has seven fields
            name, password, uid, gid, gecos, home, shell = fields
            entry = (name, password, int(uid), int(gid), gecos, home, shell)
            found.append(pwd.struct_passwd(entry))
    return found


def _group_file() -> list[tuple[str, int]]:
    """Names and gids of the file's own lines, group(5)."""
    lines = GROUP.read_text(encoding="utf-8", errors="replace").splitlines()
    fields = [line.split(":") for line in lines]
    return [(f[0], int(f[2])) for f in fields if len(f) == 4 and f[2].isdigit()]  # noqa: PLR2004 - group(5) has four fields


class UnixTools:
    """Carries out single changes as root; each one is safe to repeat after a crash at any point."""

    def __init__(self, *, home_mode: int, skeleton: Path, run: Run = run_tool) -> None:
        self._home_mode = home_mode
        self._skeleton = skeleton
        self._run = run

    async def carry_out(self, change: Change) -> None:
        """Do one change. Raises TargetError."""
        try:
            if change.kind == Kind.CREATE:
                await self._create(change)
            elif change.kind == Kind.BLOCK:
                # An expired account: sshd, cron and su refuse it (shadow(5), usermod(8)).
                await self._modify(change, "--expiredate", "1")
            elif change.kind == Kind.UNBLOCK:
                await self._modify(change, "--expiredate", "")
            else:
                raise TargetError(f"there is no way to {change.kind} an account here")
        except (CommandError, OSError) as error:
            raise TargetError(f"{change.account}: {error}") from error

    async def _modify(self, change: Change, *options: str) -> None:
        _require_ours(change, _look(change))
        (await self._run(["usermod", *options, change.account])).checked()

    async def _create(self, change: Change) -> None:
        if not os.access(change.shell, os.X_OK):
            raise TargetError(f"{change.account}: the shell {change.shell} is not installed")
        facts = _look(change)
        _require_free(change, facts)
        if change.account not in facts.groups:
            argv = ["groupadd", "--gid", str(change.gid), change.account]
            (await self._run(argv)).checked()
        if change.account not in facts.users:
            await self._add_user(change)
        _require_ours(change, _look(change))
        make_home(
            Path(change.home),
            uid=change.uid,
            gid=change.gid,
            mode=self._home_mode,
            skeleton=self._skeleton,
        )

    async def _add_user(self, change: Change) -> None:
        argv = [
            "useradd",
            *("--uid", str(change.uid), "--gid", str(change.gid), "--no-user-group"),
            *("--home-dir", change.home, "--no-create-home", "--shell", change.shell),
            # No password, but not locked: sshd refuses locked accounts, certificates or not.
            *("--password", "*", "--comment", change.mark, "--no-log-init"),
            change.account,
        ]
        (await self._run(argv)).checked()


def _look(change: Change) -> Facts:
    return observe([change.account], [change.uid, change.gid])


def _expected(change: Change) -> UnixUser:
    return UnixUser(change.account, change.uid, change.gid, change.mark, change.home)


def _require_ours(change: Change, facts: Facts) -> None:
    found = facts.users.get(change.account)
    if found is None:
        raise TargetError(f"{change.account}: there is no such account")
    if found != _expected(change):
        raise TargetError(f"{change.account}: this account was not made by headgate for this user")


def _require_free(change: Change, facts: Facts) -> None:
    """Nobody else has the name or the numbers; what a crash left half done is ours to finish."""
    if change.account in facts.users:
        _require_ours(change, facts)
    holders = {facts.name_of_uid.get(change.uid), facts.name_of_gid.get(change.gid)}
    if holders - {None, change.account}:
        raise TargetError(f"{change.account}: {change.uid} is in use on this machine")
    if facts.groups.get(change.account, change.gid) != change.gid:
        raise TargetError(f"{change.account}: a group of this name exists already")
