"""A running site as its user sees it: asked, entered, disturbed, taken down."""

import contextlib
import fcntl
import os
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

import aiohttp
import msgspec

from headgate.command import Completed, run
from testbed import instances, zabbix
from testbed.components import Component, Status
from testbed.control import Add, Control, ControlError, Down, Show, Signal, Start, Stop, Wait
from testbed.folders import Folder
from testbed.issuer.client import IssuerControl
from testbed.namespace import MARK, entered
from testbed.passwd import Account, account
from testbed.processes import PATH
from testbed.suite import ACCOUNTS, ISSUER
from testbed.waiting import until
from testbed.zabbix import Zabbix

_DOWN_SECONDS = 20.0
_ENTER_SECONDS = 20.0


class Addresses(msgspec.Struct, frozen=True, kw_only=True):
    """Where a client finds the site's parts; kept in the folder for whoever attaches.

    Those of the suite's services are empty on a bare site. `users` are the issuer's. `ports` is
    every port by name, also of what is not running.
    """

    name: str
    state: str
    cluster: str
    realm: str
    slurm_conf: str
    ssh: dict[str, str | int]
    registry: str
    image: str
    venv: str
    issuer: str = ""
    gateway: str = ""
    token_translator: str = ""
    account_importer: str = ""
    frontdoor: dict[str, str | int] = {}
    users: tuple[str, ...] = ()
    zabbix: Zabbix | None = None
    ports: dict[str, int] = {}


class _Plan(msgspec.Struct, frozen=True):
    hash: str
    state: str


