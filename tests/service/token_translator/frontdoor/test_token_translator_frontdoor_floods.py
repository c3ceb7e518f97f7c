"""What one visitor sends without measure, and what it costs the others: nothing."""

from typing import Any

import asyncssh
import pytest
from asyncssh.constants import MSG_IGNORE
from asyncssh.packet import String

from headgate.introspection import IntrospectionSettings
from headgate.oidc import IssuerSettings
from tests.service.token_translator.frontdoor.conftest import write_private
from tests.service.token_translator.frontdoor.prompted import Asked, log_in
from token_translator.frontdoor.limits import LimitSettings


class Flooding(Asked):
    """Sends that many packets of a kilobyte that mean nothing, and then its answer."""

    def __init__(self, answer: str, packets: int) -> None:
        super().__init__([answer])
        self._packets = packets

    def connection_made(self, conn: asyncssh.SSHClientConnection) -> None:
        """Connected."""
        self._connection = conn

    def kbdint_challenge_received(self, *challenge: Any) -> list[str] | None:
        """Flood."""
        for _ in range(self._packets):
            self._connection.send_packet(MSG_IGNORE, String(bytes(1000)))
        return super().kbdint_challenge_received(*challenge)


async def test_some_noise_before_the_login(door: Any):
    """A client may send more than it has to."""
    assert await log_in(door, Flooding(door.token(), 20)) == "in\n"


async def test_flood_before_the_login(open_door: Any):
    """Whoever sends more than 64 KiB before the login is cut off; it is a failed login."""
    async with open_door(limits=LimitSettings(failures=1)) as door:
        with pytest.raises((asyncssh.DisconnectError, OSError)):
            await log_in(door, Flooding(door.token(), 80))
        with pytest.raises(asyncssh.DisconnectError, match="have failed"):
            await log_in(door, Asked([door.token()]))


@pytest.mark.parametrize(("requests", "size"), [(101, 1), (5, 4000)])
async def test_flood_of_variables(door: Any, requests: int, size: int):
    """More than 100 variables of a session, or 16 KiB of them, end the connection."""
    async with door.connect() as connection, door.connect() as other:
        process = await connection.create_process("wait")
        assert await process.stdout.readline() == b"here\n"
        for n in range(requests):
            process.channel._send_request(b"env", String(f"A{n}"), String(bytes(size)))
        await connection.wait_closed()
        assert (await other.run("echo in")).stdout == b"in\n"


async def test_some_variables_that_are_refused(door: Any):
    """A hundred variables that nobody wants do no harm."""
    async with door.connect() as connection:
        done = await connection.run("environment", env={f"A{n}": "x" for n in range(99)})
    assert done.stdout == b"{}"


async def test_opaque_token_is_shown_to_nobody(open_door: Any, issuer: Any, tmp_path: Any):
    """What is no JWT is refused without a word to an issuer that could be asked."""
    write_private(tmp_path / "secret", b"s")
    inquiry = IntrospectionSettings(client_id="door", client_secret_file=str(tmp_path / "secret"))
    trusted = (IssuerSettings(url=issuer.url, introspection=inquiry),)
    before = list(issuer.asked)
    async with open_door(issuers=trusted) as door:
        client = Asked(["opaque-token"])
        assert await log_in(door, client) == ""
    assert "not a signed JWT" in client.words[1]
    assert issuer.asked == before
