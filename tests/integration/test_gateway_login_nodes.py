"""Sessions on real login nodes: several, behind a jump host, down, hanging, and refusing."""

import asyncio
import re
import signal
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import msgspec
import pytest
from aiohttp.test_utils import unused_port

from gateway.sessions import ssh
from gateway.sessions.credentials import Credentials, fresh
from gateway.sessions.jump import JumpSettings
from gateway.sessions.pool import SessionPool
from gateway.sessions.session import NodeAway, NotAdmitted
from gateway.sessions.ssh import SshConnector, SshNode, SshSettings
from gateway.sessions.user import User
from gateway.translator import Translator
from headgate.clock import SystemClock
from headgate.identity import Identity
from headgate.peers import PeerSigner
from testbed import suite
from testbed.caller import Caller
from testbed.components import Component, Greets
from testbed.site import Site
from tests.integration.node_under_test import new_key

pytestmark = [pytest.mark.site, pytest.mark.timeout(120)]

FAILED = re.compile(rb"Connection (?:closed|reset) by authenticating user bob")
ROW = "6f3b6c1e-0000-4000-8000-000000000001"


@dataclass(frozen=True)
class Way:
    """How the gateway comes to the site, and alice's right to."""

    site: Site
    translator: Translator
    token: str
    settings: SshSettings

    async def credentials(self) -> Credentials:
        """A fresh certified key of alice's."""
        return await fresh(self.translator.with_token(self.token, self.site.addresses.realm))


@pytest.fixture(scope="module")
async def way(site: Site) -> AsyncIterator[Way]:
    """With the gateway's own key."""
    await site.import_accounts()
    key = site.path("conf", f"{suite.GATEWAY}.key")
    signer = PeerSigner.from_file(instance=suite.GATEWAY, path=key, clock=SystemClock())
    async with aiohttp.ClientSession() as http:
        translator = Translator(url=site.addresses.token_translator, session=http, signer=signer)
        settings = msgspec.convert(site.addresses.ssh, SshSettings)
        yield Way(site, translator, await site.token("alice"), settings)


async def second_node(site: Site, name: str, port: int, *lines: str) -> None:
    """One more sshd at the site, with the first one's keys and rules."""
    config = site.path("ssh", "sshd_config").read_text(encoding="utf-8")
    first = f"Port {site.addresses.ssh['port']}\n"
    assert first in config
    written = "\n".join((*lines, config.replace(first, f"Port {port}\n")))
    path = site.folder.write(f"ssh/{name}_config", written)
    known = site.path("ssh", "known_hosts").read_text(encoding="utf-8")
    _, _, host_key = known.splitlines()[0].partition(" ")
    if f"[127.0.0.1]:{port} " not in known:
        site.folder.write("ssh/known_hosts", f"{known}[127.0.0.1]:{port} {host_key}\n")
    await site.add(
        Component(
            name=name,
            argv=("/usr/sbin/sshd", "-D", "-e", "-f", str(path)),
            ready=Greets(port, "SSH-2.0-"),
        )
    )


@pytest.fixture(scope="module")
async def nodes(site: Site, way: Way) -> AsyncIterator[SshSettings]:
    """Two login nodes."""
    port = unused_port()
    await second_node(site, "sshd2", port)
    yield msgspec.structs.replace(way.settings, further_nodes=(SshNode("127.0.0.1", port),))
    await site.stop("sshd2")


async def test_the_next_node_is_tried_and_stayed_with(site: Site, way: Way, nodes: SshSettings):
    """While the first is away the second serves; it goes on to when the first is back."""
    connector = SshConnector(nodes, SystemClock())
    await site.stop("sshd")
    try:
        session = await connector.connect("alice", await way.credentials())
        assert await session.files(ROW, "/home/alice/nothing") is None
        await session.close()
    finally:
        await site.start("sshd")
    assert connector._chosen == 1
    session = await connector.connect("alice", await way.credentials())
    await session.close()
    assert connector._chosen == 1
    await site.stop("sshd2")
    try:
        session = await connector.connect("alice", await way.credentials())
        await session.close()
        assert connector._chosen == 0
    finally:
        await site.start("sshd2")
        await connector.close()


async def test_a_node_that_hangs_is_found_once_and_then_told_at_once(
    site: Site, way: Way, monkeypatch: pytest.MonkeyPatch
):
    """A stopped sshd costs one wait, and nobody waits after it; then it is used again."""
    monkeypatch.setattr(ssh, "CONNECT_TIMEOUT", 0.5)
    connector = SshConnector(way.settings, SystemClock())
    credentials = await way.credentials()
    await site.signal("sshd", signal.SIGSTOP)
    try:
        with pytest.raises(NodeAway):
            await connector.connect("alice", credentials)
        for _ in range(20):
            before = time.monotonic()
            with pytest.raises(NodeAway):
                connector.require()
            with pytest.raises(NodeAway):
                await connector.connect("alice", credentials)
            assert time.monotonic() - before < 0.2
    finally:
        await site.signal("sshd", signal.SIGCONT)
    monkeypatch.undo()
    async with asyncio.timeout(20):
        while connector._nodes[0][1].down:  # noqa: ASYNC110 - a node's state
            await asyncio.sleep(0.05)
    session = await connector.connect("alice", credentials)
    await session.close()
    await connector.close()


