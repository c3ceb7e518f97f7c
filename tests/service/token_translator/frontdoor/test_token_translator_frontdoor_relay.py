"""What passes through the front door: output, errors, ends, terminals, signals, files."""

import asyncio
import hashlib
import json
from pathlib import Path
from typing import Any

import asyncssh
import pytest


async def test_command_with_its_streams_and_status(door: Any, node: Any):
    """Output, errors and exit status are the command's own, and it runs as the account."""
    async with door.connect() as connection:
        done = await connection.run("echo out; echo err >&2; exit 7", check=False)
    assert (done.stdout, done.stderr, done.exit_status) == (b"out\n", b"err\n", 7)
    assert node.logins == ["alice"]


async def test_command_that_a_signal_ended(door: Any):
    """The signal that ended a command arrives as one."""
    async with door.connect() as connection:
        done = await connection.run("killed SEGV", check=False)
    assert done.exit_signal is not None
    assert done.exit_signal[0] == "SEGV"


async def test_input_ends_before_output(door: Any):
    """The end of the input reaches the command, which may still answer."""
    async with door.connect() as connection:
        done = await connection.run("sort -r; echo end", input=b"a\nb\n")
    assert done.stdout == b"b\na\nend\n"


async def test_output_ends_before_input(door: Any):
    """A command that closes its output first still ends with its own status."""
    async with door.connect() as connection:
        process = await connection.create_process("exec >&- 2>&-; read word; exit 3")
        assert await process.stdout.read() == b""
        process.stdin.write(b"on\n")
        await process.wait()
    assert process.exit_status == 3


async def test_terminal_and_its_size(door: Any):
    """The login node learns the terminal's kind and size."""
    async with door.connect() as connection:
        done = await connection.run("terminal", term_type="xterm", term_size=(132, 43))
    assert done.stdout == b"xterm 132x43"


async def test_window_changes(door: Any):
    """A window that changes its size does so on the login node."""
    async with door.connect() as connection:
        process = await connection.create_process("resized", term_type="xterm", term_size=(80, 24))
        assert await process.stdout.readline() == b"ready\n"
        process.change_terminal_size(100, 50)
        assert await process.stdout.read() == b"100x50"


async def test_signals(door: Any):
    """A signal goes to the command; what is no signal of RFC 4254 goes nowhere."""
    async with door.connect() as connection:
        process = await connection.create_process("signalled")
        assert await process.stdout.readline() == b"ready\n"
        process.send_signal("EVIL@openssh.com")
        process.send_signal("USR1")
        assert await process.stdout.read() == b"USR1"


async def test_environment_is_the_locale(door: Any):
    """LANG and LC_* reach the login node; LD_PRELOAD and the like do not."""
    sent = {"LANG": "C.UTF-8", "LD_PRELOAD": "/srv/evil.so", "BASH_ENV": "/srv/evil"}
    async with door.connect() as connection:
        done = await connection.run("environment", env=sent)
    assert json.loads(done.stdout) == {"LANG": "C.UTF-8"}


@pytest.mark.parametrize("direction", ["get", "put"])
async def test_sftp(door: Any, tmp_path: Path, direction: str):
    """A file goes through SFTP both ways as it is."""
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(bytes(range(256)) * 4096)
    async with door.connect() as connection, connection.start_sftp_client() as sftp:
        await getattr(sftp, direction)(str(source), str(target))
    assert target.read_bytes() == source.read_bytes()


async def test_many_bytes_both_ways(door: Any):
    """20 MB come back as they went."""
    data = bytes(range(256)) * (20 * 4096)
    async with door.connect() as connection:
        done = await connection.run("cat", input=data)
    assert hashlib.sha256(done.stdout).digest() == hashlib.sha256(data).digest()


async def test_sessions_share_one_login(door: Any, translator: Any, node: Any):
    """Several sessions of a connection cost one certificate and one login."""
    async with door.connect() as connection:
        done = await asyncio.gather(*(connection.run(f"echo {n}") for n in range(5)))
    assert [each.stdout for each in done] == [f"{n}\n".encode() for n in range(5)]
    assert len(translator.asked) == 1
    assert node.logins == ["alice"]


