"""How `headgate-gateway` starts: what is wrong is said in one sentence, with a status."""

import json
import socket
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
import tomli_w
from aiohttp.test_utils import TestClient, TestServer
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519, rsa

from gateway.__main__ import main
from gateway.assembly import assembled
from gateway.migrations import configuration
from gateway.settings import Settings
from gateway.tables import metadata
from headgate.settings import EX_CONFIG, load


def pem(key: Any) -> bytes:
    """A private key as its file has it."""
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


class Folder:
    """A gateway's settings in a folder of their own."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.key = path / "peer.pem"
        self.key.touch(mode=0o600)
        self.key.write_bytes(pem(ed25519.Ed25519PrivateKey.generate()))
        self.database = path / "gateway.db"

    def write(self, **changes: Any) -> Path:
        """The settings with these changes; where they are."""
        settings = {
            "url": "https://hpc.example.org",
            "instance": "gateway",
            "peer_key": str(self.key),
            "database": f"sqlite+aiosqlite:///{self.database}",
            "issuers": [{"url": "https://iam.example.org/"}],
            "token_translator": {"url": "http://127.0.0.1:9"},
            "registry": {"url": "http://127.0.0.1:9"},
            "clusters": [cluster()],
            **changes,
        }
        file = self.path / "gateway.toml"
        file.write_text(tomli_w.dumps(settings))
        return file


def cluster(**changes: Any) -> dict[str, Any]:
    """A cluster's table."""
    return {"name": "a", "realm": "main", "local": {"path": "/nowhere"}, **changes}


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """One with a key and no database yet."""
    return Folder(tmp_path)


def test_check_config_shows_what_was_understood(folder: Folder, capsys: Any):
    """Good settings are printed with their defaults, wherever `--config` stands."""
    file = str(folder.write())
    assert main(["--config", file, "check-config"]) == 0
    before = capsys.readouterr().out
    assert main(["check-config", "--config", file]) == 0
    assert json.loads(before)["clusters"][0]["poll_seconds"] == 2.0
    assert capsys.readouterr().out == before
    assert not folder.database.exists(), "looking at settings makes nothing"


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"url": "hpc.example.org"}, "url"),
        ({"url": "https://[::1"}, "url"),
        ({"url": "https://user@hpc.example.org"}, "url"),
        ({"token_translator": {"url": "ftp://tokens"}}, "token_translator"),
        ({"registry": {"url": "http://registry:x"}}, "registry"),
        ({"registry": {"url": "http://registry?a=b"}}, "registry"),
        ({"issuers": [{"url": "iam"}]}, "issuers"),
        ({"people": {"token_translator": "tokens"}}, "people"),
        ({"database": "gateway.db"}, "database"),
        ({"database": "nosuch://x"}, "database"),
        ({"database": "sqlite:///gateway.db"}, "database"),
        ({"database": "postgresql+asyncnothing://x/y"}, "database"),
        ({"database": "sqlite+aiosqlite:////no/such/folder/gateway.db"}, "database"),
        ({"log_level": "loud"}, "log_level"),
        ({"clusters": []}, "clusters"),
        ({"clusters": [cluster(), cluster()]}, "clusters"),
        ({"clusters": [cluster(senders=0)]}, "senders"),
        ({"clusters": [cluster(ssh={"host": "login"})]}, "ssh"),
        ({"listen": {"host": "0.0.0.0"}}, "loopback"),  # noqa: S104 - what is refused here
        ({"metrics": {"host": "0.0.0.0"}}, "loopback"),  # noqa: S104 - what is refused here
        ({"listen": {"port": 70000}}, "port"),
        ({"listen": {"tls_certificate": "/no/such"}}, "listen"),
        ({"listen": {"tls_certificate": "{key}", "tls_key": "{key}"}}, "listen"),
        ({"listen": {"tls_certificate": "{key}"}}, "listen"),
    ],
)
def test_settings_that_cannot_work_are_refused(
    folder: Folder, capsys: Any, changes: dict[str, Any], word: str
):
    """Status 78 and one sentence that names the place, before anything is served."""
    changes = json.loads(json.dumps(changes).replace("{key}", str(folder.key)))
    assert main(["check-config", "--config", str(folder.write(**changes))]) == EX_CONFIG
    complaint = capsys.readouterr().err
    assert word in complaint
    assert complaint.count("\n") == 1


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"junk",
        b"{}",
        b'{"kty": "OKP"}',
        b'{"kty":"OKP","crv":"Ed25519","x":"!","d":"!"}',
        b"[",
    ],
)
def test_a_bad_key_is_refused(folder: Folder, capsys: Any, content: bytes):
    """Whatever the file of the peer key holds, the answer is a sentence that names it."""
    folder.key.write_bytes(content)
    assert main(["check-config", "--config", str(folder.write())]) == EX_CONFIG
    complaint = capsys.readouterr().err
    assert str(folder.key) in complaint
    assert complaint.count("\n") == 1


