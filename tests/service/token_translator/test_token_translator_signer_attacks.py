"""The HTTP process, taken over: its socket to the signer, driven by whoever took it."""

import asyncio
import base64
import json
import subprocess
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, ssh

from headgate.problems import Forbidden, Invalid, TooMany
from tests.service.token_translator.signer_requests import (
    KEY_ID,
    connected,
    grant,
    new_key,
    run,
    sign,
    sign_host,
    subject,
)
from token_translator import wire

LISTED = '["login*.site.example"]'


def _line(kind: str, *parts: bytes) -> str:
    blob = b"".join(len(part).to_bytes(4, "big") + part for part in (kind.encode(), *parts))
    return f"{kind} {base64.b64encode(blob).decode()}"


def _openssh(key: Any) -> str:
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    return str(public.decode())


def _p224() -> str:
    point = ec.generate_private_key(ec.SECP224R1()).public_key()
    raw = point.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
    return _line("ecdsa-sha2-nistp224", b"nistp224", raw)


ONE = new_key()
KEYS = {
    "RSA of 2048 bits": _openssh(rsa.generate_private_key(65537, 2048)),
    "RSA with exponent 1": _line("ssh-rsa", b"\1", b"\0" + b"\xff" * 384),
    "RSA with an even modulus": _line("ssh-rsa", b"\1\0\1", b"\0" + b"\xfe" * 384),
    "DSA": _line("ssh-dss", b"\1", b"\1", b"\1", b"\1"),
    "ECDSA on P-224": _p224(),
    "ECDSA off its curve": _line("ecdsa-sha2-nistp256", b"nistp256", b"\4" + b"\1" * 64),
    "ECDSA of another curve than it says": _line("ecdsa-sha2-nistp256", b"nistp384", b"\4"),
    "a security key where none are accepted": _line(
        "sk-ssh-ed25519@openssh.com", b"\1" * 32, b"ssh:"
    ),
    "Ed25519 of 31 bytes": _line("ssh-ed25519", b"\1" * 31),
    "an options prefix": f'command="id" {ONE}',
    "two lines": f"{ONE}\n{new_key()}",
    "a carriage return": f"{ONE}\r{new_key()}",
    "NUL": f"{ONE}\0",
    "bytes behind the key": f"{ONE.split()[0]} {ONE.split()[1]}AAAA",
    "a type that is not its own": ONE.replace("ssh-ed25519", "ssh-rsa"),
    "a private key": "-----BEGIN OPENSSH PRIVATE KEY-----",
    "nothing": "",
    "30 kB": f"ssh-ed25519 {'A' * 30_000}",
}


@pytest.mark.parametrize("attack", KEYS)
async def test_keys(signer: Any, attack: str) -> None:
    """No such key gets a certificate, of a person or a host."""
    async with connected(signer) as client:
        with pytest.raises(Invalid) as caught:
            await sign(client, key=KEYS[attack])
    assert caught.value.stable_code == "key_refused"
    assert KEYS[attack] == "" or KEYS[attack] not in caught.value.detail


async def test_a_megabyte(signer: Any) -> None:
    """A key of 1 MB is not even sent; sent all the same, it ends that connection only."""
    async with connected(signer) as client:
        with pytest.raises(Invalid, match="more than a request"):
            await sign(client, key="A" * 1_000_000)
        request = wire.Sign(1, grant(), "A" * 1_000_000, KEY_ID, subject())
        reader, writer = await asyncio.open_unix_connection(str(signer.socket))
        writer.write(wire.frame(request))
        assert await asyncio.wait_for(reader.read(), 10) == b""
        writer.close()
        with_reset = await asyncio.gather(writer.wait_closed(), return_exceptions=True)
        assert all(end is None or isinstance(end, ConnectionError) for end in with_reset)
        await sign(client)


async def test_keys_that_are_taken(make_signer: Any) -> None:
    """Authorities' own keys, a certificate, and a host's key get no certificate."""
    signer = await asyncio.to_thread(make_signer, hostnames=LISTED)
    async with connected(signer) as client:
        known = await client.authorities()
        host = new_key()
        await sign_host(client, "login1.site.example", key=host)
        mine = await sign(client)
        for key in (*known.user_ca, *known.host_ca, host, mine.certificate):
            with pytest.raises(Invalid):
                await sign(client, key=key)
        for key in (*known.user_ca, *known.host_ca):
            with pytest.raises(Invalid):
                await sign_host(client, "login1.site.example", key=key)
        await sign_host(client, "login1.site.example", key=host)  # a host's is renewed


HOSTS = {
    "none": (),
    "another domain": ("login1.elsewhere.example",),
    "another one beside it": ("login1.site.example", "github.com"),
    "everything": ("*",),
    "a pattern": ("login*.site.example",),
    "a comma": ("login1,github.com.site.example",),
    "a newline": ("login1\ngithub.com.site.example",),
    "an address": ("169.254.169.254",),
}


@pytest.mark.parametrize("attack", HOSTS)
async def test_host_names(make_signer: Any, attack: str) -> None:
    """A host certificate names listed hosts, or there is none."""
    signer = await asyncio.to_thread(make_signer, hostnames=LISTED)
    async with connected(signer) as client:
        with pytest.raises(Forbidden):
            await sign_host(client, *HOSTS[attack])


