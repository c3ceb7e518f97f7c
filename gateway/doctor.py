"""Looks whether jobs could run on a cluster, and says what to do where they could not."""

import asyncio
import contextlib
import re
import secrets
import uuid
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from gateway.clusters import Cluster
from gateway.jobs import Attributes, JobFiles, JobSpec, Sealed
from gateway.runner.plain import PlainRuntime
from gateway.runner.script import seal
from gateway.sessions import files
from gateway.sessions.credentials import Certify, fresh
from gateway.sessions.files import Place
from gateway.sessions.pool import Connector
from gateway.sessions.session import (
    NotAdmitted,
    SessionLost,
    SessionRefused,
    SessionUnavailable,
    UserSession,
)
from gateway.translator import Translator
from headgate.clock import Clock
from headgate.problems import Problem
from headgate.registry import Account
from headgate.slurm.model import ClusterUnavailable

RELEASE = 2
"""The session program's, that this gateway needs."""
OLDEST_PYTHON = (3, 6)
PENALTIES_SINCE = (9, 8)
WARN_SECONDS, FAIL_SECONDS = 2.0, 30.0
"""Clocks that differ by more make logs hard to read; by more still, certificates are refused."""
SETTLE_SECONDS = 10.0
"""How long a job that was just submitted may take to be seen in the queue."""
LOOK_SECONDS = 0.5


class Level(StrEnum):
    """How grave a finding is."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that was looked at; `todo` is for the administrator, where there is anything."""

    cluster: str
    check: str
    level: Level
    words: str
    todo: str = ""


class _Ping(msgspec.Struct, frozen=True):
    python: str
    time: float | None = None
    release: int = 1
    path: str = ""
    unsafe: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Patient:
    """As whom the cluster is tried: an account, and the token of the one whose it is."""

    account: Account
    token: str


