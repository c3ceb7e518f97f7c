"""A throw-away PostgreSQL server, for tests of everything that replicas share."""

import asyncio
import contextlib
import os
import pwd
import secrets
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import psycopg
from psycopg import sql

from headgate.command import run
from testbed.instances import InstanceError

USER = "postgres"
_OWNER = "headgate"
_SECONDS = 60.0
_READY = b"database system is ready to accept connections"
_PATTERN = "/usr/lib/postgresql/*/bin"
"""Where the distribution keeps the server's programs: not on PATH."""

# Nothing here has to survive a power cut; a killed server loses nothing all the same.
_OPTIONS = (
    *("-c", "listen_addresses="),
    *("-c", "fsync=off"),
    *("-c", "full_page_writes=off"),
    *("-c", "shared_buffers=32MB"),
    *("-c", "max_connections=200"),
    *("-c", "lc_messages=C"),
)


@dataclass(slots=True)
class Postgresql:
    """A running server on a unix socket; each test takes a database of its own."""

    folder: Path
    programs: Path
    password: str
    _process: asyncio.subprocess.Process | None = None
    _log: asyncio.Task[None] | None = None
    _databases: int = 0

    @property
    def pid(self) -> int:
        """The server's first process; raises `InstanceError` while there is none."""
        if self._process is None:
            raise InstanceError("PostgreSQL does not run")
        return self._process.pid

    def url(self, database: str) -> str:
        """A SQLAlchemy URL; its driver is psycopg, for blocking and asyncio engines alike."""
        place = quote(str(self.folder / "socket"), safe="")
        return f"postgresql+psycopg://{_OWNER}:{self.password}@/{database}?host={place}"

    def create_database(self) -> str:
        """A fresh, empty database; its URL."""
        self._databases += 1
        name = f"test_{self._databases}"
        with psycopg.connect(
            host=str(self.folder / "socket"),
            dbname="postgres",
            user=_OWNER,
            password=self.password,
            autocommit=True,
        ) as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        return self.url(name)

    async def start(self) -> None:
        """Start the server and return once it accepts connections.

        Raises:
            InstanceError: it ended, or took too long; its own words are in `log` in the folder.
        """
        argv = (
            *_as_user(),
            str(self.programs / "postgres"),
            *("-D", str(self.folder / "data"), "-k", str(self.folder / "socket")),
            *_OPTIONS,
        )
        self._process = await asyncio.create_subprocess_exec(
            *argv, cwd="/", stderr=asyncio.subprocess.PIPE, start_new_session=True
        )
        ready = asyncio.Event()
        self._log = asyncio.create_task(self._follow(self._process, ready))
        try:
            async with asyncio.timeout(_SECONDS):
                await ready.wait()
        except TimeoutError as error:
            await self.kill()
            raise InstanceError(f"PostgreSQL is not ready after {_SECONDS:g} s") from error
        if self._process.returncode is not None:
            raise InstanceError(f"PostgreSQL ended: {self.words()}")

    async def kill(self) -> None:
        """End it by SIGKILL, as a power cut would; what was committed stays."""
        await self._end(signal.SIGKILL)

    async def stop(self) -> None:
        """End it without tidying up: nothing of it is kept (SIGQUIT: immediate shutdown)."""
        await self._end(signal.SIGQUIT)

    def words(self) -> str:
        """The end of what the server said."""
        return (self.folder / "log").read_text(errors="replace")[-2000:]

    async def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if process.returncode is None:
            process.send_signal(how)
        await process.wait()
        if self._log is not None:
            await self._log

    async def _follow(self, process: asyncio.subprocess.Process, ready: asyncio.Event) -> None:
        if process.stderr is None:
            raise InstanceError("PostgreSQL came without a pipe")
        with (self.folder / "log").open("ab") as log:
            async for line in process.stderr:
                log.write(line)
                log.flush()
                if _READY in line:
                    ready.set()
        await process.wait()
        ready.set()


@contextlib.asynccontextmanager
async def postgresql() -> AsyncIterator[Postgresql]:
    """A server in a temporary folder; as root it runs as the distribution's user `postgres`.

    Raises:
        InstanceError: its programs are missing, or it does not start.
    """
    folder = Path(tempfile.mkdtemp(prefix="headgate-pg-"))
    try:
        server = Postgresql(folder, _programs(), secrets.token_hex(16))
        await _prepare(server)
        await server.start()
        try:
            yield server
        finally:
            await server.stop()
    finally:
        shutil.rmtree(folder)


async def _prepare(server: Postgresql) -> None:
    # Whoever knows the password may connect, of whatever uid: services of a site have their own.
    server.folder.chmod(0o755)
    for name, mode in (("data", 0o700), ("socket", 0o755)):
        place = server.folder / name
        place.mkdir()
        place.chmod(mode)
        if os.geteuid() == 0:
            shutil.chown(place, USER, USER)
    password = server.folder / "password"
    password.write_text(server.password)
    password.chmod(0o600)
    if os.geteuid() == 0:
        shutil.chown(password, USER)
    initialise = (
        *_as_user(),
        str(server.programs / "initdb"),
        *("-D", str(server.folder / "data"), "-U", _OWNER, "-E", "UTF8", "--locale=C"),
        *("--auth=scram-sha-256", f"--pwfile={password}", "--no-sync", "--no-instructions"),
    )
    (await run(initialise, timeout=_SECONDS)).checked()
    password.unlink()


def _programs() -> Path:
    found = sorted(Path("/").glob(_PATTERN.lstrip("/")), key=lambda place: place.parent.name)
    for place in reversed(found):
        if (place / "initdb").exists():
            return place
    on_path = shutil.which("initdb")
    if on_path is None:
        raise InstanceError("PostgreSQL is missing: apt-get install postgresql")
    return Path(on_path).resolve().parent


def _as_user() -> Sequence[str]:
    """What makes a command run as somebody PostgreSQL accepts: it refuses root."""
    if os.geteuid() != 0:
        return ()
    try:
        user = pwd.getpwnam(USER)
    except KeyError as error:
        raise InstanceError(f"there is no user {USER}: apt-get install postgresql") from error
    ids = (f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}")
    return ("setpriv", *ids, "--init-groups", "--")
