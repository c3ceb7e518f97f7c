"""The signer's own process, driven over its socket as a captured HTTP service would."""

import asyncio
import os
import sqlite3
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives.serialization import ssh

from headgate.problems import Forbidden, Invalid, TooMany, Unavailable
from token_translator import wire
from token_translator.grants import Grant
from token_translator.signer_client import SignerClient

KEY_ID = "v1;iss=https://iam.example/;sub=alice"
PROGRAM = "/usr/libexec/headgate/headgate-session"
ROW = "8dc9fb12-85dc-4579-8a35-173cfb92d976"


def grant(**changes: Any) -> Grant:
    """A grant within the usual ceilings, with changes."""
    now = datetime.now(UTC).replace(microsecond=0)
    usual = Grant(
        principals=("hg:site1:alice",),
        valid_after=now - timedelta(seconds=60),
        valid_before=now + timedelta(minutes=10),
        extensions=("permit-pty",),
    )
    return msgspec.structs.replace(usual, **changes)


def subject(sub: str = "alice", profile: str = "person") -> wire.Subject:
    """Whom it is for."""
    return wire.Subject(
        iss="https://iam.example/", sub=sub, account=sub, realm="site1", profile=profile
    )


async def sign(client: SignerClient, key_line: str, key_id: str = KEY_ID, **changes: Any) -> Any:
    """One signing."""
    command = changes.get("force_command", "")
    forced = "sealed" if " --only " in command else "session"
    about = subject(profile=forced if command else "person")
    return await client.sign(grant(**changes), public_key=key_line, key_id=key_id, subject=about)


@pytest.fixture
async def client(signer: Any) -> Any:
    """A connection to the shared signer."""
    one = SignerClient(path=str(signer.socket), timeout=10)
    yield one
    await one.close()


def verify(signer: Any) -> subprocess.CompletedProcess[str]:
    """`headgate-signer verify`."""
    argv = [sys.executable, "-m", "token_translator.signer", "verify", "--config"]
    return subprocess.run(
        [*argv, str(signer.config)], check=False, timeout=60, capture_output=True, text=True
    )


LATER = timedelta(hours=13)


@pytest.mark.parametrize(
    "changes",
    [
        {"principals": ()},
        {"principals": ("root",)},
        {"principals": ("alice",)},
        {"principals": ("hg:site1:root",)},
        {"principals": ("hg:site1:alice,root",)},
        {"principals": ("hg:site1:alice", "root")},
        {"principals": ("hg:site1:alice\nroot",)},
        {"principals": ("hg:*",)},
        {"valid_before": datetime.now(UTC) + LATER},
        {"valid_before": datetime.now(UTC) - timedelta(seconds=1)},
        {"valid_before": datetime(9999, 12, 31, tzinfo=UTC)},
        {"valid_after": datetime(2000, 1, 1, tzinfo=UTC)},
        {"valid_after": datetime.now(UTC) + timedelta(minutes=5)},
        {"extensions": ("permit-pty", "permit-agent-forwarding")},
        {"extensions": (), "force_command": "/bin/sh"},
        {"extensions": (), "force_command": f"{PROGRAM} "},
        {"extensions": (), "force_command": f"{PROGRAM}; id"},
        {"extensions": (), "force_command": f"{PROGRAM} --only shell:{ROW}"},
        {"extensions": (), "force_command": f"{PROGRAM} --only status:{ROW} x"},
        {"extensions": (), "force_command": f"{PROGRAM} --only status:{ROW}"},  # for 10 minutes
        {"force_command": PROGRAM},  # with a pty
        {"source_addresses": ("0.0.0.0/0,::/0",)},
        {"key_id": "v1;iss=a\nb"},
        {"key_id": "free text"},
    ],
)
async def test_nothing_goes_beyond_the_ceilings(
    client: SignerClient, key_line: str, changes: dict[str, Any]
) -> None:
    """Whatever the asking process wants, each ceiling is held by the signer."""
    with pytest.raises(Forbidden) as caught:
        await sign(client, key_line, **changes)
    assert caught.value.stable_code == "ceiling"


async def test_sealed_commands_for_five_minutes(client: SignerClient, key_line: str) -> None:
    """The session program, and one sealed command for five minutes, are within the ceilings."""
    soon = datetime.now(UTC).replace(microsecond=0) + timedelta(minutes=5)
    await sign(client, key_line, extensions=(), force_command=PROGRAM)
    only = f"{PROGRAM} --only submit:{ROW},sha256:{'ab' * 32}"
    await sign(client, key_line, extensions=(), force_command=only, valid_before=soon)


async def test_a_refused_key(client: SignerClient) -> None:
    """The signer looks at keys itself."""
    with pytest.raises(Invalid):
        await sign(client, "ssh-dss AAAA")


async def test_the_rate_is_a_ceiling(make_signer: Any, key_line: str) -> None:
    """Beyond so many a minute nothing is signed."""
    signer = make_signer(per_minute=5)
    client = SignerClient(path=str(signer.socket), timeout=10)
    for _ in range(5):
        await sign(client, key_line)
    with pytest.raises(TooMany):
        await sign(client, key_line)
    await client.close()


async def test_a_thousand_at_once(client: SignerClient, signer: Any, key_line: str) -> None:
    """1 000 concurrent signings have unique serials, and the chain is intact."""
    answers = await asyncio.gather(*(sign(client, key_line) for _ in range(1000)))
    assert len({answer.serial for answer in answers}) == 1000
    certificate = ssh.load_ssh_public_identity(answers[-1].certificate.encode())
    certificate.verify_cert_signature()
    assert (await asyncio.to_thread(verify, signer)).stdout.startswith("intact")


