"""The ledger's copy over TLS: to the one server that is meant, as the one client it knows."""

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headgate.settings import SettingsError
from testbed.waiting import until
from tests.service.token_translator.signer_requests import connected, sign
from tests.service.token_translator.syslog_tls import Ca, TlsServer
from token_translator.signer import syslog
from token_translator.signer.settings import SyslogSettings


@pytest.fixture
def ca(tmp_path: Path) -> Ca:
    """The site's own authority."""
    return Ca.make(tmp_path / "ca")


def settings(server: TlsServer, ca: Ca, **more: str) -> SyslogSettings:
    """Where to send."""
    words = {"address": server.address, "tls_ca": str(ca.file), **more}
    return msgspec.convert(words, SyslogSettings)


async def sent(to: SyslogSettings, *messages: bytes) -> None:
    """Send messages and close."""
    way = syslog.transport(to)
    try:
        await way.send(messages)
    finally:
        await way.close()


async def test_messages_over_tls(ca: Ca) -> None:
    """They arrive whole and in order, whatever they hold; a second batch on the same connection."""
    async with TlsServer().listening(ca) as server:
        way = syslog.transport(settings(server, ca))
        await way.send([b"one", b"two\n2 words"])
        await way.send([b"x" * 100_000])
        await until(lambda: len(server.messages) == 3, seconds=10)
        assert server.messages[:2] == [b"one", b"two\n2 words"]
        assert server.clients == []
        await way.close()


async def test_the_server_must_be_the_one(ca: Ca, tmp_path: Path) -> None:
    """One of another authority, or with another name, is told nothing."""
    async with TlsServer().listening(Ca.make(tmp_path / "other")) as stranger:
        with pytest.raises(OSError, match="certificate verify failed"):
            await sent(settings(stranger, ca), b"secret")
    async with TlsServer().listening(ca, address="127.0.0.2") as other:
        with pytest.raises(OSError, match="certificate verify failed"):
            await sent(settings(other, ca), b"secret")
    assert stranger.messages == other.messages == []


async def test_the_client_must_be_known(ca: Ca, tmp_path: Path) -> None:
    """A server that asks for a certificate gets it; without, nothing counts as sent."""
    certificate, key = ca.issue("headgate-signer")
    mine = {"tls_certificate": str(certificate), "tls_key": str(key)}
    async with TlsServer().listening(ca, trusts=ca) as server:
        with pytest.raises(OSError):  # noqa: PT011 - TLS's own words differ
            await sent(settings(server, ca), b"lost")
        stranger = Ca.make(tmp_path / "other").issue("headgate-signer")
        wrong = {"tls_certificate": str(stranger[0]), "tls_key": str(stranger[1])}
        with pytest.raises(OSError):  # noqa: PT011 - likewise
            await sent(settings(server, ca, **wrong), b"lost")
        await sent(settings(server, ca, **mine), b"mine")
        await until(lambda: bool(server.messages), seconds=10)
        assert (server.messages, server.clients) == ([b"mine"], ["headgate-signer"])


async def test_a_server_that_does_not_read(ca: Ca, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it does not take within the deadline was not sent: signing's memory does not fill."""
    monkeypatch.setattr(syslog, "SECONDS", 2.0)
    async with TlsServer().listening(ca) as server:
        server.reads.clear()
        way = syslog.transport(settings(server, ca))
        with pytest.raises(TimeoutError):
            await way.send([b"x" * 50_000_000])
        await way.close()
        server.reads.set()


async def test_a_server_that_speaks_no_tls(monkeypatch: pytest.MonkeyPatch, ca: Ca) -> None:
    """Silence where a handshake should be ends at the deadline."""
    monkeypatch.setattr(syslog, "SECONDS", 1.0)
    held: list[asyncio.StreamWriter] = []

    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        held.append(writer)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    one = TlsServer(port=server.sockets[0].getsockname()[1])
    with pytest.raises((OSError, TimeoutError)):
        await sent(settings(one, ca), b"x")
    server.close()
    for writer in held:
        writer.close()
    await server.wait_closed()


@pytest.mark.parametrize(
    "wrong",
    [
        {"address": "tcp://127.0.0.1:1", "tls_ca": "/ca.pem"},
        {"address": "tls://127.0.0.1:1", "tls_certificate": "/only.pem"},
        {"address": "tls://127.0.0.1:1", "tls_key": "/only.key"},
        {"address": "tls://127.0.0.1"},
    ],
)
def test_settings_that_contradict_themselves(wrong: dict[str, str]) -> None:
    """Words about TLS without TLS, half a key pair, and no port are refused."""
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(wrong, SyslogSettings)


def test_files_that_are_not_there(ca: Ca, tmp_path: Path) -> None:
    """They are named when the signer starts; so is a key that others can read."""
    server = TlsServer(port=1)
    with pytest.raises(SettingsError, match=r"gone\.pem"):
        syslog.transport(SyslogSettings(address=server.address, tls_ca=f"{tmp_path}/gone.pem"))
    certificate, key = ca.issue("headgate-signer")
    key.chmod(0o644)
    mine = {"tls_certificate": str(certificate), "tls_key": str(key)}
    with pytest.raises(SettingsError, match="use 0600"):
        syslog.transport(settings(server, ca, **mine))


async def test_the_signers_copy_over_tls(make_signer: Any, ca: Ca) -> None:
    """From the signer's start on, over an outage, and with a certificate of its own."""
    certificate, key = ca.issue("headgate-signer")
    server = TlsServer()
    async with server.listening(ca, trusts=ca):
        words = (
            f'{{ address = "{server.address}", tls_ca = "{ca.file}", alarm_after = 1, '
            f'tls_certificate = "{certificate}", tls_key = "{key}" }}'
        )
        signer = await asyncio.to_thread(make_signer, {"syslog": words})
        await until(lambda: len(server.messages) == 2, seconds=20)
    log = signer.folder / "signer.log"
    async with connected(signer) as client:
        await asyncio.gather(*(sign(client) for _ in range(20)))
        await until(lambda: b"ledger_copy_behind" in log.read_bytes(), seconds=20)
        async with server.listening(ca, trusts=ca):
            everything = set(range(1, 23))
            await until(lambda: _seqs(server) >= everything, seconds=30)
            await asyncio.to_thread(signer.stop)


def _seqs(server: TlsServer) -> set[int]:
    return {json.loads(one[one.index(b"{") :])["seq"] for one in server.messages}
