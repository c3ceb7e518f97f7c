"""Run inside private mount and PID namespaces: the real useradd, killed at the worst moments."""

import asyncio
import json
import os
import pwd
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec

from testbed.issuer.app import running
from testbed.issuer.core import Issuer
from testbed.issuer.directory import Client, User
from testbed.issuer.settings import IssuerSettings

ROOT = Path("/srv/headgate")
CONFIG = ROOT / "accounts.toml"
HOMES = Path("/srv/home")

WRAPPER = """#!/bin/sh
# Once: kill whom the test says, before or after the real work.
children=$(cat /proc/$PPID/task/$PPID/children)
kill_them() {
  [ -e %(root)s/kill-$1-executor ] && rm %(root)s/kill-$1-executor && kill -9 $PPID
  if [ -e %(root)s/kill-$1-other ]; then
    rm %(root)s/kill-$1-other
    for child in $children; do [ $child = $$ ] || kill -9 $child; done
  fi
}
kill_them before
%(tool)s.real "$@"
status=$?
kill_them after
exit $status
"""


def forget_people(etc: Path) -> None:
    """Remove the machine's own people and their groups from a copy of its /etc."""
    gone: set[str] = set()
    for name in ("passwd", "group", "shadow", "gshadow"):
        lines = (etc / name).read_text().splitlines(keepends=True)
        if name in {"passwd", "group"}:
            gone |= {f[0] for f in (line.split(":") for line in lines) if 1000 <= int(f[2]) < 60000}
        kept = [line for line in lines if line.split(":")[0] not in gone]
        (etc / name).write_text("".join(kept))


def prepare() -> None:
    """A private /etc, /srv and /usr/sbin, an unprivileged user, and the root-owned policy."""
    work = Path(sys.argv[1])
    shutil.copytree("/etc", work / "etc", symlinks=True, ignore_dangling_symlinks=True)
    forget_people(work / "etc")
    shutil.copytree("/usr/sbin", work / "sbin", symlinks=True)
    for tool in ("useradd", "usermod", "groupadd"):
        (work / "sbin" / tool).rename(work / "sbin" / f"{tool}.real")
        wrapper = work / "sbin" / tool
        wrapper.write_text(WRAPPER % {"root": ROOT, "tool": f"/usr/sbin/{tool}"})
        wrapper.chmod(0o755)
    shell("mount", "--bind", str(work / "etc"), "/etc")
    shell("mount", "--bind", str(work / "sbin"), "/usr/sbin")
    shell("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", "/srv")
    HOMES.mkdir()
    ROOT.mkdir()
    if "hg-accounts" not in {entry.pw_name for entry in pwd.getpwall()}:
        shell("useradd", "--system", "--no-create-home", "hg-accounts")
    owner = pwd.getpwnam("hg-accounts")
    for folder, mode in ((ROOT / "db", 0o750), (ROOT / "home", 0o755)):
        folder.mkdir(mode=mode)
        os.chown(folder, owner.pw_uid, owner.pw_gid)
    secret = ROOT / "secret"
    secret.touch(mode=0o600)
    secret.write_text("s3\n")
    os.chown(secret, owner.pw_uid, owner.pw_gid)
    (ROOT / "policy.toml").write_text(
        f"""
realm = "site"
kinds = ["create", "block", "unblock"]
uid_first = 20000
uid_last = 29999
shells = ["/bin/bash", "/bin/sh"]
home_base = "{HOMES}"
"""
    )


def configure(url: str) -> None:
    """The importer's settings."""
    CONFIG.write_text(
        f"""
realm = "site"
database = "sqlite+aiosqlite:///{ROOT}/db/accounts.db"
audience = "http://accounts"
how_to_ask = "Ask."
policy = "{ROOT}/policy.toml"
log_level = "error"
[source]
issuer = "{url}"
client_id = "importer"
client_secret_file = "{ROOT}/secret"
groups_any = ["hpc"]
[accounts]
home_base = "{HOMES}"
shells = {{ carol = "/bin/sh" }}
[approval]
kinds = ["create", "block", "unblock"]
"""
    )


def shell(*argv: str) -> str:
    """Run something that must succeed."""
    return subprocess.run(argv, check=True, capture_output=True, text=True, timeout=60).stdout


async def verb(*arguments: str) -> tuple[int, str, str]:
    """One verb of the importer, as root starts it."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "account_importer", "--config", str(CONFIG), *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    stdout, stderr = await process.communicate()
    return process.returncode or 0, stdout.decode(), stderr.decode()


async def must(*arguments: str) -> str:
    """A verb that has to succeed."""
    status, stdout, stderr = await verb(*arguments)
    if status:
        raise SystemExit(f"{arguments} ended with {status}: {stdout}{stderr}")
    return stdout


def on_disk() -> dict[str, object]:
    """Homes with owner, mode and skeleton; and whose the database's files are."""
    return {
        "homes": {
            path.name: [
                path.stat().st_uid,
                path.stat().st_mode & 0o777,
                (path / ".bashrc").exists(),
            ]
            for path in HOMES.iterdir()
        },
        "database": sorted({path.owner() for path in (ROOT / "db").iterdir()}),
    }


async def story(issuer: Issuer) -> dict[str, object]:
    """Accounts are made under fire, blocked and unblocked; what is there at the end."""
    statuses: dict[str, int] = {}
    await must("migrate")
    for moment in ("before-executor", "after-executor", "before-other", "after-other"):
        name = "user" + moment.replace("-", "")
        issuer.directory.put(User(username=name, groups=("hpc",)))
        await must("pull")
        await must("plan")
        (ROOT / f"kill-{moment}").touch()
        statuses[f"killed {moment}"] = (await verb("apply"))[0]
        statuses[f"again {moment}"] = (await verb("apply"))[0]
        statuses[f"once more {moment}"] = (await verb("apply"))[0]
    issuer.directory.change("bob", active=False)
    await must("pull")
    await must("plan")
    await must("apply")
    expiry = shell("getent", "shadow", "bob").split(":")[7]
    issuer.directory.change("bob", active=True)
    await must("pull")
    await must("plan")
    await must("apply")
    shown = json.loads(await must("show", "--json"))
    plan = json.loads(await must("plan", "--json"))
    users = [entry for entry in pwd.getpwall() if 20000 <= entry.pw_uid < 30000]
    return {
        "statuses": statuses,
        "expiry": [expiry, shell("getent", "shadow", "bob").split(":")[7]],
        "registry": {a["account"]: [a["uid"], a["state"]] for a in shown["accounts"]},
        "passwd": {u.pw_name: [u.pw_uid, u.pw_gid, u.pw_shell, u.pw_dir] for u in users},
        **on_disk(),
        "left": plan["changes"],
        "refused": plan["refused"],
    }


async def main() -> None:
    """Prepare, play the story against a real issuer, print what came of it."""
    prepare()
    settings = IssuerSettings(
        state_dir="",
        users=(
            User(username="alice", groups=("hpc",)),
            User(username="bob", groups=("hpc",)),
            User(username="carol", groups=("hpc",)),
            User(username="daemon", groups=("hpc",)),
        ),
        clients=(
            Client(
                client_id="importer",
                secret="s3",
                grants=("client_credentials",),
                scopes=("scim:read",),
            ),
        ),
    )
    async with running(settings) as issuer:
        configure(issuer.url)
        outcome = await story(issuer)
    sys.stdout.write("\n" + msgspec.json.encode(outcome).decode() + "\n")


if __name__ == "__main__":
    asyncio.run(main())
