"""The services under the rights of their units, on the real site: they need no more than those.

No service manager runs here. What of a unit the kernel can be told by hand is: its user, no
capability but those that it names, nothing written but where it says, no homes, no network where
it has none. Which system calls and sockets a service makes is looked at while it works.
"""

import re
import shlex
import shutil
import subprocess
from functools import cache
from pathlib import Path

import aiohttp
import asyncssh
import pytest

from testbed.caller import Caller
from testbed.components import Accepts, Answers, Component, Ends, Greets, Probe
from testbed.site import Site
from testbed.suite import MODULES

pytestmark = pytest.mark.site

UNITS = Path(__file__).resolve().parents[2] / "packaging" / "systemd"
CALL = re.compile(r"^\d+ +([a-z0-9_]+)\((.*)")

BOX = """\
#!/bin/sh
# A unit's lines about files, before the user is changed: everything is read-only but some folders.
set -eu
for folder in {writable}; do mount --bind "$folder" "$folder"; done
for place in $(awk '{{ print $5 }}' /proc/self/mountinfo); do
    case " {writable} /proc /dev " in *" $place "*) continue ;; esac
    case $place in /proc/* | /dev/*) continue ;; esac
    mount -o remount,bind,ro "$place" 2>/dev/null || [ ! -w "$place" ] || exit 1
done
mount -t tmpfs -o mode=1777 tmpfs /tmp
{hidden}
exec strace -f -qq -o {trace} -e trace=all -e signal=none \\
    setpriv {identity} --no-new-privs --inh-caps=-all --bounding-set={bounding} \\
    {command}
"""


class Unit:
    """One of the units, as it is shipped."""

    def __init__(self, name: str) -> None:
        self.name = name
        text = (UNITS / f"{name}.service").read_text(encoding="utf-8")
        self._lines = [line.partition("=") for line in text.splitlines() if "=" in line]

    def all(self, key: str) -> list[str]:
        """What is said under a key, word by word."""
        return [word for name, _, value in self._lines if name == key for word in value.split()]

    def says(self, key: str, value: str) -> bool:
        """Whether that is a line of it."""
        return (key, "=", value) in self._lines

    @property
    def user(self) -> str:
        """Whom it runs as."""
        return self.all("User")[0]

    def command(self, site: Site) -> list[str]:
        """Its command with the site's own settings."""
        program, *words = self.all("ExecStart")
        config = words.index("--config") + 1
        service = program.rpartition("/")[2]
        words[config] = str(site.path("conf", f"{service}.toml"))
        return [f"{site.addresses.venv}/bin/python", "-P", "-m", MODULES[service], *words]

    def writable(self, site: Site) -> list[str]:
        """The folders that it may write, where the site has them."""
        places = {
            "/run/headgate-signer": str(site.path("var", "signer")),
            "/etc": f"/etc {site.path('conf')}",
            "/var/lib/headgate-accounts": str(site.path("var", "headgate-accounts")),
        }
        said = [word for word in self.all("ReadWritePaths") if not word.startswith("-")]
        state = [str(site.path("var", name)) for name in self.all("StateDirectory")]
        return [places.get(word, word) for word in said] + state

    def allowed_calls(self) -> frozenset[str]:
        """The system calls that its filter lets through."""
        allowed: set[str] = set()
        for name, _, value in self._lines:
            if name == "SystemCallFilter":
                words = value.removeprefix("~").split()
                calls = {call for word in words for call in group(word)}
                allowed = allowed - calls if value.startswith("~") else allowed | calls
        return frozenset(allowed | group("@default"))


@cache
def group(name: str) -> frozenset[str]:
    """The system calls of a group (systemd.exec(5)), groups within it included."""
    if not name.startswith("@"):
        return frozenset({name})
    argv = ["systemd-analyze", "syscall-filter", "--no-pager", name]
    done = subprocess.run(argv, check=True, capture_output=True, text=True, timeout=30)
    words = [line.split("#")[0].strip() for line in done.stdout.splitlines()[1:]]
    return frozenset().union(*(group(word) for word in words if word))


def boxed(site: Site, unit: Unit, ready: Probe, more: tuple[str, ...] = ()) -> Component:
    """The unit's command under its rights, as a component of the site."""
    name = f"boxed-{unit.name}"
    user = unit.user
    identity = "--reuid 0 --regid 0 --clear-groups"
    if user != "root":
        identity = f"--reuid {user} --regid {user} --init-groups"
    kept = [f"+{word.removeprefix('CAP_').lower()}" for word in unit.all("CapabilityBoundingSet")]
    home = unit.says("ProtectHome", "yes")
    script = BOX.format(
        writable=" ".join([*unit.writable(site), str(site.path("trace"))]),
        hidden="mount -t tmpfs -o ro tmpfs /home; mount -t tmpfs -o ro tmpfs /root" if home else "",
        trace=site.path("trace", name),
        identity=identity,
        bounding=",".join(["-all", *kept]),
        command=shlex.join([*unit.command(site), *more]),
    )
    path = site.folder.write(f"libexec/{name}", script, mode=0o755)
    network = ("--net",) if unit.says("PrivateNetwork", "yes") else ()
    return Component(
        name=name,
        argv=("unshare", "--mount", *network, str(path)),
        ready=ready,
        whole_group=True,  # strace is between the service and who stops it
    )