@dataclass(slots=True)
class Doctor:
    """Looks at one cluster; `findings` is what was found so far.

    Without a patient nobody logs in. With one, a short job of theirs is submitted, and its
    directory removed again. `wait` is how many seconds it may stay in the queue.
    """

    cluster: Cluster
    connector: Connector
    translator: Translator
    clock: Clock
    wait: float
    findings: list[Finding] = field(default_factory=list)

    async def look(self, patient: Patient | None) -> None:
        """Everything, in the order in which one thing needs the other."""
        await self.slurm()
        await self.nodes()
        if patient is None:
            words = "no login and no job was tried"
            self._warn("login", words, "give a user's token: --token-file FILE")
            return
        certify = self.translator.with_token(patient.token, self.cluster.settings.realm)
        async with self._session(patient, certify) as session:
            if session is None:
                return
            await self.program(session)
            await self.handshakes(patient, certify)
            await self.job(session, patient)

    async def slurm(self) -> None:
        """The gateway's own way to Slurm."""
        try:
            configuration = await self.cluster.reader.configuration()
        except ClusterUnavailable as error:
            self._fail("slurm", str(error), "squeue has to work for the gateway's user; slurm_conf")
        else:
            self._ok("slurm", f"Slurm {configuration.version} answers")

    async def nodes(self) -> None:
        """Whether login nodes greet, and what their sshd is."""
        for node, banner, fault in await self.connector.greetings():
            check = f"login node {node}"
            if fault:
                self._fail(check, fault, "sshd has to listen there, and let this host in")
                continue
            found = re.search(r"OpenSSH_(\d+)\.(\d+)", banner)
            version = (int(found[1]), int(found[2])) if found else (0, 0)
            if version >= PENALTIES_SINCE:
                self._warn(
                    check,
                    f"{banner} punishes addresses for failed logins",
                    "sshd_config: PerSourcePenaltyExemptList with this gateway's address",
                )
            else:
                self._ok(check, banner)

    @contextlib.asynccontextmanager
    async def _session(
        self, patient: Patient, certify: Certify
    ) -> AsyncIterator[UserSession | None]:
        session = await self._login(patient, certify)
        try:
            yield session
        except (SessionLost, SessionUnavailable) as error:
            self._fail("session", str(error), "see sshd's log and the node's load")
        except SessionRefused as refusal:
            self._fail("session", f"it refuses: {refusal}", "see the words of the refusal")
        finally:
            if session is not None:
                await session.close()

    async def _login(self, patient: Patient, certify: Certify) -> UserSession | None:
        account = patient.account.account
        try:
            credentials = await fresh(certify)
        except SessionUnavailable as error:
            self._fail("certificate", str(error), "see the token translator's log and its rules")
            return None
        self._ok("certificate", f"until {credentials.valid_before:%H:%M:%S} UTC")
        try:
            session = await self.connector.connect(account, credentials)
        except NotAdmitted as error:
            todo = "headgate-tokens node-setup --check on that node says why"
            self._fail("login", str(error), todo)
            return None
        except SessionUnavailable as error:
            todo = "the session program has to be where session_program of the translator says"
            self._fail("login", str(error), f"{todo}; MaxSessions must not be 0")
            return None
        self._ok("login", f"{account} gets a session")
        return session

    async def program(self, session: UserSession) -> None:
        """The session program, its interpreter, the node's clock, Slurm's commands."""
        before = self.clock.now().timestamp()
        reply, _ = await session.request({"op": "ping"})
        here = (before + self.clock.now().timestamp()) / 2
        ping = msgspec.convert(reply, _Ping)
        if ping.release < RELEASE:
            words = f"release {ping.release}; this gateway needs {RELEASE}"
            self._fail("session program", words, "install the one of this gateway's release")
        elif ping.unsafe and self.cluster.settings.local is None:
            words = f"others than root may change {', '.join(ping.unsafe)}"
            todo = "root's, mode 0755, as every folder above it"
            self._fail("session program", f"{ping.path}: {words}", todo)
        else:
            self._ok("session program", f"{ping.path}, release {ping.release}")
        version = tuple(int(part) for part in re.findall(r"\d+", ping.python)[:2])
        if version < OLDEST_PYTHON:
            self._fail("interpreter", f"Python {ping.python}", "it needs Python 3.6 at least")
        else:
            self._ok("interpreter", f"Python {ping.python}")
        self._clocks(here, ping)
        there = {path.rpartition("/")[2] for path in ping.commands}
        if missing := {"sbatch", "scancel"} - there:
            words = f"{' and '.join(sorted(missing))} not in the session's PATH"
            self._fail("commands", words, "sshd_config: SetEnv PATH=… with Slurm's folder")
        else:
            self._ok("commands", ", ".join(sorted(ping.commands)))

    def _clocks(self, here: float, ping: _Ping) -> None:
        if ping.time is None:
            return
        seconds = ping.time - here
        words = f"the login node's is {seconds:+.1f} s off ours"
        todo = "let both follow the same time servers (chrony)"
        if abs(seconds) > FAIL_SECONDS:
            self._fail("clock", words, todo)
        elif abs(seconds) > WARN_SECONDS:
            self._warn("clock", words, todo)
        else:
            self._ok("clock", words)

    async def handshakes(self, patient: Patient, certify: Certify) -> None:
        """As many logins at a time as there may be (MaxStartups)."""
        ssh = self.cluster.settings.ssh
        if ssh is None:
            return
        keys = [await fresh(certify) for _ in range(ssh.handshakes)]
        account = patient.account.account
        came = await asyncio.gather(
            *(self.connector.connect(account, key) for key in keys), return_exceptions=True
        )
        opened = [one for one in came if not isinstance(one, BaseException)]
        await asyncio.gather(*(session.close() for session in opened))
        words = f"{len(opened)} of {ssh.handshakes} logins at a time"
        if len(opened) == ssh.handshakes:
            self._ok("handshakes", words)
            return
        why = next(str(one) for one in came if isinstance(one, BaseException))
        todo = "sshd_config: MaxStartups above `handshakes` of gateway.toml, all replicas'"
        self._fail("handshakes", f"{words}: {why}", todo)

    async def job(self, session: UserSession, patient: Patient) -> None:
        """A job of the user's: the shared directory, the marker, exactly one start."""
        word = secrets.token_hex(8)
        sealed = self._sealed(patient.account, word)
        place = Place(sealed.row, sealed.directory)
        try:
            await files.write(
                session, place, "word", word.encode(), upload=sealed.row, offset=0, last=True
            )
        except SessionRefused as refusal:
            todo = "`directory` of gateway.toml: where users may make folders, seen by all nodes"
            self._fail("directory", f"{sealed.directory}: {refusal.words}", todo)
            return
        self._ok("directory", f"{sealed.directory} can be written on the login node")
        try:
            await self._submitted(session, sealed)
        finally:
            with contextlib.suppress(SessionLost, SessionRefused):
                await files.clean(session, place)

    def _sealed(self, account: Account, word: str) -> Sealed:
        row, settings = str(uuid.uuid4()), self.cluster.settings
        home = account.home or f"/home/{account.account}"
        return seal(
            row=row,
            uid=account.uid,
            spec=JobSpec(
                executable="/bin/sh",
                arguments=("-c", f'[ "$(cat word)" = {word} ]'),
                attributes=Attributes(duration=60),
            ),
            directory=settings.directory.format(user=account.account, home=home, id=row),
            runtime=PlainRuntime(),
            default_queue=settings.default_queue,
        )

    async def _submitted(self, session: UserSession, sealed: Sealed) -> None:
        try:
            submitted = await session.submit(sealed, 1)
        except SessionRefused as refusal:
            todo = "the user needs an association, and default_queue or a default partition"
            self._fail("sbatch", refusal.words or refusal.code, todo)
            return
        words = f"job {submitted.job_id}" + (f"; it says: {w}" if (w := submitted.words) else "")
        self._ok("sbatch", words)
        try:
            await self._marker(sealed, submitted.job_id)
            await self._ran(session, sealed)
        finally:
            with contextlib.suppress(SessionLost, SessionRefused):
                await session.cancel(sealed.row, submitted.job_id)
        self._ok("scancel", f"job {submitted.job_id}")

    async def _marker(self, sealed: Sealed, job_id: int) -> None:
        """By its name, and only by it, a job is found again."""
        name = f"hg-{sealed.row}"
        since = self.clock.now() - timedelta(minutes=5)
        until = self.clock.monotonic() + SETTLE_SECONDS
        while self.clock.monotonic() < until:
            try:
                found = await self._found_by(name, sealed.uid, since)
            except ClusterUnavailable as error:
                self._fail("marker", str(error), "see the finding about slurm")
                return
            if job_id in found:
                self._ok("marker", f"job {job_id} is found by its name")
                return
            await self.clock.sleep(LOOK_SECONDS)
        todo = "job_submit plugin or cli_filter: leave names that begin with hg- as they are"
        self._fail("marker", f"job {job_id} does not have the name it was given", todo)

    async def _found_by(self, name: str, uid: int, since: datetime) -> set[int]:
        reader = self.cluster.reader
        queued = (await reader.jobs_named([name])).get(name, ())
        found = {row.job_id for row in queued if row.uid == uid}
        if not found:
            done = (await reader.accounted([name], since=since)).get(name, ())
            found = {row.job_id for row in done if row.uid == uid}
        return found

    async def _ran(self, session: UserSession, sealed: Sealed) -> None:
        """On a compute node: the directory is there, and the claim is one for all nodes."""
        until = self.clock.monotonic() + self.wait
        state: JobFiles | None = None
        while self.clock.monotonic() < until:
            state = await session.files(sealed.row, sealed.directory)
            if state is not None and (state.exit is not None or state.failure is not None):
                break
            await self.clock.sleep(LOOK_SECONDS)
        if state is None or state.claim is None:
            words = f"no trace of a start within {self.wait:g} s"
            todo = "a longer --wait; else its node has no such folder: `directory` is to be shared"
            self._warn("shared directory", words, todo)
            return
        node = (state.claim.split() or ["?"])[-1]
        if state.exit != 0:
            todo = "`directory` has to be on a file system that shows one node what another wrote"
            self._fail("shared directory", f"{node} does not see what was written here", todo)
            return
        self._ok("shared directory", f"{node} sees what the login node wrote")
        # What bars a start after a cancellation is the same exclusive creation.
        await session.cancel(sealed.row, 2**31 - 1, sealed.directory)
        after = await session.files(sealed.row, sealed.directory)
        if after is None or after.claim != state.claim:
            todo = "O_EXCL has to hold over nodes: NFS from version 3 on, Lustre, GPFS, BeeGFS do"
            self._fail("exclusive creation", "two nodes could claim one job", todo)
        else:
            self._ok("exclusive creation", "a claim made on one node is seen on the other")

    def _ok(self, check: str, words: str) -> None:
        self._found(check, Level.OK, words, "")

    def _warn(self, check: str, words: str, todo: str) -> None:
        self._found(check, Level.WARNING, words, todo)

    def _fail(self, check: str, words: str, todo: str) -> None:
        self._found(check, Level.FAILED, words, todo)

    def _found(self, check: str, level: Level, words: str, todo: str) -> None:
        plain = " ".join(words.split())[:500]
        self.findings.append(Finding(self.cluster.name, check, level, plain, todo))


def lines(findings: Sequence[Finding]) -> str:
    """Findings for a person, one or two lines each."""
    shown = []
    for finding in findings:
        shown.append(f"{finding.level:8} {finding.cluster}: {finding.check}: {finding.words}")
        if finding.todo:
            shown.append(f"{'':8} -> {finding.todo}")
    return "\n".join(shown) + "\n"


def refused(cluster: str, problem: Problem) -> Finding:
    """The user that was named has no account to try with."""
    todo = "see the registry: headgate-accounts show"
    return Finding(cluster, "account", Level.FAILED, problem.detail, todo)