async def test_everything_is_logged(make_signer: Any) -> None:
    """As many entries as answers, each with what was asked; the same token twice is two."""
    signer = await asyncio.to_thread(make_signer, hostnames=LISTED)
    async with connected(signer) as client:
        asks = [
            client.sign(grant(), public_key=new_key(), key_id=KEY_ID, subject=subject(token="ab"))
            for _ in range(2)
        ]
        asks += [sign(client, principals=("root",)), sign(client, key=KEYS["DSA"])]
        asks += [sign_host(client, "github.com"), sign_host(client, "login1.site.example")]
        await asyncio.gather(*asks, return_exceptions=True)
        await client.refuse(subject(), "suspended")
        await client.revoke(reason="x", by="peer:tokens", serials=(1,))
    found = (await run(signer, "ledger search", "--json")).stdout.splitlines()
    entries = [json.loads(line) for line in found][2:]  # after those of the authorities
    kinds = sorted(entry["kind"] for entry in entries)
    assert kinds == ["issued"] * 3 + ["refused"] * 4 + ["revoked"]
    of_token = [one for one in entries if (one["personal"] or {}).get("token") == "ab"]
    assert len({one["serial"] for one in of_token}) == 2
    codes = {one.get("code") for one in entries if one["kind"] == "refused"}
    assert codes == {"ceiling", "key_refused", "suspended"}


async def test_what_it_says_cannot_forge_an_entry(make_signer: Any) -> None:
    """Names with newlines, quotes and JSON stay one value of one entry."""
    signer = await asyncio.to_thread(make_signer)
    evil = 'x"}\n{"v":1,"seq":99,"kind":"issued"'
    async with connected(signer) as client:
        await client.sign(
            grant(),
            public_key=new_key(),
            key_id=KEY_ID,
            subject=subject(evil, account=evil, client_id=evil, request_id=evil),
        )
    found = (await run(signer, "ledger search", "--json")).stdout.splitlines()
    assert json.loads(found[-1])["personal"]["sub"] == evil
    assert len(found) == 3
    assert (await run(signer, "ledger verify")).returncode == 0


def test_the_ledger_cannot_be_read_over_the_wire() -> None:
    """What may be asked is this, and nothing of it tells of others than the one named."""
    assert {one.__name__ for one in get_args(wire.Request)} == {
        "Sign",
        "SignHost",
        "Refuse",
        "Note",
        "Revoke",
        "ListRevoked",
        "ListLive",
        "ListMarks",
        "Show",
    }


@pytest.mark.parametrize(
    "document",
    [
        {"type": "search", "id": 1},
        {"type": "sign", "id": 1},
        {"type": "revoke", "id": 1, "reason": "", "by": "x"},
        {"type": "revoke", "id": 1, "reason": "x", "by": "x", "serials": ["1"]},
        {"type": "refuse", "id": 1, "subject": {}, "code": "Not A Code"},
        {"type": "show", "id": 1, "more": True},
    ],
)
async def test_requests_that_are_none(signer: Any, document: dict[str, Any]) -> None:
    """A frame that is no request ends the connection; nothing is done."""
    body = msgspec.json.encode(document)
    reader, writer = await asyncio.open_unix_connection(str(signer.socket))
    writer.write(len(body).to_bytes(4, "big") + body)
    assert await asyncio.wait_for(reader.read(), 10) == b""
    writer.close()
    await writer.wait_closed()


async def test_ssh_keygen_reads_every_form(make_signer: Any, tmp_path: Path, key_line: str) -> None:
    """A login, a session, a sealed command, a place it is good from, a host: all are read."""
    program = "/usr/libexec/headgate/headgate-session"
    row = "8dc9fb12-85dc-4579-8a35-173cfb92d976"
    soon = grant().valid_after + (grant().valid_before - grant().valid_after) / 3
    signer = await asyncio.to_thread(
        make_signer, hostnames=LISTED, extensions='["permit-pty", "permit-port-forwarding"]'
    )
    async with connected(signer) as client:
        made = {
            "user certificate": await sign(client, key=key_line),
            "permit-port-forwarding": await sign(
                client, extensions=("permit-pty", "permit-port-forwarding")
            ),
            f"force-command {program}": await sign(client, extensions=(), force_command=program),
            f"--only status:{row}": await sign(
                client,
                extensions=(),
                force_command=f"{program} --only status:{row}",
                valid_before=soon.replace(microsecond=0),
            ),
            "source-address 192.0.2.0/24,2001:db8::1/128": await sign(
                client, source_addresses=("192.0.2.0/24", "2001:db8::1/128")
            ),
            "host certificate": await sign_host(client, "login1.site.example"),
        }
    for words, signed in made.items():
        path = tmp_path / f"{signed.serial}-cert.pub"
        path.write_text(signed.certificate)
        argv = ["ssh-keygen", "-L", "-f", str(path)]
        shown = await asyncio.to_thread(subprocess.check_output, argv, text=True)
        assert words in shown
        assert f"Serial: {signed.serial}" in shown
        read = ssh.load_ssh_public_identity(signed.certificate.encode())
        assert isinstance(read, ssh.SSHCertificate)
        read.verify_cert_signature()


async def test_more_than_its_rate(make_signer: Any) -> None:
    """Beyond the rate there are neither certificates nor entries, of hosts neither."""
    signer = await asyncio.to_thread(make_signer, hostnames=LISTED, per_minute=3)
    async with connected(signer) as client:
        await asyncio.gather(*(sign(client) for _ in range(3)))
        for ask in (sign(client), sign_host(client, "login1.site.example")):
            with pytest.raises(TooMany):
                await ask
    entries = (await run(signer, "ledger search")).stdout.splitlines()
    assert len(entries) == 5
