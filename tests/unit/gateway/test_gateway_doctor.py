"""What the doctor says of clusters on which something is wrong."""

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.doctor import Doctor, Finding, Level, Patient, lines
from gateway.jobs import JobFiles, Submitted
from gateway.sessions.credentials import Credentials, IssuedCertificate
from gateway.sessions.session import NotAdmitted, NotCertified, SessionRefused, SessionUnavailable
from gateway.settings import ClusterSettings
from headgate.clock import HeldClock
from headgate.registry import Account
from headgate.slurm.model import ClusterUnavailable

UID = 20001
PING = {
    "ok": True,
    "python": "3.6.8",
    "release": 2,
    "path": "/usr/libexec/headgate/headgate-session",
    "unsafe": [],
    "commands": ["/usr/bin/sbatch", "/usr/bin/scancel"],
}


class Jumping(HeldClock):
    """Whoever sleeps makes time pass."""

    async def sleep(self, seconds: float) -> None:
        """At once."""
        self.advance(seconds)


@dataclass
class Site:
    """A cluster on which all is well, unless the test says otherwise."""

    clock: Jumping = field(default_factory=Jumping)
    ping: dict[str, Any] = field(default_factory=lambda: dict(PING))
    offset: float = 0.0
    banner: str = "SSH-2.0-OpenSSH_9.2p1"
    fault: str = ""
    slurm: Exception | None = None
    certificate: Exception | None = None
    admits: int = 8
    refusals: dict[str, SessionRefused] = field(default_factory=dict)
    named: bool = True
    files_seen: JobFiles | None = field(
        default_factory=lambda: JobFiles(attempt=1, claim="7 n1", exit=0)
    )
    after_bar: str = "7 n1"
    done: list[str] = field(default_factory=list)
    open: int = 0

    def __post_init__(self) -> None:
        """Put the doctor together."""
        cluster: Any = SimpleNamespace(
            name="main",
            reader=self,
            settings=ClusterSettings(
                name="main",
                realm="main",
                ssh=SimpleNamespace(handshakes=8),  # type: ignore[arg-type] - all that is asked of it
            ),
        )
        own: Any = self
        self.doctor = Doctor(
            cluster=cluster, connector=own, translator=own, clock=self.clock, wait=0.4
        )

    # As a reader of Slurm.

    async def configuration(self) -> Any:
        """Its version, or that it is away."""
        if self.slurm is not None:
            raise self.slurm
        return SimpleNamespace(version="24.11")

    async def jobs_named(self, names: list[str]) -> Any:
        """The job, where its name was left."""
        self.clock.advance(1)
        row = SimpleNamespace(job_id=7, uid=UID)
        return {names[0]: [row]} if self.named else {}

    async def accounted(self, *_: object, **__: object) -> Any:
        """Nothing has ended."""
        return {}

    # As a way to the login node.

    async def greetings(self) -> list[tuple[str, str, str]]:
        """One login node."""
        return [("login1:22", self.banner, self.fault)]

    async def connect(self, account: str, credentials: Credentials) -> Any:
        """A session, while there is room."""
        assert (account, credentials.certificate) == ("alice", "certificate")
        if self.admits < 0:
            raise NotAdmitted("login node login1:22 refuses the user alice")
        if self.open >= self.admits + 1:
            raise SessionUnavailable("Exceeded MaxStartups")
        self.open += 1
        return self

    def with_token(self, token: str, realm: str) -> Any:
        """The translator's answer."""
        assert (token, realm) == ("token", "main")

        async def certify(_: str) -> IssuedCertificate:
            if self.certificate is not None:
                raise self.certificate
            return IssuedCertificate("certificate", self.clock.now() + timedelta(hours=1))

        return certify

    # As a session.

    async def request(
        self, header: dict[str, Any], body: bytes = b"", *, expected: int = 0
    ) -> tuple[dict[str, Any], bytes]:
        """What the session program says."""
        del body, expected
        self.did(header["op"])
        if header["op"] == "ping":
            now = self.clock.now().timestamp() + self.offset
            return {"time": now, **self.ping}, b""
        return {"ok": True}, b""

    async def submit(self, sealed: Any, attempt: int) -> Submitted:
        """As sbatch."""
        uuid.UUID(sealed.row)
        self.did("submit")
        return Submitted(attempt, 7)

    async def files(self, *_: object) -> JobFiles | None:
        """What the job wrote."""
        self.clock.advance(0.2)
        if self.done.count("cancel") and self.files_seen:
            return JobFiles(attempt=1, claim=self.after_bar, exit=0)
        return self.files_seen

    async def cancel(self, *_: object) -> None:
        """As scancel."""
        self.did("cancel")

    async def close(self) -> None:
        """Hang up."""
        self.open -= 1

    def did(self, what: str) -> None:
        """Remember it, or refuse."""
        self.done.append(what)
        if what in self.refusals:
            raise self.refusals[what]

    async def found(self) -> dict[str, Finding]:
        """The findings by what was looked at."""
        account = Account("alice", UID, 20000, "active", 1)
        await self.doctor.look(Patient(account, "token"))
        return {finding.check: finding for finding in self.doctor.findings}


