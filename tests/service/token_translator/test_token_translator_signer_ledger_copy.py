"""The ledger's copy off the host, and a signer restored from a backup, with the copy or without."""

import asyncio
import contextlib
import json
import shutil
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from headgate.problems import Forbidden
from testbed.waiting import until
from tests.service.token_translator.signer_requests import (
    ALICE,
    connected,
    listed,
    run,
    sign,
    verified,
)


@dataclass(slots=True)
class Syslog:
    """A syslog server that keeps what it gets, by each of the three ways."""

    address: str = ""
    messages: list[bytes] = field(default_factory=list)

    def keep(self, path: Path) -> Path:
        """Write what came into a file, a line each, as a syslog server does."""
        path.write_bytes(b"".join(b"2026 host %b\n" % one for one in self.messages))
        return path

    def entries(self) -> list[dict[str, Any]]:
        """The entries in the messages."""
        return [json.loads(one[one.index(b"{") :]) for one in self.messages]


class _Datagrams(asyncio.DatagramProtocol):
    def __init__(self, server: Syslog) -> None:
        self.server = server

    def datagram_received(self, data: bytes, _: Any) -> None:
        self.server.messages.append(data)


@contextlib.asynccontextmanager
async def listening(server: Syslog, way: str, folder: Path, port: int = 0) -> AsyncIterator[None]:
    """Take messages until the end; connections are cut then."""
    loop = asyncio.get_running_loop()
    if way == "tcp":
        writers: list[asyncio.StreamWriter] = []

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writers.append(writer)
            with contextlib.suppress(asyncio.IncompleteReadError):
                while True:
                    size = int(await reader.readuntil(b" "))
                    server.messages.append(await reader.readexactly(size))

        tcp = await asyncio.start_server(serve, "127.0.0.1", port)
        server.address = f"tcp://127.0.0.1:{tcp.sockets[0].getsockname()[1]}"
        yield
        tcp.close()
        for writer in writers:
            writer.close()
        await tcp.wait_closed()
        return
    if way == "udp":
        transport, _ = await loop.create_datagram_endpoint(
            lambda: _Datagrams(server), ("127.0.0.1", port)
        )
        server.address = f"udp://127.0.0.1:{transport.get_extra_info('sockname')[1]}"
    else:
        one = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        (folder / "log").unlink(missing_ok=True)
        one.bind(str(folder / "log"))
        transport, _ = await loop.create_datagram_endpoint(lambda: _Datagrams(server), sock=one)
        server.address = f"unix:{folder}/log"
    yield
    transport.close()


def syslog(server: Syslog) -> dict[str, str]:
    """The settings."""
    return {"syslog": f'{{ address = "{server.address}", alarm_after = 1 }}'}


@pytest.mark.parametrize("way", ["tcp", "udp", "unix"])
async def test_the_copy_off_the_host(make_signer: Any, tmp_path: Path, way: str) -> None:
    """Each entry is sent at once, whole, by each way; names are not in it in clear."""
    server = Syslog()
    async with listening(server, way, tmp_path):
        signer = await asyncio.to_thread(make_signer, syslog(server))
        async with connected(signer) as client:
            serial = (await sign(client)).serial
            with pytest.raises(Forbidden):
                await sign(client, principals=("root",))
            await until(lambda: len(server.messages) == 4, seconds=10)
            assert (await run(signer, "revoke", "--serial", "1", "--reason", "x")).returncode == 0
            await until(lambda: len(server.messages) == 5, seconds=20)
        await asyncio.to_thread(signer.stop)
    kinds = [entry["kind"] for entry in server.entries()]
    assert kinds == ["authority", "authority", "issued", "refused", "revoked"]
    assert server.messages[2].startswith(b"<85>1 20")
    assert b" headgate-signer " in server.messages[2]
    assert b" issued - {" in server.messages[2]
    assert server.entries()[2]["serial"] == serial
    assert b"alice" not in b"".join(server.messages)
    assert b"iam.example" not in b"".join(server.messages)
    kept = await asyncio.to_thread(server.keep, tmp_path / "kept.log")
    assert (await verified(signer, "--copy", str(kept)))["same_in_copy"] == 5
    server.messages[3] = server.messages[3].replace(b'"ceiling"', b'"nothing"')
    kept = await asyncio.to_thread(server.keep, tmp_path / "kept.log")
    done = await run(signer, "ledger verify", "--copy", str(kept))
    assert done.returncode == 1
    assert "entry 4 is another in the copy" in done.stdout


