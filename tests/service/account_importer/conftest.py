"""A real issuer, a real database, and a target in memory that obeys through the real executor."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import msgspec
import pytest

from account_importer.directory import (
    Change,
    Facts,
    Kind,
    TargetError,
    TargetRefusedError,
    UnixUser,
)
from account_importer.executor import Executor
from account_importer.importer import Importer
from account_importer.migrations import migrate
from account_importer.policy import Policy
from account_importer.scim import ScimSource
from account_importer.settings import Settings, SourceSettings
from account_importer.store import Book, Store
from headgate.clock import HeldClock
from testbed.issuer.app import running
from testbed.issuer.core import Issuer
from testbed.issuer.directory import Client, User
from testbed.issuer.settings import IssuerSettings

SECRET = "s3:cret"
POLICY = Policy(
    realm="r",
    kinds=("create", "block", "unblock"),
    uid_first=20000,
    uid_last=29999,
    shells=("/bin/bash",),
)


class KilledError(BaseException):
    """The process ends here, as after kill -9: nothing catches this."""


@dataclass(slots=True)
class Fuse:
    """Kills at the n-th step from now; None never does."""

    left: int | None = None

    def step(self) -> None:
        """A point where the process may be killed."""
        if self.left is None:
            return
        self.left -= 1
        if self.left < 0:
            raise KilledError


@dataclass(slots=True)
class Machine:
    """A target's users and groups, and how often each change was really made."""

    fuse: Fuse = field(default_factory=Fuse)
    users: dict[str, UnixUser] = field(default_factory=dict)
    groups: dict[str, int] = field(default_factory=dict)
    expired: set[str] = field(default_factory=set)
    calls: list[str] = field(default_factory=list)
    broken: set[str] = field(default_factory=set)

    async def carry_out(self, change: Change) -> None:
        """As the unix tools do it: safe to repeat, refusing what is not ours."""
        ours = UnixUser(change.account, change.uid, change.gid, change.mark, change.home)
        if change.account in self.broken:
            raise TargetError(f"{change.account}: no space left")
        self.fuse.step()
        if change.kind == Kind.CREATE:
            if self.groups.setdefault(change.account, change.gid) != change.gid:
                raise TargetError("the group is somebody else's")
            self.fuse.step()
            if change.account not in self.users:
                self.calls.append(f"useradd {change.account}")
                self.users[change.account] = ours
            if self.users[change.account] != ours:
                raise TargetError("the account is somebody else's")
        elif change.kind == Kind.BLOCK:
            self.expired.add(change.account)
        else:
            self.expired.discard(change.account)
        self.fuse.step()


class MachineTarget:
    """The machine behind the executor and its policy, as in production but for the socket."""

    def __init__(self, machine: Machine, policy: Policy = POLICY) -> None:
        self._machine = machine
        self._executor = Executor(policy=policy, tools=machine)

    async def observe(self, names: Iterable[str], ids: Iterable[int]) -> Facts:
        """What is there."""
        del names, ids
        return Facts(dict(self._machine.users), dict(self._machine.groups))

    async def begin(self, plan: bytes, digest: str) -> None:
        """Through the executor."""
        answer = await self._ask(op="begin", plan=plan.decode(), digest=digest)
        if answer["refused"]:
            raise TargetRefusedError(answer["refused"])

    async def carry_out(self, seq: int) -> None:
        """Through the executor."""
        answer = await self._ask(op="do", seq=seq)
        if answer["failed"]:
            raise TargetError(str(answer["failed"]))

    async def _ask(self, **order: object) -> dict[str, list[str]]:
        answer = msgspec.json.decode(await self._executor.obey(msgspec.json.encode(order)))
        assert isinstance(answer, dict)
        return answer


class FusedStore(Store):
    """A store that may be killed before, within and after each of its writing transactions."""

    def __init__(self, url: str, fuse: Fuse) -> None:
        super().__init__(url)
        self._fuse = fuse

    @contextlib.asynccontextmanager
    async def writing(self, realm: str) -> AsyncIterator[Book]:
        """As the store's own."""
        self._fuse.step()
        async with super().writing(realm) as book:
            yield book
            self._fuse.step()
        self._fuse.step()


@dataclass(slots=True)
class Site:
    """Everything of one importer; `importer()` starts a new process, so to say."""

    settings: Settings
    issuer: Issuer
    session: aiohttp.ClientSession
    clock: HeldClock
    machine: Machine
    fuse: Fuse
    stores: list[Store] = field(default_factory=list)
    policy: Policy = POLICY

    def store(self) -> Store:
        """A store on the same file."""
        store = FusedStore(self.settings.database, self.fuse)
        self.stores.append(store)
        return store

    def source(self) -> ScimSource:
        """The SCIM client."""
        return ScimSource(
            settings=self.settings.source, secret=SECRET.encode(), session=self.session
        )

    def importer(self, **changes: object) -> Importer:
        """An importer with these settings changed."""
        settings = msgspec.structs.replace(self.settings, **changes)
        return Importer(
            settings=settings,
            store=self.store(),
            source=self.source(),
            target=MachineTarget(self.machine, self.policy),
            clock=self.clock,
        )

    async def settle(self) -> None:
        """Pull, plan, approve and apply once, without a fault."""
        importer = self.importer()
        await importer.pull()
        found = await importer.plan()
        if found.plan.changes:
            await importer.approve(found.plan.digest, "test")
        await importer.apply()


@pytest.fixture
def clock() -> HeldClock:
    """A clock the test moves."""
    return HeldClock()


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    """A client session."""
    async with aiohttp.ClientSession() as session:
        yield session


@pytest.fixture
async def issuer(clock: HeldClock) -> AsyncIterator[Issuer]:
    """The demo's people in the real issuer."""
    settings = IssuerSettings(
        state_dir="",
        users=(
            User(username="alice", groups=("hpc", "gpu")),
            User(username="bob", groups=("hpc",)),
            User(username="carol", groups=("hpc",)),
            User(username="dave"),
        ),
        clients=(
            Client(
                client_id="importer",
                secret=SECRET,
                grants=("client_credentials",),
                scopes=("scim:read",),
            ),
            Client(
                client_id="blind",
                secret=SECRET,
                grants=("client_credentials",),
                scopes=("profile",),
            ),
        ),
    )
    async with running(settings, clock=clock) as issuer:
        yield issuer


@pytest.fixture
def killed() -> type[BaseException]:
    """What a killed process raises."""
    return KilledError


Reopen = Callable[[Path], Awaitable[Site]]


@pytest.fixture
async def open_site(
    issuer: Issuer, session: aiohttp.ClientSession, clock: HeldClock
) -> AsyncIterator[Reopen]:
    """Opens a site with its database in a folder."""
    opened: list[Site] = []

    async def open_site(folder: Path) -> Site:
        fuse = Fuse()
        settings = Settings(
            realm="r",
            source=SourceSettings(
                issuer=issuer.url,
                client_id="importer",
                client_secret_file="",
                groups_any=("hpc",),
            ),
            database=f"sqlite+aiosqlite:///{folder}/accounts.db",
            audience="http://accounts",
            how_to_ask="Ask the service desk.",
            policy="/none",
        )
        site = Site(settings, issuer, session, clock, Machine(fuse), fuse)
        opened.append(site)
        await migrate(site.store())
        return site

    yield open_site
    for site in opened:
        site.fuse.left = None
        await asyncio.gather(*(store.close() for store in site.stores))


@pytest.fixture
async def site(open_site: Reopen, tmp_path: Path) -> Site:
    """A site with an empty registry."""
    return await open_site(tmp_path)
