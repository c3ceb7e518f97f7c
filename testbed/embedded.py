"""The embedded site: the whole suite for one uid, without root, Slurm or packages.

It differs from a real site in three constructor calls of the gateway: sessions are child
processes, the cluster is a simulated one, the issuer is the development issuer. All jobs run as
whoever started it, the signer has no uid of its own, and the importer only maps. It listens on the
loopback and trusts no other issuer.
"""

import asyncio
import contextlib
import os
import pwd
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from pathlib import Path

import aiohttp
import msgspec

from headgate import logs
from headgate.command import CommandError, run
from headgate.settings import command_environment
from headgate.slurm.memory.process import SimulatedCluster
from testbed import suite
from testbed.components import Component, Status
from testbed.control import (
    Add,
    Control,
    Down,
    Reply,
    Request,
    Show,
    Signal,
    Start,
    Stop,
    Wait,
    answering,
)
from testbed.issuer.client import IssuerControl
from testbed.services import prepare
from testbed.supervisor import Supervisor, lifeline
from testbed.venv import ensure_venv, repository
from testbed.waiting import until

CLUSTER = "embedded"
REALM = "embedded"
SLURM = "cluster"
"""The simulated cluster, as `signal`, `stop` and `start` call it."""
NOBODY = "nobody"
_UP_SECONDS = 60.0
_COMMAND_SECONDS = 60.0
_STOP_SECONDS = 5.0

Answer = Callable[[Request], Awaitable[Reply]]

SAID_AT_START = """\
This is the embedded site: no Slurm and no other users, for trying the interfaces out.
  - all jobs run as {user}, one uid: nothing keeps users apart
  - the signer shares that uid: its key is not protected from the other services
  - the importer makes no accounts: everybody is mapped to {user}
"""


