"""What every `UserSession` promises, over SSH to a real login node and as a child process."""

import asyncio
import contextlib
import pwd
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import msgspec
import pytest

from gateway.jobs import JobSpec, Sealed
from gateway.runner.plain import PlainRuntime
from gateway.runner.script import seal
from gateway.sessions.credentials import Certify, Credentials, fresh
from gateway.sessions.local import LocalConnector, LocalSettings
from gateway.sessions.pool import Connector
from gateway.sessions.session import (
    Conversation,
    JobFiles,
    SessionLost,
    SessionRefused,
    Submitted,
    UserSession,
)
from gateway.sessions.ssh import SshConnector, SshSettings
from gateway.translator import Translator
from headgate.clock import SystemClock
from headgate.peers import PeerSigner
from testbed import suite
from testbed.embedded import embedded
from testbed.site import Site

pytestmark = pytest.mark.timeout(120)


@dataclass(frozen=True)
class Subject:
    """A way to open sessions, for a user who holds a token."""

    connector: Connector
    translator: Translator
    account: str
    uid: int
    home: str
    realm: str
    token: str
    root: str = ""

    def private(self, sealed: Sealed, name: str) -> Path:
        """One of the job's own files, as we see it from out here."""
        return Path(f"{self.root}{sealed.directory}", ".headgate", name)

    def sealed(self, command: str = "true", **environment: str) -> Sealed:
        """A job of this user's."""
        row = str(uuid.uuid4())
        spec = JobSpec(executable="/bin/sh", arguments=("-c", command), environment=environment)
        directory = f"{self.home}/session contract/{row}"
        return seal(row=row, uid=self.uid, spec=spec, directory=directory, runtime=PlainRuntime())

    @contextlib.asynccontextmanager
    async def session(self, certify: Certify | None = None) -> AsyncIterator[UserSession]:
        """An open session, with the user's token unless another right is given."""
        right = certify or self.translator.with_token(self.token, self.realm)
        session = await self.connector.connect(self.account, await fresh(right))
        try:
            yield session
        finally:
            await session.close()

    async def delegated(self, sealed: Sealed, verb: str) -> Certify:
        """The right to one verb for a job that is sealed first."""
        await self.translator.seal(sealed, self.realm, self.token)
        return self.translator.delegated(sealed.row, verb)


@dataclass(frozen=True)
class AsTheSite(Credentials):
    """Credentials whose forced command runs as the embedded site's user, also where we are root."""

    prefix: tuple[str, ...] = ()

    def forced_command(self) -> tuple[str, ...]:
        """The certificate's command, behind whatever makes it the site's user."""
        return (*self.prefix, *Credentials.forced_command(self))


@dataclass(frozen=True)
class LocalAsTheSite:
    """`LocalConnector`, for the site's user."""

    connector: LocalConnector
    prefix: tuple[str, ...]

    async def connect(self, account: str, credentials: Credentials) -> Conversation:
        """A session of the site's user."""
        fields = (credentials.private_key, credentials.certificate, credentials.valid_before)
        return await self.connector.connect(account, AsTheSite(*fields, self.prefix))

    def require(self) -> None:
        """It is always there."""

    async def greetings(self) -> list[tuple[str, str, str]]:
        """There is no login node."""
        return []

    async def close(self) -> None:
        """Nothing is kept."""


@pytest.fixture(scope="module")
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    """One HTTP session for all."""
    async with aiohttp.ClientSession() as session:
        yield session


def _translator(url: str, key: Path, http: aiohttp.ClientSession) -> Translator:
    """The gateway's own way to the translator."""
    signer = PeerSigner.from_file(instance=suite.GATEWAY, path=key, clock=SystemClock())
    return Translator(url=url, session=http, signer=signer)


@pytest.fixture(scope="module")
async def local(http: aiohttp.ClientSession) -> AsyncIterator[Subject]:
    """Sessions that are child processes, on the embedded site."""
    async with embedded(quick=True) as site:
        await site.import_accounts()
        settings = LocalSettings(
            path=str(site.path("cluster", "bin")), environment={"HOME": str(site.path("home"))}
        )
        key = site.path("conf", f"{suite.GATEWAY}.key")
        yield Subject(
            connector=LocalAsTheSite(
                LocalConnector(settings, SystemClock()), site.command("sbatch")[:-1]
            ),
            translator=_translator(site.addresses.token_translator, key, http),
            account=site.user,
            uid=pwd.getpwnam(site.user).pw_uid,
            home=str(site.path("jobs")),
            realm=site.addresses.realm,
            token=await site.token("alice"),
        )