@pytest.mark.parametrize("way", ["tcp", "unix"])
async def test_the_copy_while_its_server_is_away(
    make_signer: Any, tmp_path: Path, way: str
) -> None:
    """Signing goes on, the log alarms, and what was missed is sent when the server is back."""
    server = Syslog()
    async with listening(server, way, tmp_path):
        signer = await asyncio.to_thread(make_signer, syslog(server))
        await until(lambda: len(server.messages) == 2, seconds=10)
    port = int(server.address.rpartition(":")[2]) if way == "tcp" else 0
    log = signer.folder / "signer.log"
    async with connected(signer) as client:
        await asyncio.gather(*(sign(client) for _ in range(50)))
        await until(lambda: b"ledger_copy_behind" in log.read_bytes(), seconds=20)
        async with listening(server, way, tmp_path, port):
            everything = set(range(1, 53))
            await until(lambda: {e["seq"] for e in server.entries()} >= everything, seconds=20)
        assert b"ledger_copy_caught_up" in log.read_bytes()
        # Killed before it could send: a new one goes on where this one was.
        await sign(client)
        await asyncio.to_thread(signer.kill)
    async with listening(server, way, tmp_path, port):
        await asyncio.to_thread(signer.start)
        await until(lambda: server.entries()[-1]["seq"] == 53, seconds=20)
        await asyncio.to_thread(signer.stop)


def back_up(signer: Any, name: str) -> None:
    """Copy a database and all that belongs to it, of a signer that is stopped."""
    shutil.copy(signer.folder / f"{name}.sqlite", signer.folder / f"{name}.backup")


def restore(signer: Any, name: str) -> None:
    """Put a backup in the place of a database."""
    for end in ("-wal", "-shm"):
        (signer.folder / f"{name}.sqlite{end}").unlink(missing_ok=True)
    shutil.copy(signer.folder / f"{name}.backup", signer.folder / f"{name}.sqlite")


async def with_yesterdays_backup(signer: Any, *names: str) -> tuple[list[int], list[int]]:
    """Sign, back up, sign more, restore: the serials from before and after the backup."""
    async with connected(signer) as client:
        before = [(await sign(client, "alice")).serial for _ in range(3)]
    await asyncio.to_thread(signer.stop)
    for name in names:
        back_up(signer, name)
    await asyncio.to_thread(signer.start)
    async with connected(signer) as client:
        after = [(await sign(client, sub)).serial for sub in ("alice", "bob", "bob", "carol")]
    await asyncio.to_thread(signer.stop)
    for name in names:
        restore(signer, name)
    return before, after


async def test_yesterdays_backup(make_signer: Any) -> None:
    """It is refused; reconciled, no serial comes twice and all that was issued is revoked."""
    signer = await asyncio.to_thread(make_signer)
    before, after = await with_yesterdays_backup(signer, "ledger")
    refused = await run(signer, "serve")
    assert refused.returncode == 78
    assert "restored from a backup" in refused.stderr
    assert (await run(signer, "ledger verify")).returncode == 1
    done = json.loads((await run(signer, "reconcile", "--json")).stdout)
    assert done["revoked"] == [[1, after[-1] + 1]]
    assert "keys" in done["again"]
    await asyncio.to_thread(signer.start)
    async with connected(signer) as client:
        assert (await sign(client)).serial > after[-1]
        assert (await listed(client)).serials == ((1, after[-1] + 1),)
        live = await client.live(ALICE)
        assert [each.serial for each in live][1:] == before[::-1]
    await verified(signer)


async def test_yesterdays_backup_and_todays_copy(make_signer: Any, tmp_path: Path) -> None:
    """With the copy of the syslog server nothing is lost: every entry is back, none is revoked."""
    server = Syslog()
    async with listening(server, "tcp", tmp_path):
        signer = await asyncio.to_thread(make_signer, syslog(server))
        _, after = await with_yesterdays_backup(signer, "ledger")
        await asyncio.to_thread(signer.stop)
    kept = await asyncio.to_thread(server.keep, tmp_path / "kept.log")
    done = json.loads((await run(signer, "reconcile", "--copy", str(kept), "--json")).stdout)
    assert (done["put_back"], done["revoked"]) == (4, [])
    assert (await verified(signer, "--copy", str(kept)))["serial"] == after[-1]
    await asyncio.to_thread(signer.start)
    async with connected(signer) as client:
        assert (await sign(client)).serial == after[-1] + 1
        assert len(await client.live(ALICE)) == 5


async def test_yesterdays_backup_of_both(make_signer: Any, tmp_path: Path) -> None:
    """Certificates of persons whose key was made since are revoked: nobody could find them."""
    server = Syslog()
    async with listening(server, "tcp", tmp_path):
        signer = await asyncio.to_thread(make_signer, syslog(server))
        _, after = await with_yesterdays_backup(signer, "ledger", "persons")
        await asyncio.to_thread(signer.stop)
    kept = await asyncio.to_thread(server.keep, tmp_path / "kept.log")
    done = json.loads((await run(signer, "reconcile", "--copy", str(kept), "--json")).stdout)
    assert (done["put_back"], done["revoked"]) == (4, [[after[1], after[3]]])
    await asyncio.to_thread(signer.start)


async def test_yesterdays_backup_of_persons(make_signer: Any) -> None:
    """A restored database of persons alone is noticed too."""
    signer = await asyncio.to_thread(make_signer)
    _, after = await with_yesterdays_backup(signer, "persons")
    refused = await run(signer, "serve")
    assert refused.returncode == 78
    assert "3 unexpired certificates are of persons" in refused.stderr
    done = json.loads((await run(signer, "reconcile", "--json")).stdout)
    assert done["revoked"] == [[after[1], after[3]]]
    await asyncio.to_thread(signer.start)
