"""What is wrong with the front door itself is found beforehand, and never said of a login node."""

import contextlib
import socket
from pathlib import Path
from typing import Any

import msgspec
import pytest
import structlog

from headgate.settings import EX_CONFIG, SettingsError
from token_translator.frontdoor import __main__ as frontdoor
from token_translator.frontdoor.devices import DeviceFlowSettings
from token_translator.frontdoor.settings import ListenSettings
from token_translator.starting import StartError, said


async def test_nothing_is_read_below_the_home(
    door: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Whatever HOME is (another's, closed to us; one with an SSH set-up), people come in."""
    home = tmp_path / "home"
    (home / ".ssh/crt").mkdir(parents=True)
    for name in ("config", "known_hosts", "ca-bundle.crt", "id_ed25519"):
        (home / ".ssh" / name).write_text("this is none\n")
    # Looking there is an error, as in a folder that is closed to us.
    for place in (str(home), "/" + "x" * 300):
        monkeypatch.setenv("HOME", place)
        async with door.connect() as connection:
            assert (await connection.run("echo in")).stdout == b"in\n"


async def test_a_file_of_ours_is_no_fault_of_the_nodes(door: Any, node: Any):
    """A file that went away while we run is named in the log, and no node is blamed for it."""
    node.known_hosts.unlink()
    with structlog.testing.capture_logs() as logs:
        async with door.connect() as connection:
            done = await connection.run("true", check=False)
    assert b"Logins are not possible at the moment" in done.stderr
    events = {line["event"]: line for line in logs}
    assert "login_node_refuses" not in events
    assert events["own_file"]["path"] == str(node.known_hosts)
    assert events["own_file"]["error"] == "No such file or directory"


@pytest.mark.parametrize("host", ["127.0.0.1", "192.0.2.77"])
async def test_address_that_is_busy_or_not_there_yet(open_door: Any, host: str):
    """It may be free, or up, at the next try: status 1, on which a unit tries again."""
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as taken:
        listen = ListenSettings(host=host, port=taken.getsockname()[1])
        with pytest.raises(StartError, match=rf"cannot listen on {host} port \d+: \w+") as refused:
            async with open_door(listen=listen):
                pass
    assert "\n" not in str(refused.value)
    assert said("headgate-frontdoor", lambda: _raised(refused.value)) == 1


def _raised(error: Exception) -> int:
    raise error


async def test_state_that_cannot_be_is_found_beforehand(door: Any, tmp_path: Path):
    """A folder that is missing, or a folder in the file's place, is named by check-config."""
    (tmp_path / "folder").mkdir()
    for state, words in (
        (tmp_path / "nowhere/state.db", f"state: {tmp_path}/nowhere: no such folder"),
        (tmp_path / "folder", f"state: {tmp_path}/folder: not a file"),
    ):
        changed = msgspec.structs.replace(door.settings, state=str(state))
        with pytest.raises(SettingsError, match=words):
            frontdoor._check(changed)
    assert said("headgate-frontdoor", lambda: frontdoor._check(changed)) == EX_CONFIG
    assert not (tmp_path / "nowhere").exists()


async def test_secret_of_the_browser_login_is_found_beforehand(door: Any, tmp_path: Path):
    """A client secret that is not there is named by check-config, too."""
    flow = DeviceFlowSettings(
        issuer=door.issuer.url,
        client_id="door",
        client_secret_file=str(tmp_path / "secret"),
        networks=("192.0.2.0/24",),
    )
    with pytest.raises(SettingsError, match=r"secret: No such file"):
        frontdoor._check(msgspec.structs.replace(door.settings, device_flow=flow))