def test_a_key_of_another_kind_is_refused(folder: Folder, capsys: Any):
    """An RSA key signs nothing that another service of the suite would take."""
    folder.key.write_bytes(pem(rsa.generate_private_key(public_exponent=65537, key_size=2048)))
    assert main(["check-config", "--config", str(folder.write())]) == EX_CONFIG
    assert str(folder.key) in capsys.readouterr().err


def serve(file: Path) -> tuple[int, str]:
    """The status of a gateway that ends at once, and its complaint."""
    done = subprocess.run(
        [sys.executable, "-m", "gateway", "serve", "--config", file],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return done.returncode, done.stderr


def test_a_database_without_tables_is_refused(folder: Folder):
    """The sentence says which command makes them; nothing is made meanwhile."""
    status, complaint = serve(folder.write())
    assert (status, complaint.count("\n")) == (EX_CONFIG, 1)
    assert "headgate-gateway migrate" in complaint
    assert not folder.database.exists()


def test_a_database_of_another_release_is_refused(folder: Folder):
    """Older tables are no longer, newer ones not yet, this release's."""
    file = folder.write()
    assert main(["migrate", "--config", str(file)]) == 0
    database = sqlite3.connect(folder.database)
    with database:
        database.execute("UPDATE alembic_version SET version_num = '0000'")
    database.close()
    status, complaint = serve(file)
    assert (status, complaint.count("\n")) == (EX_CONFIG, 1)
    assert "0000" in complaint
    assert "headgate-gateway migrate" in complaint


def test_a_port_in_use_is_no_traceback(folder: Folder):
    """The sentence names the address; the status is not that of wrong settings."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        file = folder.write(listen={"port": other.getsockname()[1]})
        assert main(["migrate", "--config", str(file)]) == 0
        status, complaint = serve(file)
    assert "Traceback" not in complaint
    assert (status, "in use" in complaint.splitlines()[-1]) == (1, True)


async def test_numbers_are_on_the_operators_listener_alone(folder: Folder):
    """The public one does not know `/metrics`; the other knows no jobs."""
    settings = load(folder.write(), Settings)
    async with assembled(settings) as gateway:
        async with TestClient(TestServer(gateway.application)) as public:
            assert (await public.get("/metrics")).status == 404
            assert (await public.get("/v1")).status == 200
        async with TestClient(TestServer(gateway.operations)) as operators:
            text = await (await operators.get("/metrics")).text()
            assert "headgate_gateway_requests_total" in text
            assert 'route="/v1"' in text
            assert (await operators.get("/v1")).status == 404


@pytest.mark.parametrize("database", ["sqlite+aiosqlite:////no/such/folder/g.db", "nosuch://x"])
def test_migrating_nowhere_is_refused(folder: Folder, capsys: Any, database: str):
    """A database that cannot be opened is named, in one sentence."""
    assert main(["migrate", "--config", str(folder.write(database=database))]) == EX_CONFIG
    assert capsys.readouterr().err.count("\n") == 1


def test_the_history_makes_the_tables_that_the_code_has(folder: Folder):
    """A database that was migrated step by step has what `gateway.tables` says, and no more."""
    assert main(["migrate", "--config", str(folder.write())]) == 0
    engine = sa.create_engine(f"sqlite:///{folder.database}")
    with engine.connect() as connection:
        found = compare_metadata(MigrationContext.configure(connection), metadata)
    engine.dispose()
    assert found == []


def test_the_history_can_be_walked_back(folder: Folder):
    """Each step has a way back, for whoever upgraded too early."""
    assert main(["migrate", "--config", str(folder.write())]) == 0
    url = f"sqlite+aiosqlite:///{folder.database}"
    command.downgrade(configuration(url), "base")
    assert main(["migrate", "--config", str(folder.path / "gateway.toml")]) == 0