async def test_a_node_with_another_host_key_gets_no_login(way: Way, tmp_path: Path):
    """It is as if it were away: what is said of it names known_hosts."""
    key = await asyncio.to_thread(new_key, tmp_path / "key")
    public = key.with_suffix(".pub").read_text()
    known = tmp_path / "known_hosts"
    known.write_text(f"[127.0.0.1]:{way.settings.port} {public}")
    wrong = msgspec.structs.replace(way.settings, known_hosts=str(known))
    connector = SshConnector(wrong, SystemClock())
    with pytest.raises(NodeAway, match="known_hosts"):
        await connector.connect("alice", await way.credentials())
    await connector.close()


class Everybody:
    """A feed that knows nothing against anybody."""

    def current(self) -> bool:
        """It is known."""
        return True

    def denial(self, *_: object) -> str | None:
        """Nobody is."""
        return None

    def subscribe(self, _: object) -> Callable[[], None]:
        """There is nothing to tell."""
        return lambda: None


async def test_sshd_sees_one_failed_login_of_a_refused_user(site: Site, way: Way):
    """32 requests of somebody whom sshd refuses are one line in its log."""
    connector = SshConnector(way.settings, SystemClock())
    pool = SessionPool(
        connectors={"main": connector},
        realms={"main": "testbed"},
        denials=Everybody(),
        clock=SystemClock(),
    )
    stranger = User(Identity("https://iam.example.org/", "b"), "main", "bob")
    certify = way.translator.with_token(way.token, site.addresses.realm)  # alice's: not bob's
    lines = site.path("log", "sshd.log")
    before = lines.stat().st_size

    async def ask() -> None:
        async with pool.with_token(stranger, certify):
            pass

    ends = await asyncio.gather(*(ask() for _ in range(32)), return_exceptions=True)
    assert {type(end) for end in ends} == {NotAdmitted}
    await pool.close()
    async with asyncio.timeout(10):
        while not (failed := FAILED.findall(lines.read_bytes()[before:])):  # noqa: ASYNC110 - a file's
            await asyncio.sleep(0.1)
    assert len(failed) == 1


async def test_many_users_at_once_are_let_in_one_after_the_other(site: Site, way: Way):
    """48 come in the same moment; sshd, with its own MaxStartups, turns nobody away."""
    connector = SshConnector(way.settings, SystemClock())
    pool = SessionPool(
        connectors={"main": connector},
        realms={"main": "testbed"},
        denials=Everybody(),
        clock=SystemClock(),
    )
    certify = way.translator.with_token(way.token, site.addresses.realm)

    async def come(number: int) -> None:
        who = User(Identity("https://iam.example.org/", str(number)), "main", "alice")
        async with pool.with_token(who, certify) as session:
            assert await session.files(ROW, "/home/alice/nothing") is None

    lines = site.path("log", "sshd.log")
    before = lines.stat().st_size
    try:
        await asyncio.gather(*(come(number) for number in range(48)))
    finally:
        await pool.close()
    assert b"MaxStartups" not in lines.read_bytes()[before:]


async def test_through_a_jump_host(site: Site, way: Way, user: str, tmp_path: Path):
    """The node is reached under the gateway's own key for the jump host, whose key is checked."""
    port = unused_port()
    key = await asyncio.to_thread(new_key, tmp_path / "jump")
    allowed = site.folder.write("ssh/jump_keys", key.with_suffix(".pub").read_text())
    node = f"127.0.0.1:{way.settings.port}"
    await second_node(
        site,
        "jump",
        port,
        *(f"AuthorizedKeysFile {allowed}", "StrictModes no", f"PermitOpen {node}"),
        *("MaxSessions 0", f"AllowUsers {user}"),
    )
    jump = JumpSettings(
        host="127.0.0.1",
        port=port,
        user=user,
        key_file=str(key),
        known_hosts=way.settings.known_hosts,
    )
    connector = SshConnector(msgspec.structs.replace(way.settings, jump=jump), SystemClock())
    try:
        sessions = await asyncio.gather(
            *[connector.connect("alice", await way.credentials()) for _ in range(4)]
        )
        for session in sessions:
            assert await session.files(ROW, "/home/alice/nothing") is None
            await session.close()
        opened = site.path("log", "jump.log").read_bytes().count(b"Accepted publickey")
        assert opened == 1
    finally:
        await connector.close()
    empty = tmp_path / "nobody"
    empty.write_text("")
    unknown = msgspec.structs.replace(jump, known_hosts=str(empty))
    connector = SshConnector(msgspec.structs.replace(way.settings, jump=unknown), SystemClock())
    with pytest.raises(NodeAway, match="jump host"):
        await connector.connect("alice", await way.credentials())
    await connector.close()
    await site.stop("jump")


async def test_a_login_node_that_is_away_is_told_at_once_and_fails_no_job(site: Site):
    """503 in under 0.2 s while it is known; the job waits, says why, and runs afterwards."""
    async with site.issuer() as control:
        await control.put_user("nodeaway", groups=["hpc"])
    await site.import_accounts()
    async with aiohttp.ClientSession() as http:
        caller = Caller(http, site.addresses.gateway, await site.token("nodeaway"))
        await site.stop("sshd")
        try:
            job = await caller.submit("echo ran")
            assert "login node" in (await caller.told(job["id"]))["status_message"]
            for _ in range(5):
                before = time.monotonic()
                answer = await caller("GET", f"/v1/jobs/{job['id']}/stdout")
                assert (answer.status, answer.json["retryable"]) == (503, True)
                assert time.monotonic() - before < 0.2
        finally:
            await site.start("sshd")
        assert (await caller.until(job["id"]))["state"] == "completed"
        assert await caller.output(job) == "ran\n"