async def test_what_is_asked_of_the_translator(door: Any, translator: Any):
    """The certificate is for a key of this login, a minute, the realm, a person and from where."""
    async with door.connect() as one, door.connect() as another:
        await one.run("true")
        await another.run("true")
    keys = [asked.pop("public_key") for asked in translator.asked]
    assert len(set(keys)) == 2
    asked = {"realm": "site1", "profile": "person", "lifetime": 60, "client_address": "127.0.0.1"}
    assert translator.asked == [asked] * 2


async def test_own_address_is_asked_for(open_door: Any, translator: Any):
    """Where it is set, certificates are asked for with the front door's own address."""
    async with open_door(source_address="127.0.0.1") as door, door.connect() as connection:
        await connection.run("true")
    assert translator.asked[0]["source_address"] == "127.0.0.1"


async def test_way_to_the_node_has_a_cipher_that_is_cheap(door: Any, node: Any):
    """Everything is encrypted twice here: towards the nodes by what processors do themselves."""
    async with door.connect() as connection:
        await connection.run("true")
        (behind,) = node.connections
        assert behind.get_extra_info("send_cipher") == "aes128-gcm@openssh.com"


async def test_jump_to_a_listed_target(door: Any, node: Any):
    """`ssh -J`: a listed target is reached, and the person's own credential is judged there."""
    async with door.connect() as connection:
        reader, writer = await connection.open_connection("login.site.example", node.port)
        assert (await reader.readline()).startswith(b"SSH-2.0-")
        writer.close()


async def test_end_of_the_visit_ends_the_connection_to_the_node(door: Any, node: Any):
    """Who hangs up leaves nothing behind on the login node."""
    async with door.connect() as connection:
        process = await connection.create_process("wait")
        assert await process.stdout.readline() == b"here\n"
        (behind,) = node.connections
    async with asyncio.timeout(5):
        await behind.wait_closed()


async def test_a_node_that_breaks_ends_the_session_with_words(door: Any, node: Any):
    """When the login node goes away the session ends as ssh's own failures do, and says so."""
    async with door.connect() as connection:
        process = await connection.create_process("wait")
        assert await process.stdout.readline() == b"here\n"
        (behind,) = node.connections
        behind.abort()
        async with asyncio.timeout(5):
            done = await process.wait()
        assert done.exit_status == 255
        assert b"broke" in done.stderr
        again = await connection.run("true", check=False)
        assert again.exit_status == 255
        assert b"log in again" in again.stderr


async def test_a_node_with_another_host_key_is_not_entered(door: Any, node: Any):
    """A login node that cannot show the known key gets no session of anybody's."""
    other = asyncssh.generate_private_key("ssh-ed25519").export_public_key().decode().strip()
    node.known_hosts.write_text(f"[127.0.0.1]:{node.port} {other}\n")
    async with door.connect() as connection:
        done = await connection.run("true", check=False)
    assert done.exit_status == 255
    assert node.sessions == []


async def test_slow_reader_holds_up_the_writer(door: Any, node: Any):
    """Who reads nothing has no bytes kept for them: the command waits."""
    async with door.connect() as connection:
        process = await connection.create_process("zeros 200000000", window=2**31)
        await process.stdout.read(1)
        connection._transport.pause_reading()  # the socket, whatever the window says
        sent = await _settled(node)
        assert sent < 60_000_000
        connection._transport.resume_reading()
        assert len(await process.stdout.read()) == 200000000 // 65536 * 65536 - 1


async def _settled(node: Any) -> int:
    """Bytes that the login node got rid of, once that does not grow any more."""
    (behind,) = node.connections
    before = -1
    while (now := behind._rekey_bytes_sent) != before:
        before = now
        await asyncio.sleep(0.5)
    return before