async def test_a_cluster_on_which_all_is_well():
    """Everything is tried, everything is ok, and nothing is left of it."""
    site = Site()
    found = await site.found()
    assert {finding.level for finding in found.values()} == {Level.OK}
    assert {"marker", "shared directory", "exclusive creation", "handshakes"} <= set(found)
    assert site.done[-1] == "clean"
    assert site.open == 0


BROKEN: list[tuple[str, Callable[[Site], object], Level, str]] = [
    ("slurm", lambda s: setattr(s, "slurm", ClusterUnavailable("away")), Level.FAILED, "away"),
    ("login node login1:22", lambda s: setattr(s, "fault", "refused"), Level.FAILED, "refused"),
    (
        "login node login1:22",
        lambda s: setattr(s, "banner", "SSH-2.0-OpenSSH_9.9"),
        Level.WARNING,
        "punishes",
    ),
    ("session program", lambda s: s.ping.pop("release"), Level.FAILED, "needs 2"),
    ("session program", lambda s: s.ping.update(unsafe=["/usr"]), Level.FAILED, "/usr"),
    ("interpreter", lambda s: s.ping.update(python="3.5.2"), Level.FAILED, "3.5"),
    ("clock", lambda s: setattr(s, "offset", -3.0), Level.WARNING, "-3.0 s"),
    ("clock", lambda s: setattr(s, "offset", 120.0), Level.FAILED, "+120.0 s"),
    ("commands", lambda s: s.ping.update(commands=["/bin/sbatch"]), Level.FAILED, "scancel"),
    ("handshakes", lambda s: setattr(s, "admits", 3), Level.FAILED, "3 of 8"),
    (
        "directory",
        lambda s: s.refusals.update(write=SessionRefused("quota", "no room")),
        Level.FAILED,
        "no room",
    ),
    (
        "sbatch",
        lambda s: s.refusals.update(submit=SessionRefused("refused", "no association")),
        Level.FAILED,
        "no association",
    ),
    ("marker", lambda s: setattr(s, "named", False), Level.FAILED, "does not have the name"),
    (
        "shared directory",
        lambda s: setattr(s, "files_seen", JobFiles(attempt=1, claim="7 n1", exit=1)),
        Level.FAILED,
        "n1 does not see",
    ),
    ("shared directory", lambda s: setattr(s, "files_seen", None), Level.WARNING, "no trace"),
    ("exclusive creation", lambda s: setattr(s, "after_bar", "cancelled"), Level.FAILED, "two"),
    ("login", lambda s: setattr(s, "admits", -1), Level.FAILED, "refuses"),
    (
        "certificate",
        lambda s: setattr(s, "certificate", NotCertified("no_rule")),
        Level.FAILED,
        "no_rule",
    ),
    (
        "session",
        lambda s: s.refusals.update(ping=SessionRefused("version", "1")),
        Level.FAILED,
        "version",
    ),
]


@pytest.mark.parametrize(("check", "breaks", "level", "words"), BROKEN)
async def test_what_is_wrong_is_named_with_what_to_do(
    check: str, breaks: Callable[[Site], object], level: Level, words: str
):
    """One thing is broken: it is found, graded, explained; all sessions are closed."""
    site = Site()
    breaks(site)
    found = await site.found()
    assert (found[check].level, words in found[check].words) == (level, True)
    assert found[check].todo
    others = {f.check for f in found.values() if f.level is not Level.OK} - {check}
    assert others == set()
    assert site.open == 0
    if "submit" in site.done and "submit" not in site.refusals:
        assert "cancel" in site.done
    if "write" in site.done and "write" not in site.refusals:
        assert site.done[-1] == "clean"


async def test_without_a_token_nobody_logs_in():
    """What can be seen from outside is, and what was not looked at is said."""
    site = Site()
    await site.doctor.look(None)
    assert [(f.check, f.level) for f in site.doctor.findings] == [
        ("slurm", Level.OK),
        ("login node login1:22", Level.OK),
        ("login", Level.WARNING),
    ]
    assert site.done == []


def test_a_finding_is_a_line_and_what_to_do_another():
    """Words of others have no newlines left."""
    doctor = Site().doctor
    doctor._fail("sbatch", "a\nb\r\n c", "mend it")
    assert lines(doctor.findings) == "failed   main: sbatch: a b c\n         -> mend it\n"
