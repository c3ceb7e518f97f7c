"""A suspension on the real site: certificates, the gateway's connections, and a real sshd."""

import asyncio
import re
import signal
import subprocess
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from testbed.caller import Caller
from testbed.login import KRL_SECONDS
from testbed.site import Site

pytestmark = pytest.mark.site

HELD = re.compile(r"^([0-9a-f-]{36})  ")


@dataclass(frozen=True)
class Person:
    """Somebody with an account, a token for everything, and a key."""

    name: str
    sub: str
    site: Site
    http: aiohttp.ClientSession
    gateway: Caller
    key: Path

    async def ask(self) -> tuple[int, Any]:
        """Ask for a certificate; status and document."""
        url = self.site.addresses.token_translator
        public = await asyncio.to_thread(self.key.with_suffix(".pub").read_text)
        headers = {"Authorization": f"Bearer {self.gateway.token}"}
        body = {"public_key": public}
        async with self.http.post(f"{url}/v1/certificates", json=body, headers=headers) as answer:
            return answer.status, await answer.json()

    async def certificate(self) -> str:
        """A certificate."""
        status, document = await self.ask()
        assert status == 201, document
        return str(document["certificate"])

    async def login(self, certificate: str) -> tuple[int, str]:
        """Log in with a stock ssh: 255 is its own refusal."""
        return await asyncio.to_thread(self._login, certificate)

    def _login(self, certificate: str) -> tuple[int, str]:
        ssh = self.site.addresses.ssh
        file = self.key.with_name("certificate.pub")
        file.write_text(certificate)
        options = {
            "BatchMode": "yes",
            "CertificateFile": str(file),
            "ConnectTimeout": "10",
            "GlobalKnownHostsFile": "/dev/null",
            "IdentitiesOnly": "yes",
            "IdentityFile": str(self.key),
            "Port": str(ssh["port"]),
            "StrictHostKeyChecking": "yes",
            "UserKnownHostsFile": str(ssh["known_hosts"]),
        }
        flags = [part for name, value in options.items() for part in ("-o", f"{name}={value}")]
        argv = ["ssh", "-F", "none", *flags, f"{self.name}@127.0.0.1", "id", "-un"]
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
        return done.returncode, done.stdout.strip()

    async def sessions(self) -> int:
        """How many of the gateway's sessions the login node has of this person."""
        argv = ("pgrep", "-c", "-u", self.name, "-f", "headgate-session")
        done = await self.site.exec(argv)
        return int(done.stdout)

    async def until_cut(self, seconds: float) -> float:
        """Wait until no session is left; how long that took."""
        before = time.monotonic()
        async with asyncio.timeout(seconds):
            while await self.sessions():
                pass
        return time.monotonic() - before

    async def until_refused(self, certificate: str) -> None:
        """Wait until sshd knows of it: as long as the node's timer takes to come round, twice."""
        async with asyncio.timeout(2 * KRL_SECONDS):
            while (await self.login(certificate))[0] != 255:
                pass


async def tokens(site: Site, *words: str) -> str:
    """What `headgate-tokens` prints for root on the host."""
    config = str(site.path("conf", "headgate-tokens.toml"))
    argv = (f"{site.addresses.venv}/bin/headgate-tokens", words[0], "--config", config, *words[1:])
    return (await site.exec(argv)).checked().stdout.decode()


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    """An HTTP session."""
    async with aiohttp.ClientSession() as session:
        yield session


@pytest.fixture
async def person(
    site: Site, http: aiohttp.ClientSession, tmp_path: Path, request: pytest.FixtureRequest
) -> Person:
    """A newcomer of this test's own, with a connection of the gateway's open."""
    name = f"p{abs(hash(request.node.name)) % 10**8}"
    async with site.issuer() as control:
        sub = await control.put_user(name, groups=["hpc"])
    await site.import_accounts()
    caller = Caller(http, site.addresses.gateway, await site.token(name))
    key = tmp_path / "key"
    argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)]
    await asyncio.to_thread(subprocess.run, argv, check=True)
    made = Person(name, sub, site, http, caller, key)
    job = await caller.run("echo hello")
    assert await caller.output(job) == "hello\n"
    assert await made.sessions() == 1
    return made


def identity(person: Person) -> tuple[str, ...]:
    """The words that name a person to the command."""
    return ("--iss", person.site.addresses.issuer, "--sub", person.sub)


async def test_suspended_and_resumed(person: Person, site: Site):
    """Nothing is signed any more, the connection closes, sshd refuses; then all of it is back."""
    who = identity(person)
    certificate = await person.certificate()
    assert await person.login(certificate) == (0, person.name)
    said = await tokens(site, "suspend", *who, "--reason", "lost laptop")
    status, document = await person.ask()
    assert (status, document["code"]) == (403, "suspended")
    assert "lost laptop" in document["detail"]
    assert await person.until_cut(10) < 2
    await person.until_refused(certificate)
    answer = await person.gateway("POST", "/v1/jobs", json={"executable": "/bin/id"})
    assert (answer.status, answer.json["code"]) == (403, "suspended")
    found = HELD.match(said)
    assert found, said
    assert found[1] in await tokens(site, "holds", *who)
    await tokens(site, "resume", found[1])
    fresh = await person.certificate()
    assert await person.login(fresh) == (0, person.name)
    assert (await person.login(certificate))[0] == 255
    job = await person.gateway.run("echo again")
    assert await person.gateway.output(job) == "again\n"


async def test_a_block_in_the_registry_does_the_same(person: Person, site: Site):
    """Who is inactive at the identity provider loses connections and live certificates, too."""
    certificate = await person.certificate()
    async with site.issuer() as control:
        await control.change_user(person.name, active=False)
        await site.import_accounts()
        await person.until_cut(10)
        holds = await tokens(site, "holds", *identity(person))
        assert "peer:headgate-accounts" in holds
        await person.until_refused(certificate)
        await control.change_user(person.name, active=True)
        await site.import_accounts()
    async with asyncio.timeout(10):
        while (await person.ask())[0] != 201:
            pass
    assert await tokens(site, "holds", *identity(person)) == ""


async def test_a_silent_feed_closes_everything_until_it_is_heard_again(person: Person, site: Site):
    """With the translator frozen nobody knows who may act: soon nobody is connected."""
    await site.signal("tokens", signal.SIGSTOP)
    try:
        spent = await person.until_cut(30)
    finally:
        await site.signal("tokens", signal.SIGCONT)
    assert 5 < spent < 14
    async with asyncio.timeout(30):
        job = await person.gateway.run("echo back")
        assert await person.gateway.output(job) == "back\n"
