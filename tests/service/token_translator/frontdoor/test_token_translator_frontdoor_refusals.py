"""What the front door does not do, and whom it sends away again."""

import asyncio
from typing import Any

import asyncssh
import pytest
from asyncssh.packet import Boolean, String, UInt32

from headgate.clock import SystemClock
from tests.service.token_translator.frontdoor.prompted import Asked, log_in


async def test_suspended_while_inside(door: Any, translator: Any, node: Any, issuer: Any):
    """A suspension ends the person's connections within two seconds, and nobody else's."""
    async with door.connect() as theirs, door.connect(door.token("bob")) as other:
        process = await theirs.create_process("wait")
        assert await process.stdout.readline() == b"here\n"
        assert len(node.connections) == 1
        translator.deny(issuer.url, "alice", "stolen laptop\x1b[2J")
        async with asyncio.timeout(2):
            await theirs.wait_closed()
            for behind in tuple(node.connections):
                await behind.wait_closed()
        assert (await other.run("echo in")).stdout == b"in\n"
    client = Asked([door.token()])
    assert await log_in(door, client) == ""
    assert "stolen laptop?[2J" in client.words[1]


async def test_suspended_elsewhere_goes_on_here(door: Any, translator: Any, issuer: Any):
    """A hold in another realm is none here."""
    async with door.connect() as theirs:
        translator.deny(issuer.url, "alice", "somewhere else", realm="other")
        translator.deny(issuer.url, "bob", "to see that it was heard")
        while not await refused(door, "bob"):
            pass
        assert (await theirs.run("echo in")).stdout == b"in\n"


async def refused(door: Any, sub: str) -> bool:
    """Whether somebody's login is refused."""
    return await log_in(door, Asked([door.token(sub)])) == ""


class HurriedClock(SystemClock):
    """A clock on which the feed's ten seconds pass at once when a test says so."""

    ahead = 0.0

    def monotonic(self) -> float:
        """Seconds, and those that were skipped."""
        return super().monotonic() + self.ahead

    async def sleep(self, seconds: float) -> None:
        """Return when they have passed, or were skipped."""
        until = self.monotonic() + seconds
        while self.monotonic() < until:  # noqa: ASYNC110 - time is what is waited for
            await asyncio.sleep(0.01)


async def test_silent_feed_ends_all_connections(open_door: Any, translator: Any):
    """Who may be inside is not known without the feed: everybody leaves, nobody comes in."""
    clock = HurriedClock()
    async with open_door(clock=clock) as door, door.connect() as connection:
        translator.silent = True
        clock.ahead = 11.0
        async with asyncio.timeout(2):
            await connection.wait_closed()
        with pytest.raises(asyncssh.DisconnectError, match="not possible at the moment"):
            await log_in(door, Asked([door.token()]))


@pytest.mark.parametrize(
    ("host", "port"),
    [
        ("127.0.0.1", None),
        ("localhost", None),
        ("169.254.169.254", 80),
        ("login.site.example", 22),
        ("login.site.example", 0),
        ("elsewhere.example", 22),
        ("::1", None),
        ("", 22),
    ],
)
async def test_jumps_elsewhere_are_refused(door: Any, node: Any, host: str, port: int | None):
    """A jump to this machine, to cloud metadata or to any target not listed is refused."""
    async with door.connect() as connection:
        with pytest.raises(asyncssh.ChannelOpenError, match="not one of the targets"):
            await connection.open_connection(host, node.port if port is None else port)
    assert node.logins == []


async def test_forwarding_of_ports_sockets_agents_and_displays_is_refused(door: Any):
    """Nothing listens for a person here, and nothing of theirs is reached from here."""
    async with door.connect() as connection:
        with pytest.raises(asyncssh.ChannelListenError):
            await connection.start_server(lambda *_: None, "", 0)
        with pytest.raises(asyncssh.ChannelListenError):
            await connection.start_unix_server(lambda *_: None, "/srv/socket")
        with pytest.raises(asyncssh.ChannelOpenError):
            await connection.open_unix_connection("/run/docker.sock")
        channel, _ = await connection.create_session(asyncssh.SSHClientSession, "wait")
        display = Boolean(False), String("MIT-MAGIC-COOKIE-1"), String("00" * 16), UInt32(0)  # noqa: FBT003 - RFC 4254
        assert not await channel._make_request(b"x11-req", *display)
        assert not await channel._make_request(b"auth-agent-req@openssh.com")
        channel.close()


@pytest.mark.parametrize("subsystem", ["netconf", "sftp-server", "../sftp", "sftp ", "SFTP"])
async def test_other_subsystems_are_refused(door: Any, node: Any, subsystem: str):
    """Of subsystems only sftp gets through; the others hear so."""
    async with door.connect() as connection:
        process = await connection.create_process(subsystem=subsystem)
        done = await process.wait(check=False)
    assert done.exit_status == 255
    assert b"only sftp" in done.stderr
    assert node.sessions == []


@pytest.mark.parametrize("command", ["echo a\0b", "\0"])
async def test_command_with_nul(door: Any, node: Any, command: str):
    """A command with a NUL in it would end there for the login node's shell: it is refused."""
    async with door.connect() as connection:
        done = await connection.run(command, check=False)
    assert done.exit_status == 255
    assert node.sessions == []


async def test_sessions_on_one_connection_are_counted(door: Any):
    """An eleventh session of a connection is refused, until another has ended."""
    async with door.connect() as connection:
        running = [await connection.create_process("wait") for _ in range(10)]
        with pytest.raises(asyncssh.ChannelOpenError, match="too many sessions"):
            await connection.create_process("wait")
        running[0].close()
        await running[0].wait_closed()
        assert (await connection.run("echo in")).stdout == b"in\n"