@pytest.fixture(scope="module")
async def over_ssh(site: Site, http: aiohttp.ClientSession) -> Subject:
    """Sessions on the real login node, as alice."""
    await site.import_accounts()
    at, account = site.addresses, site.account("alice")
    key = site.path("conf", f"{suite.GATEWAY}.key")
    settings = msgspec.convert(at.ssh, SshSettings)
    return Subject(
        connector=SshConnector(settings, SystemClock()),
        translator=_translator(str(at.token_translator), key, http),
        account="alice",
        uid=account.uid,
        home=account.home,
        realm=at.realm,
        token=await site.token("alice"),
        root=at.state,
    )


@pytest.fixture(params=["local", pytest.param("over_ssh", marks=pytest.mark.site)])
def subject(request: pytest.FixtureRequest) -> Subject:
    """Each way in turn."""
    found: Subject = request.getfixturevalue(request.param)
    return found


async def ended(session: UserSession, sealed: Sealed) -> JobFiles:
    """The job's files once it has written down how it ended; the test's time limit bounds it."""
    while True:
        files = await session.files(sealed.row, sealed.directory)
        if files is not None and files.exit is not None:
            return files
        await asyncio.sleep(0.05)


async def read(
    session: UserSession, sealed: Sealed, offset: int = 0, limit: int = 1 << 30
) -> bytes:
    """What the job printed."""
    chunks = session.read(sealed.row, sealed.directory, "stdout", offset=offset, limit=limit)
    return b"".join([chunk async for chunk in chunks])


async def test_whatever_home_is_sessions_are_opened(
    subject: Subject, monkeypatch: pytest.MonkeyPatch
):
    """Below the gateway's HOME, which may be closed to it, nothing is looked for."""
    # Looking there is an error, as in a folder that is closed to us.
    monkeypatch.setenv("HOME", "/" + "x" * 300)
    async with subject.session() as session:
        assert await session.files(str(uuid.uuid4()), f"{subject.home}/none") is None


async def test_a_submitted_job_runs_and_leaves_its_traces(subject: Subject):
    """A job gets an id, claims its row, and writes down its exit code and output."""
    sealed = subject.sealed('echo "$WORD"; exit 3', WORD="a 'b' c")
    async with subject.session() as session:
        submitted = await session.submit(sealed, 1)
        files = await ended(session, sealed)
        assert files.submitted == Submitted(1, submitted.job_id)
        assert (files.claim or "").split()[0] == str(submitted.job_id)
        assert files.exit == 3
        assert await read(session, sealed) == b"a 'b' c\n"
        assert await read(session, sealed, offset=2, limit=3) == b"'b'"


async def test_said_again_a_submission_is_the_same_job(subject: Subject):
    """The same attempt, asked for in another session too, is answered with the same id."""
    sealed = subject.sealed()
    async with subject.session() as session:
        first = await session.submit(sealed, 1)
        again = await asyncio.gather(*(session.submit(sealed, 1) for _ in range(4)))
    async with subject.session() as other:
        assert {answer.job_id for answer in (*again, await other.submit(sealed, 1))} == {
            first.job_id
        }


async def test_an_attempt_nobody_heard_of_is_not_made_again(subject: Subject):
    """Where sbatch was asked and its answer lost, the session says so, and does not ask twice."""
    sealed = subject.sealed()
    async with subject.session() as session:
        await session.submit(sealed, 1)
        await ended(session, sealed)
        for name in ("submitted", "claim"):
            await asyncio.to_thread(subject.private(sealed, name).unlink)
        with pytest.raises(SessionRefused) as caught:
            await session.submit(sealed, 1)
        assert caught.value.code == "unsettled"


async def test_a_claimed_row_is_not_submitted_again(subject: Subject):
    """Once a payload has started, no further attempt reaches Slurm."""
    sealed = subject.sealed()
    async with subject.session() as session:
        first = await session.submit(sealed, 1)
        await ended(session, sealed)
        with pytest.raises(SessionRefused) as caught:
            await session.submit(sealed, 2)
        assert caught.value.code == "claimed"
        assert caught.value.state is not None
        assert (caught.value.state.claim or "").split()[0] == str(first.job_id)