class OwnFiles:
    """A folder whose files are all ours: owners are a matter of sites with more than one uid."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def path(self, *parts: str) -> Path:
        """A place in the folder."""
        return self.root.joinpath(*parts)

    def make(self, name: str, *, owner: str = "root", mode: int = 0o755) -> Path:
        """A folder."""
        del owner
        path = self.root / name
        path.mkdir(parents=True, exist_ok=True)
        path.chmod(mode)
        return path

    def write(
        self,
        name: str,
        content: str | bytes,
        *,
        owner: str = "root",
        group: str = "",
        mode: int = 0o644,
    ) -> Path:
        """A file; never open to others than `mode` says."""
        del owner, group
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        path.chmod(mode)
        return path


class Addresses(msgspec.Struct, frozen=True, kw_only=True):
    """Where a client finds the site's parts; as the real site's, without what is not here."""

    state: str
    cluster: str
    realm: str
    issuer: str
    gateway: str
    token_translator: str
    account_importer: str
    users: tuple[str, ...]


class EmbeddedSite:
    """One running embedded site."""

    def __init__(
        self, files: OwnFiles, addresses: Addresses, user: str, python: Sequence[str]
    ) -> None:
        self.files = files
        self.addresses = addresses
        self.user = user
        self._python = python
        self._control = Control(files.path("control.sock"))

    def path(self, *parts: str) -> Path:
        """A place in the site's folder."""
        return self.files.path(*parts)

    async def token(
        self,
        user: str,
        *,
        audience: Iterable[str] = (),
        lifetime: int = 0,
        groups: Iterable[str] | None = None,
    ) -> str:
        """A user's access token, for all services unless an audience is named."""
        everything = (self.addresses.gateway, self.addresses.token_translator)
        async with self.issuer() as control:
            return await control.token(
                user, audience=list(audience) or everything, lifetime=lifetime, groups=groups
            )

    @contextlib.asynccontextmanager
    async def issuer(self) -> AsyncIterator[IssuerControl]:
        """The issuer's control routes."""
        secret = self.path("var", suite.ISSUER, "control.secret").read_text(encoding="ascii")
        async with aiohttp.ClientSession() as session:
            yield IssuerControl(session=session, url=self.addresses.issuer, secret=secret.strip())

    async def accounts(self, *verb: str) -> str:
        """What `headgate-accounts` prints for a verb.

        Raises:
            CommandError: it failed; with its words.
        """
        config = str(self.path("conf", f"{suite.ACCOUNTS}.toml"))
        argv = self.command(suite.ACCOUNTS, "--config", config, *verb)
        done = await run(argv, timeout=_COMMAND_SECONDS, env=command_environment())
        if done.status:
            words = done.stderr.decode(errors="replace").strip()
            raise CommandError(f"headgate-accounts {verb[0]}: {words}")
        return done.stdout.decode()

    def command(self, program: str, *arguments: str) -> tuple[str, ...]:
        """The argv that runs a command of the suite, or of the simulated cluster, as the site."""
        *whom, python, isolated = self._python
        if program in suite.MODULES:
            return (*whom, python, isolated, "-m", suite.MODULES[program], *arguments)
        return (*whom, str(self.path("cluster", "bin", program)), *arguments)

    async def import_accounts(self) -> None:
        """Read the source and link everybody who is eligible.

        Raises:
            CommandError: a step failed; with its words.
        """
        await self.accounts("pull")
        plan = msgspec.json.decode(await self.accounts("plan", "--json"))
        if plan["state"] == "proposed":
            await self.accounts("approve", plan["hash"], "--by", "testbed")
        await self.accounts("apply")

    async def status(self) -> dict[str, Status]:
        """How the services fare, by name."""
        return {status.name: status for status in await self._control.call(Show())}

    async def add(self, *components: Component) -> None:
        """Start services and wait until they are ready.

        Raises:
            ControlError: one failed; with its last words.
        """
        await self._control.call(Add(components))
        await self._control.call(Wait(()))

    async def stop(self, name: str) -> None:
        """End one service."""
        await self._control.call(Stop(name, _STOP_SECONDS))

    async def signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal to one service; after KILL it is gone when this returns."""
        await self._control.call(Signal(name, number))

    async def start(self, name: str) -> None:
        """Start a service that was ended; it is ready when this returns."""
        await self._control.call(Start(name))

    async def down(self) -> None:
        """End the site."""
        await self._control.call(Down())


@contextlib.asynccontextmanager
async def embedded(*, quick: bool = False) -> AsyncIterator[EmbeddedSite]:
    """An embedded site while the context is open; nothing of it is left afterwards.

    It runs as whoever we are, but never as root: root's own is started as nobody. `quick`: the
    gateway looks five times a second, for tests.

    Raises:
        ControlError: a service did not get ready; with its last words.
    """
    root = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="headgate-"))
    files = OwnFiles(root)
    process: asyncio.subprocess.Process | None = None
    try:
        user, command = await _whom(root)
        services = _services(files, user, command, quick=quick)
        components = prepare(services)
        if os.geteuid() == 0:
            await _give(root, user)
        process = await asyncio.create_subprocess_exec(
            *(*command, "-m", "testbed.embedded", str(root)),
            stdin=asyncio.subprocess.PIPE,
            env=command_environment(),
            cwd="/",
            start_new_session=True,
        )
        control = files.path("control.sock")
        ended = process
        await until(lambda: control.exists() or ended.returncode is not None, seconds=_UP_SECONDS)
        site = EmbeddedSite(files, _shown(root, services.addresses), user.pw_name, command)
        await site.add(*(_owned(component) for component in components))
        yield site
    finally:
        if process is not None and process.stdin is not None:
            process.stdin.close()  # the owner's end of its life
            await process.wait()
        await asyncio.to_thread(shutil.rmtree, root, ignore_errors=True)


async def _whom(root: Path) -> tuple[pwd.struct_passwd, tuple[str, ...]]:
    """Whom the site runs as, and how Python is started as them."""
    if os.geteuid() != 0:
        return pwd.getpwuid(os.geteuid()), (sys.executable, "-P")
    user = pwd.getpwnam(NOBODY)
    # Root's own interpreter may lie where nobody else may look.
    python = await ensure_venv(repository()) / "bin" / "python"
    root.chmod(0o755)
    identity = (f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups")
    return user, ("setpriv", *identity, "--", str(python), "-P")


def _services(
    files: OwnFiles, user: pwd.struct_passwd, command: Sequence[str], *, quick: bool
) -> suite.Suite:
    root = files.root
    files.make("log")
    home = files.make("home")
    session = repository() / "gateway" / "session" / "headgate_session.py"
    return suite.Suite(
        files=files,
        addresses=suite.Addresses.on(*_free_ports(4)),
        python=Path(command[-2]),
        realm=REALM,
        session_program=files.write("libexec/headgate-session", session.read_bytes(), mode=0o755),
        cluster={
            "name": CLUSTER,
            "directory": f"{root}/jobs/{{id}}",
            "poll_seconds": 0.2 if quick else 1.0,
            "settle_seconds": 2.0 if quick else 10.0,
            "memory": {"socket": f"{root}/cluster/socket"},
            "local": {"path": f"{root}/cluster/bin", "environment": {"HOME": str(home)}},
        },
        mapping={
            "account": user.pw_name,
            "uid": user.pw_uid,
            "gid": user.pw_gid,
            "home": str(home),
        },
        separate=False,
        uid=user.pw_uid,
    )


def _owned(component: Component) -> Component:
    """A service that the kernel ends when its supervisor is killed."""
    argv = ("setpriv", "--pdeathsig", "KILL", "--", *component.argv)
    return msgspec.structs.replace(component, argv=argv)


async def _give(root: Path, user: pwd.struct_passwd) -> None:
    argv = ("chown", "--recursive", f"{user.pw_uid}:{user.pw_gid}", str(root))
    (await run(argv, timeout=_COMMAND_SECONDS)).checked()


def _shown(root: Path, addresses: suite.Addresses) -> Addresses:
    return Addresses(
        state=str(root),
        cluster=CLUSTER,
        realm=REALM,
        issuer=addresses.issuer,
        gateway=addresses.gateway,
        token_translator=addresses.tokens,
        account_importer=addresses.accounts,
        users=tuple(str(person["username"]) for person in suite.PEOPLE),
    )


def _free_ports(count: int) -> list[int]:
    """Ports nobody listens on now, all different because they are held together."""
    with contextlib.ExitStack() as stack:
        listeners = [stack.enter_context(socket.socket()) for _ in range(count)]
        for listener in listeners:
            listener.bind(("127.0.0.1", 0))
        return [int(listener.getsockname()[1]) for listener in listeners]


class DisturbedCluster:
    """The simulated cluster as one more component of the site: ended, stopped, started again."""

    def __init__(self, cluster: SimulatedCluster, others: Answer) -> None:
        self._cluster = cluster
        self._others = others

    async def handle(self, request: Request) -> Reply:
        """Do what concerns the cluster; all else is for the others."""
        match request:
            case Signal(name, signal.SIGKILL) if name == SLURM:
                await self._cluster.kill()
            case Signal(name, number) if name == SLURM:
                os.kill(self._cluster.pid, number)
            case Stop(name, _) if name == SLURM:
                os.kill(self._cluster.pid, signal.SIGCONT)
                await self._cluster.stop()
            case Start(name) if name == SLURM:
                await self._cluster.start()
            case _:
                return await self._others(request)
        return await self._others(Show())


async def supervise(root: Path) -> None:
    """Be the site in `root` until its owner is gone; afterwards nothing of it runs."""
    cluster = SimulatedCluster(root / "cluster")
    supervisor = Supervisor(root)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, supervisor.over.set)
    watcher = asyncio.create_task(lifeline(supervisor.over))
    await cluster.start()
    try:
        disturbed = DisturbedCluster(cluster, supervisor.handle)
        server = await answering(root / "control.sock", disturbed.handle)
        await supervisor.over.wait()
        server.close()
    finally:
        watcher.cancel()
        await supervisor.stop_all(_STOP_SECONDS)
        await cluster.stop()


def main() -> None:
    """`python -m testbed.embedded FOLDER`, with the owner at the other end of standard input."""
    logs.configure("warning", json=True)
    asyncio.run(supervise(Path(sys.argv[1])))


if __name__ == "__main__":
    main()