async def test_killed_at_any_moment(make_signer: Any, key_line: str) -> None:
    """After kill -9 every answered serial is in the ledger, and the next one is above all."""
    signer = make_signer(per_minute=100000)
    answered: list[int] = []
    enough = asyncio.Event()
    for _ in range(3):
        client = SignerClient(path=str(signer.socket), timeout=10)

        async def keep_signing(client: SignerClient = client) -> None:
            for number in count(1):
                answered.append((await sign(client, key_line)).serial)
                if number == 20:
                    enough.set()

        enough.clear()
        tasks = [asyncio.create_task(keep_signing()) for _ in range(8)]
        await enough.wait()
        await asyncio.to_thread(signer.kill)
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(end, Unavailable) for end in ended)
        await client.close()
        await asyncio.to_thread(signer.start)
    assert len(set(answered)) == len(answered)
    client = SignerClient(path=str(signer.socket), timeout=10)
    assert (await sign(client, key_line)).serial > max(answered)
    await client.close()
    with sqlite3.connect(signer.folder / "ledger.sqlite") as ledger:
        known = {serial for (serial,) in ledger.execute("SELECT serial FROM ledger")}
    ledger.close()
    assert set(answered) <= known
    assert (await asyncio.to_thread(verify, signer)).returncode == 0


async def test_a_changed_ledger_is_seen(make_signer: Any, key_line: str) -> None:
    """`verify` names the entry that was tampered with."""
    signer = make_signer()
    client = SignerClient(path=str(signer.socket), timeout=10)
    for _ in range(3):
        await sign(client, key_line)
    await client.close()
    with sqlite3.connect(signer.folder / "ledger.sqlite") as ledger:
        ledger.execute("UPDATE ledger SET entry = replace(entry, 'person', 'sessin') WHERE seq = 2")
    ledger.close()
    verified = await asyncio.to_thread(verify, signer)
    assert verified.returncode == 1
    assert "entry 2" in verified.stdout


async def test_refusals_are_in_the_ledger(make_signer: Any, key_line: str) -> None:
    """What was refused by a ceiling is recorded like what was issued."""
    signer = make_signer()
    client = SignerClient(path=str(signer.socket), timeout=10)
    with pytest.raises(Forbidden):
        await sign(client, key_line, principals=("root",))
    await client.close()
    with sqlite3.connect(signer.folder / "ledger.sqlite") as ledger:
        entries = ledger.execute("SELECT entry FROM ledger ORDER BY seq").fetchall()
    ledger.close()
    document = msgspec.json.decode(entries[-1][0])
    assert (document["kind"], document["code"], document["serial"]) == ("refused", "ceiling", None)


async def test_only_listed_uids_may_ask(make_signer: Any) -> None:
    """A process of another uid is turned away by what the kernel says of it."""
    signer = make_signer()
    await asyncio.to_thread(signer.stop)
    text = signer.config.read_text()
    allowed = f"allowed_users = [{os.getuid()}]"
    assert allowed in text
    signer.config.write_text(text.replace(allowed, f"allowed_users = [{os.getuid() + 1}]"))
    await asyncio.to_thread(signer.start)
    client = SignerClient(path=str(signer.socket), timeout=10)
    with pytest.raises(Unavailable):
        await client.authorities()
    await client.close()
    assert b"connection_refused" in (signer.folder / "signer.log").read_bytes()


@pytest.mark.parametrize(
    "raw",
    [
        b"\xff\xff\xff\xff",
        b"\x00\x00\x00\x05hello",
        b"\x00\x00\x00\x02{}",
        b"\x00\x00\x00\x10half",
        b"GET / HTTP/1.1\r\n\r\n",
    ],
)
async def test_nonsense_ends_the_connection(signer: Any, client: SignerClient, raw: bytes) -> None:
    """Bytes that are no request end that connection, and disturb no other."""
    reader, writer = await asyncio.open_unix_connection(str(signer.socket))
    writer.write(raw)
    writer.write_eof()
    assert await asyncio.wait_for(reader.read(), 10) == b""
    writer.close()
    await writer.wait_closed()
    assert (await client.authorities()).user_ca


async def test_a_second_signer_stays_away(signer: Any) -> None:
    """A socket that answers is not taken over; the words say so, the status is 78."""
    argv = [sys.executable, "-m", "token_translator.signer", "serve", "--config"]
    ended = await asyncio.to_thread(
        subprocess.run,
        [*argv, str(signer.config)],
        check=False,
        timeout=60,
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 78
    assert "another signer answers" in ended.stderr


@pytest.mark.parametrize(
    ("name", "mode", "words"),
    [
        ("user_ca", 0o640, "use 0600"),
        ("index.key", 0o604, "use 0600"),
        ("ceilings.toml", 0o666, "others can write"),
    ],
)
async def test_files_that_are_too_open(make_signer: Any, name: str, mode: int, words: str) -> None:
    """A key others can read, or ceilings others can write, keep the signer from starting."""
    signer = make_signer()
    await asyncio.to_thread(signer.stop)
    (signer.folder / name).chmod(mode)
    argv = [sys.executable, "-m", "token_translator.signer", "serve", "--config"]
    ended = await asyncio.to_thread(
        subprocess.run,
        [*argv, str(signer.config)],
        check=False,
        timeout=60,
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 78
    assert words in ended.stderr