async def test_a_job_is_cancelled_once_and_for_all(subject: Subject):
    """Cancelling works, and again for a job that has gone is no failure."""
    sealed = subject.sealed("exec sleep 600")
    async with subject.session() as session:
        submitted = await session.submit(sealed, 1)
        await session.cancel(sealed.row, submitted.job_id)
        await session.cancel(sealed.row, submitted.job_id)


async def test_slurms_refusal_is_told_in_its_words(subject: Subject):
    """What sbatch says of an impossible request comes back, and the attempt is free again."""
    sealed = subject.sealed()
    wrong = msgspec.structs.replace(
        sealed, sbatch_args=(*sealed.sbatch_args, "--partition=nowhere")
    )
    async with subject.session() as session:
        with pytest.raises(SessionRefused) as caught:
            await session.submit(wrong, 1)
        assert caught.value.code == "refused"
        assert "nvalid partition" in caught.value.words
        assert (await session.submit(sealed, 1)).attempt == 1


async def test_a_sealed_session_does_its_one_thing(subject: Subject):
    """A right to submit one row submits that, and nothing that differs in a single byte."""
    sealed = subject.sealed("true")
    right = await subject.delegated(sealed, "submit")
    async with subject.session(right) as session:
        for changed in (
            msgspec.structs.replace(sealed, script=sealed.script + "\n"),
            msgspec.structs.replace(sealed, environment="export A=1\n"),
            msgspec.structs.replace(sealed, directory=sealed.directory + "x"),
            msgspec.structs.replace(sealed, sbatch_args=(*sealed.sbatch_args, "--mem=1M")),
        ):
            with pytest.raises(SessionRefused) as caught:
                await session.submit(changed, 1)
            assert caught.value.code == "digest"
        other = subject.sealed()
        with pytest.raises(SessionRefused):
            await session.submit(other, 1)
        with pytest.raises(SessionRefused):
            await session.cancel(sealed.row, 1)
        submitted = await session.submit(sealed, 1)
        assert submitted.job_id > 0


async def test_options_outside_the_list_are_refused(subject: Subject):
    """No sbatch option that is not listed, and no job without its marker, is passed on."""
    sealed = subject.sealed()
    for arguments in (
        (*sealed.sbatch_args, "--wrap=id"),
        (*sealed.sbatch_args, "-o/tmp/x"),
        (*sealed.sbatch_args, "--uid=0"),
        tuple(word for word in sealed.sbatch_args if "job-name" not in word),
    ):
        changed = msgspec.structs.replace(sealed, sbatch_args=arguments)
        async with subject.session() as session:
            with pytest.raises(SessionRefused) as caught:
                await session.submit(changed, 1)
            assert caught.value.code == "option"


async def test_a_file_that_is_a_link_is_not_followed(subject: Subject):
    """A symbolic link in the place of the output is refused, wherever it leads."""
    sealed = subject.sealed("rm stdout; ln -s /etc/passwd stdout")
    async with subject.session() as session:
        await session.submit(sealed, 1)
        await ended(session, sealed)
        with pytest.raises(SessionRefused) as caught:
            await read(session, sealed)
        assert caught.value.code == "no_file"


async def test_large_output_comes_whole(subject: Subject):
    """Megabytes arrive byte for byte, while other requests are answered."""
    sealed = subject.sealed("head -c 5000000 /dev/zero | tr '\\0' x")
    async with subject.session() as session:
        await session.submit(sealed, 1)
        await ended(session, sealed)
        reading = asyncio.create_task(read(session, sealed))
        others = await asyncio.gather(
            *(session.files(sealed.row, sealed.directory) for _ in range(20))
        )
        assert all(files is not None and files.exit == 0 for files in others)
        assert await reading == b"x" * 5_000_000


async def test_an_ended_session_says_so(subject: Subject):
    """After a session is closed, requests fail at once and nobody waits."""
    sealed = subject.sealed()
    async with subject.session() as session:
        await session.close()
        assert not session.alive
        with pytest.raises(SessionLost):
            await session.submit(sealed, 1)
