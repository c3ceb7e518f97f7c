"""Files of a translator and its signer, made as an administrator makes them."""

import contextlib
import sqlite3
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from joserfc import jwk

PROGRAM = "/usr/libexec/headgate/headgate-session"
AUDIENCE = "https://tokens.site.example/"


def write_signer(
    folder: Path,
    settings: Mapping[str, str] | None = None,
    env: Mapping[str, str] | None = None,
    **ceilings: Any,
) -> None:
    """The signer's two TOML files and all it needs, made as an administrator makes it.

    `settings` replace the usual ones; their values are TOML.
    """
    lines = [f'session_programs = ["{PROGRAM}"]']
    lines += [f"{name} = {value}" for name, value in ceilings.items()]
    (folder / "ceilings.toml").write_text("\n".join(lines))
    words = {
        "socket": f'"{folder}/signer.sock"',
        "ceilings": f'"{folder}/ceilings.toml"',
        "user_ca": f'["{folder}/user_ca"]',
        "host_ca": f'["{folder}/host_ca"]',
        "ledger": f'"sqlite:///{folder}/ledger.sqlite"',
        "persons": f'"sqlite:///{folder}/persons.sqlite"',
        "index_key": f'"{folder}/index.key"',
        "allowed_users": f"[{folder.stat().st_uid}]",
        "embedded": "true",
        **(settings or {}),
    }
    text = "\n".join(f"{name} = {value}" for name, value in words.items())
    (folder / "signer.toml").write_text(text)
    command("token_translator.signer", "init", folder / "signer.toml", env=env)


def write_tokens(folder: Path, *, url: str, registry: str, socket: object, issuer: str) -> str:
    """The translator's TOML, without its peers."""
    return f"""
url = "{url}"
audience = "{AUDIENCE}"
realms = ["site1"]
per_minute = 100000
database = "sqlite+aiosqlite:///{folder}/tokens.sqlite"
session_program = "{PROGRAM}"
[identity]
instance = "tokens"
key_file = "{folder}/peer.pem"
[registry]
url = "{registry}"
timeout = 0.5
[signer]
socket = "{socket}"
[[issuers]]
url = "{issuer}"
client_audiences = {{ orchestrator = ["https://elsewhere.example/", ""] }}
"""


def write_peer(instance: str, key: jwk.OKPKey, verbs: str, audience: str) -> str:
    """One of the translator's peers, as TOML."""
    return f"""
[[peers]]
instance = "{instance}"
keys = [{{ kty = "OKP", crv = "Ed25519", x = "{key.as_dict(private=False)["x"]}" }}]
verbs = {verbs}
audience = "{audience}"
"""


def command(
    module: str, verb: str, config: Path, *options: str, env: Mapping[str, str] | None = None
) -> str:
    """Run one verb of a service in a process of its own; what it printed."""
    argv = [sys.executable, "-m", module, *verb.split(), "--config", str(config), *options]
    ran = subprocess.run(argv, check=False, timeout=60, capture_output=True, text=True, env=env)
    assert ran.returncode == 0, ran.stderr + ran.stdout
    return ran.stdout


def start_counting(database: Path, number: int) -> None:
    """Have a database of the HTTP service count its denials from there, all of it told."""
    with contextlib.closing(sqlite3.connect(database)) as connection:
        connection.execute("UPDATE change_head SET version = ?", (number,))
        counted = "UPDATE denial_head SET number = ?1, told_changes = ?1, told_denials = ?1"
        connection.execute(counted, (number,))
        connection.commit()