def made_calls(site: Site, unit: Unit) -> list[tuple[str, str]]:
    """The calls of the service itself: after setpriv has become its Python."""
    text = site.path("trace", f"boxed-{unit.name}").read_text(encoding="utf-8", errors="replace")
    begun = text.index("\n", text.index("bin/python"))
    found = (CALL.match(line) for line in text[begun:].splitlines())
    return [(match[1], match[2]) for match in found if match]


def require_within(site: Site, unit: Unit) -> None:
    """Every call was one that the unit allows, and every socket of a family that it allows."""
    calls = made_calls(site, unit)
    assert len(calls) > 1000
    # A call that does not exist fails by itself; these are tried by the interpreter and its loader.
    assert {name for name, _ in calls} - unit.allowed_calls() - {"exit", "unknown"} == set()
    families = {words.split(",")[0] for name, words in calls if name == "socket"}
    # The C library looks for addresses of this machine; refused, it takes it to have both kinds.
    assert families - set(unit.all("RestrictAddressFamilies")) <= {"AF_NETLINK"}
    mapped = [words for name, words in calls if name in {"mmap", "mprotect"}]
    assert not [words for words in mapped if "PROT_WRITE" in words and "PROT_EXEC" in words]


@pytest.fixture(scope="module")
async def boxes(site: Site) -> Path:
    """The folder of the traces."""
    assert shutil.which("strace"), "package strace"
    await site.import_accounts()
    return site.folder.make("trace", mode=0o777)


async def everything_works(site: Site) -> None:
    """Alice's job runs, and she comes in by the front door: all services have a part in it."""
    token = await site.token("alice")
    async with aiohttp.ClientSession() as http:
        caller = Caller(http, site.addresses.gateway, token)
        job = await caller.run("echo hello")
        assert await caller.output(job) == "hello\n"
    door = site.addresses.frontdoor
    async with asyncssh.connect(
        str(door["host"]),
        int(door["port"]),
        username="site",
        password=token,
        known_hosts=str(door["known_hosts"]),
        config=None,
        client_keys=None,
        agent_path=None,
    ) as connection:
        assert (await connection.run("id -un")).stdout == "alice\n"


def ready_of(site: Site, component: str) -> Probe:
    """How one sees that this service is ready."""
    ports = site.addresses.ports
    match component:
        case "signer":
            return Accepts(str(site.path("var", "signer", "socket")))
        case "frontdoor":
            return Greets(ports["frontdoor"], "SSH-2.0-")
        case _:
            return Answers(ports[component], "/livez")


@pytest.mark.parametrize("component", ["signer", "tokens", "accounts", "frontdoor", "gateway"])
async def test_service_needs_no_more_than_its_unit_gives(site: Site, boxes: Path, component: str):
    """Under its unit's rights a service does its work, and asks for nothing beyond them."""
    del boxes
    unit = Unit(f"headgate-{component}")
    await site.stop(component)
    try:
        await site.add(boxed(site, unit, ready_of(site, component)))
        await everything_works(site)
    finally:
        await site.stop(f"boxed-{unit.name}")
        await site.start(component)
    require_within(site, unit)


async def run_once(site: Site, unit: Unit, *more: str) -> None:
    """A turn of a unit that has a timer."""
    await site.add(boxed(site, unit, Ends(), more))
    require_within(site, unit)


@pytest.mark.parametrize(
    ("name", "more"),
    [("signer-retain", ()), ("tokens-retain", ()), ("info", ()), ("probe", ("--stdout",))],
)
async def test_turn_needs_no_more_than_its_unit_gives(
    site: Site, boxes: Path, name: str, more: tuple[str, ...]
):
    """So do the commands that timers start."""
    del boxes
    await run_once(site, Unit(f"headgate-{name}"), *more)


async def test_accounts_are_made_with_the_rights_of_the_unit(site: Site, boxes: Path):
    """The one part that is root makes an account and its home, with seven capabilities."""
    del boxes
    async with site.issuer() as control:
        await control.put_user("newcomer", groups=["hpc"])
    config = str(site.path("conf", "headgate-accounts.toml"))
    command = (f"{site.addresses.venv}/bin/headgate-accounts", "--config", config)
    for verb in ("pull", "plan"):
        (await site.exec((*command, verb))).checked()
    await run_once(site, Unit("headgate-accounts-apply"))
    done = (await site.exec(("stat", "-c", "%U %a", "/home/newcomer"))).checked()
    assert done.stdout == b"newcomer 700\n"
