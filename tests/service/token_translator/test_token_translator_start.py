"""What keeps the programs from starting is one sentence, and `check-config` says it beforehand."""

import asyncio
import contextlib
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.service.token_translator.service_files import write_peer, write_tokens
from tests.service.token_translator.test_token_translator_commands import run

Files = Callable[..., Path]


@pytest.fixture
def files(folder: Path, peer_keys: Any) -> Files:
    """Writes a translator's TOML with some words replaced; more at its end."""

    def write(old: str = "", new: str = "", *, more: str = "", verb: str = "seals") -> Path:
        text = write_tokens(
            folder,
            url="http://127.0.0.1:1",
            registry="http://127.0.0.1:1",
            socket=folder / "signer.sock",
            issuer="http://127.0.0.1:1/",
        )
        text += write_peer("gateway", peer_keys.gateway, f'["{verb}"]', "")
        assert old in text
        path = folder / "start.toml"
        path.write_text(text.replace(old, new, 1) + more)
        return path

    return write


def sentence(complaint: str, program: str, *words: str) -> None:
    """It is one line of the program's with these words."""
    lines = [line for line in complaint.splitlines() if line.startswith(f"{program}:")]
    assert len(lines) == 1, complaint
    assert "Traceback" not in complaint
    assert all(word in lines[0] for word in words), complaint


async def test_files_that_are_right(files: Files) -> None:
    """The same files are good: status 0, without a signer, a registry or an issuer there."""
    status, output, complaint = await run(
        "token_translator", "check-config", "--config", files(more='[listen]\nhost = "127.0.0.1"')
    )
    assert (status, complaint) == (0, ""), complaint
    assert '"peers"' in output


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (("/peer.pem", "/nowhere.pem"), ("nowhere.pem", "No such file")),
        (("/peer.pem", "/tokens.sqlite"), ("tokens.sqlite",)),
        (("sqlite+aiosqlite:///", "sqlite+aiosqlit:///"), ("database", "aiosqlit")),
        (("sqlite+aiosqlite:///", "nonsense"), ("database",)),
        (("/tokens.sqlite", "/nowhere/tokens.sqlite"), ("nowhere",)),
        (("/tokens.sqlite", "/empty.sqlite"), ("headgate-tokens migrate",)),
        (('crv = "Ed25519", x = "', 'crv = "Ed25519", x = "?'), ("peers", "gateway")),
        (('["seals"]', '["seal"]'), ("peers", "seal", "seals")),
    ],
)
async def test_what_serve_refuses_check_config_refuses(
    files: Files, changes: tuple[str, str], words: tuple[str, ...]
) -> None:
    """A missing file, a database that is none, a right that there is not: in one sentence."""
    config = files(*changes)
    asked = (
        run("token_translator", verb, "--config", config) for verb in ("check-config", "serve")
    )
    checked, served = await asyncio.gather(*asked)
    assert checked[0] == served[0]
    assert checked[0] in {1, 78}
    for told in (checked, served):
        sentence(told[2], "headgate-tokens", *words)


@pytest.mark.parametrize(
    ("listen", "words"),
    [
        ('tls_certificate = "/nowhere.pem"', "nowhere.pem"),
        ('host = "192.0.2.77"\ninsecure = true', "192.0.2.77"),
        ('host = "0.0.0.0"', "not loopback"),
        ("port = 70000", "70000"),
    ],
)
async def test_addresses_that_cannot_be_listened_at(files: Files, listen: str, words: str) -> None:
    """They are tried without listening."""
    config = files(more=f"\n[listen]\n{listen}\n")
    status, _, complaint = await run("token_translator", "check-config", "--config", config)
    assert status in {1, 78}
    sentence(complaint, "headgate-tokens", words)


async def test_a_port_that_is_in_use(files: Files) -> None:
    """Said by `serve`; `check-config` is right, for the service itself may be there."""
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        config = files(more=f"\n[listen]\nport = {port}\n")
        status, _, complaint = await run("token_translator", "serve", "--config", config)
        assert status == 1
        sentence(complaint, "headgate-tokens", f"127.0.0.1:{port}", "in use")
        checked = await run("token_translator", "check-config", "--config", config)
        assert checked[0] == 0


async def test_a_database_that_is_away(files: Files, folder: Path) -> None:
    """It is no fault of the settings: status 1, so that a supervisor tries again."""
    away = "postgresql+psycopg://headgate:secret-word@127.0.0.1:1/tokens"
    config = files(f"sqlite+aiosqlite:///{folder}/tokens.sqlite", away)
    for verb in ("check-config", "services"):
        status, _, complaint = await run("token_translator", verb, "--config", config)
        assert status == 1
        sentence(complaint, "headgate-tokens", "database")
        assert "secret-word" not in complaint


async def test_a_signers_database_that_is_away(make_signer: Any) -> None:
    """The same for the signer's: a host that starts before its database is not given up."""
    signer = make_signer()
    config = signer.folder / "away.toml"
    ledger = f"sqlite:///{signer.folder}/ledger.sqlite"
    away = "postgresql+psycopg://headgate:secret-word@127.0.0.1:1/ledger"
    config.write_text(signer.config.read_text().replace(ledger, away))
    status, _, complaint = await run("token_translator.signer", "serve", "--config", config)
    assert status == 1
    sentence(complaint, "headgate-signer", "the database of ledger is away")
    assert "secret-word" not in complaint


@pytest.mark.parametrize(
    ("module", "verb"),
    [
        ("token_translator", "check-config"),
        ("token_translator", "holds"),
        ("token_translator.signer", "check-config"),
        ("token_translator.signer", "ledger verify"),
        ("token_translator.frontdoor", "check-config"),
    ],
)
async def test_the_file_is_named_before_or_after_the_verb(
    tmp_path: Path, module: str, verb: str
) -> None:
    """`--config` is read from either place, and from its usual one where neither says it."""
    path, words = tmp_path / "none.toml", verb.split()
    before, after, unsaid = await asyncio.gather(
        run(module, "--config", path, *words),
        run(module, *words, "--config", path),
        run(module, *words),
    )
    assert before == after
    assert (before[0], str(path) in before[2]) == (78, True)
    assert (unsaid[0], "/etc/headgate/" in unsaid[2]) == (78, True)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("/user_ca", "/nowhere", "nowhere"),
        ("ledger.sqlite", "nowhere/ledger.sqlite", "ledger"),
        ("sqlite:///", "sqlit:///", "sqlit"),
        ("/ceilings.toml", "/nowhere.toml", "nowhere.toml"),
        ("/signer.sock", "/nowhere/signer.sock", "there is no folder"),
    ],
)
async def test_the_signer_says_it_beforehand(
    make_signer: Any, old: str, new: str, words: str
) -> None:
    """Keys, ledger and ceilings are opened by `check-config` as `serve` opens them."""
    signer = make_signer()
    config = signer.folder / "wrong.toml"
    text = signer.config.read_text()
    assert old in text
    config.write_text(text.replace(old, new, 1))
    module = "token_translator.signer"
    checked, served, right = await asyncio.gather(
        run(module, "check-config", "--config", config),
        run(module, "serve", "--config", config),
        run(module, "check-config", "--config", signer.config),
    )
    assert checked[0] == served[0]
    assert checked[0] in {1, 78}
    for told in (checked, served):
        sentence(told[2], "headgate-signer", words)
    assert (right[0], right[2]) == (0, "")