class Site:
    """One running site."""

    def __init__(self, folder: Folder, addresses: Addresses) -> None:
        self.folder = folder
        self.addresses = addresses
        self._control = Control(folder.path("control.sock"))
        self._pid = 0

    @classmethod
    def attach(cls, name: str) -> "Site":
        """The live site of that name.

        Raises:
            InstanceError: there is none, or it is not up yet.
        """
        root = instances.find(name)
        if root is None or not (root / "site.json").exists():
            raise instances.InstanceError(f"no site named {name!r} is up")
        document = (root / "site.json").read_bytes()
        return cls(Folder(root), msgspec.json.decode(document, type=Addresses))

    def path(self, *parts: str) -> Path:
        """A place in the site's state folder."""
        return self.folder.path(*parts)

    def account(self, name: str) -> Account:
        """An account of the site.

        Raises:
            NoAccountError: there is none of that name.
        """
        return account(self.path("etc"), name)

    def environment(self, who: Account) -> dict[str, str]:
        """What a login of that account has in its environment."""
        return {
            "PATH": f"{PATH}:{self.addresses.venv}/bin",
            "HOME": who.home,
            "USER": who.name,
            "LOGNAME": who.name,
            "SHELL": who.shell,
            "LANG": "C.UTF-8",
            "SLURM_CONF": self.addresses.slurm_conf,
        }

    async def exec(
        self,
        argv: Sequence[str],
        *,
        user: str = "root",
        timeout: float = 60.0,  # noqa: ASYNC109 - as headgate.command.run has it
        env: Mapping[str, str] | None = None,
        stdin: bytes = b"",
    ) -> Completed:
        """Run a command inside the site as one of its accounts; `env` is added to a login's.

        Raises:
            CommandError: late, or more output than is accepted.
            NoAccountError: the site has no such account.
            ControlError: the site is gone.
        """
        inside = await self.entry(argv, user=user, env=env)
        done = await run(inside, timeout=timeout, stdin=stdin)
        return Completed(tuple(argv), done.status, done.stdout, done.stderr)

    async def entry(
        self, argv: Sequence[str], *, user: str = "root", env: Mapping[str, str] | None = None
    ) -> tuple[str, ...]:
        """The command that, run outside by root, runs `argv` inside as that account.

        Raises:
            NoAccountError: the site has no such account.
            ControlError: the site is gone.
        """
        who = self.account(user)
        return entered(await self._way_in(), who, argv, {**self.environment(who), **(env or {})})

    async def _way_in(self) -> int:
        """The process whose namespaces are the site's, seen to be: outside is the host."""
        if not self._pid:
            pid = await self._control.pid()
            looked = entered(pid, self.account("root"), ("cat", str(MARK)), {"PATH": PATH})
            found = await run(looked, timeout=_ENTER_SECONDS)
            if found.status or found.stdout.decode() != str(self.folder.root):
                raise ControlError(f"process {pid} is not in the site {self.folder.root}")
            self._pid = pid
        return self._pid

    async def slurm(self, *argv: str, user: str = "root") -> str:
        """What a Slurm command prints; numbers, not words, for times; English.

        Raises:
            CommandError: it failed; with its words.
        """
        env = {"LC_ALL": "C", "SLURM_TIME_FORMAT": "%s"}
        done = await self.exec(argv, user=user, env=env)
        return done.checked().stdout.decode()

    async def add(self, *components: Component) -> None:
        """Start more components and wait until they are ready.

        Raises:
            ControlError: one failed; with its last words.
        """
        await self._control.call(Add(components))
        await self._control.call(Wait(tuple(component.name for component in components)))

    async def status(self) -> dict[str, Status]:
        """How the components fare, by name."""
        return {status.name: status for status in await self._control.call(Show())}

    async def start(self, name: str) -> None:
        """Start a component that was stopped or died, and wait until it is ready."""
        await self._control.call(Start(name))

    async def stop(self, name: str, *, grace: float = 10.0) -> None:
        """TERM a component, KILL it after `grace` seconds; returns when it is gone."""
        await self._control.call(Stop(name, grace))

    async def signal(self, name: str, number: signal.Signals) -> None:
        """Send a component a signal (KILL returns when it is gone)."""
        await self._control.call(Signal(name, number))

    async def restart(self, name: str) -> None:
        """Stop a component and start it again."""
        await self.stop(name)
        await self.start(name)

    @contextlib.asynccontextmanager
    async def issuer(self) -> AsyncIterator[IssuerControl]:
        """The issuer's control: tokens, users, keys, faults."""
        secret = self.path("var", ISSUER, "control.secret").read_text(encoding="ascii").strip()
        async with aiohttp.ClientSession() as session:
            yield IssuerControl(session=session, url=self.addresses.issuer, secret=secret)

    async def token(
        self,
        user: str,
        *,
        audience: Sequence[str] = (),
        lifetime: int = 0,
        groups: Sequence[str] | None = None,
    ) -> str:
        """An access token of one of the issuer's users, for all services unless told otherwise.

        `lifetime` in seconds (0: the issuer's default, negative: expired already).
        """
        everything = (self.addresses.gateway, self.addresses.token_translator)
        async with self.issuer() as control:
            return await control.token(
                user, audience=audience or everything, lifetime=lifetime, groups=groups
            )

    async def import_accounts(self) -> None:
        """What the site's administrator does: read the issuer, approve the plan, carry it out.

        Raises:
            CommandError: a step failed; with its words.
        """
        config = str(self.path("conf", f"{ACCOUNTS}.toml"))
        command = (f"{self.addresses.venv}/bin/headgate-accounts", "--config", config)
        (await self.exec((*command, "pull"))).checked()
        plan = msgspec.json.decode(
            (await self.exec((*command, "plan", "--json"))).checked().stdout, type=_Plan
        )
        if plan.state == "proposed":
            (await self.exec((*command, "approve", plan.hash))).checked()
        (await self.exec((*command, "apply"))).checked()

    async def start_zabbix(self) -> Zabbix:
        """Start a Zabbix server, if there is none yet; where it is.

        Raises:
            InstanceError: its packages are not installed.
            ControlError: it did not get ready; with its last words.
        """
        if self.addresses.zabbix is None:
            await self.add(*await zabbix.prepare(self.folder, self.addresses.ports))
            started = zabbix.address(self.addresses.ports)
            self.addresses = msgspec.structs.replace(self.addresses, zabbix=started)
            self.publish()
        return zabbix.address(self.addresses.ports)

    def publish(self) -> None:
        """Write the addresses where `attach` reads them."""
        self.folder.write("site.json", msgspec.json.encode(self.addresses))

    async def down(self) -> None:
        """End the site; returns when no process and no file of it is left."""
        await take_down(self.folder.root)


async def take_down(root: Path) -> None:
    """End the site in that folder, up or half up; no process and no file of it is left.

    Raises:
        ControlError: it has processes, but nobody who could end them.
        TimeoutError: it does not end, not even killed.
    """
    control = Control(root / "control.sock")
    lock = os.open(root / "lock", os.O_RDWR | os.O_CLOEXEC)
    try:
        pid = await control.pid()
        try:
            await control.call(Down(), seconds=_DOWN_SECONDS)
            await until(lambda: _lockable(lock), seconds=_DOWN_SECONDS)
        except (ControlError, TimeoutError):
            # With its supervisor, every process of a site ends.
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            await until(lambda: _lockable(lock), seconds=_DOWN_SECONDS)
    finally:
        os.close(lock)
    instances.sweep()


def _lockable(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
