"""Somebody who logs in with a browser, and what the command then keeps for ssh."""

from pathlib import Path
from typing import Any

import msgspec

from testbed.issuer.directory import Client, User
from testbed.issuer.settings import IssuerSettings
from testbed.issuer.token_endpoint import DEVICE_GRANT, EXCHANGE_GRANT
from tests.service.cli.command_line import CommandLine

SETTINGS = IssuerSettings(
    state_dir="",
    device_interval_seconds=1,
    users=(User(username="alice", groups=("hpc",)), User(username="bob", groups=("hpc",))),
    clients=(
        Client(
            client_id="headgate-cli",
            grants=("authorization_code", DEVICE_GRANT, "refresh_token", EXCHANGE_GRANT),
            redirect_uris=("http://127.0.0.1/callback",),
            reuse_refresh_tokens=False,
        ),
    ),
)
BROWSER = """#!/bin/sh
page=$(curl -s -o /dev/null -w '%{{redirect_url}}' "$1")
exec curl -s -L -o /dev/null -d "${{page#*\\?}}" -d username={username} {more} "${{page%%\\?*}}"
"""


class Everything(set[str]):
    """A gateway's tokens: whatever is sent."""

    def __contains__(self, token: object) -> bool:
        self.add(str(token))
        return True


def browser(home: Path, more: str = "", username: str = "alice") -> Path:
    """A browser that signs in as somebody; `more` is more of curl."""
    path = home / "browser"
    path.write_text(BROWSER.format(more=more, username=username))
    path.chmod(0o700)
    return path


def directory(headgate: CommandLine) -> Path:
    """Where the one identity is."""
    (found,) = (headgate.home / ".local/state/headgate/ssh").iterdir()
    return found


def login(headgate: CommandLine) -> dict[str, Any]:
    """The one saved login."""
    (path,) = (headgate.home / ".local/state/headgate/logins").glob("*.json")
    found: dict[str, Any] = msgspec.json.decode(path.read_bytes())
    return found
