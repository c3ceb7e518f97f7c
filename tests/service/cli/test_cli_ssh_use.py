"""What a person does with a certificate: ssh, its configuration, status, delegations, logout."""

import asyncio
import stat
from pathlib import Path
from typing import Any

import msgspec
import pytest

from testbed.issuer.settings import IssuerSettings
from testbed.waiting import until
from tests.service.cli.command_line import CommandLine
from tests.service.cli.fake_translator import FakeTranslator
from tests.service.cli.ssh_login import SETTINGS, directory, login
from tests.service.client.fake_gateway import FakeGateway


@pytest.fixture
def settings() -> IssuerSettings:
    """The issuer's, for tests to change."""
    return SETTINGS


@pytest.fixture
def headgate(logged_in: CommandLine) -> CommandLine:
    """The command of somebody who has just logged in, with a browser."""
    return logged_in


async def test_ssh_gets_the_certificate_and_keeps_checking(
    headgate: CommandLine, translator: FakeTranslator
):
    """`headgate ssh --json` shows the command: account, key, and host keys that are checked."""
    shown = await headgate.json("ssh", "--json", "login.example.org", "-v", "id", "--json")
    assert isinstance(shown, dict)
    command = " ".join(shown["command"])
    assert (shown["account"], shown["port"]) == ("alice", 22)
    assert command.endswith("login.example.org -v id --json --json")
    assert "StrictHostKeyChecking=ask" in command
    assert "IdentitiesOnly=yes" in command
    translator.known_hosts = translator.host_line("*.example.org") + "nonsense\n"
    (await headgate("ssh-renew", "--force")).checked()
    command = " ".join((await ssh_json(headgate, "login.example.org"))["command"])
    assert "StrictHostKeyChecking=yes" in command
    assert f"{directory(headgate)}/known_hosts" in command
    known = (directory(headgate) / "known_hosts").read_text()
    assert known == translator.host_line("*.example.org")
    other = " ".join((await ssh_json(headgate, "bob@other.example.net"))["command"])
    assert "StrictHostKeyChecking=ask" in other
    assert "User=bob" in other
    assert "StrictHostKeyChecking=no" not in command + other


async def test_the_commands_own_options_are_not_ours(headgate: CommandLine, gateway: FakeGateway):
    """`mkdir -p` in a remote command changes neither port nor account; -p and -l for ssh do."""
    gateway.login_nodes = [{"host": "login.example.org", "port": 2222, "realm": "hpc"}]
    (await headgate("login", gateway.url)).checked()
    for command in (("mkdir", "-p", "x"), ("-v", "--", "x", "-l")):
        shown = " ".join((await ssh_json(headgate, "login.example.org", *command))["command"])
        assert "Port=2222" in shown
        assert "User=alice" in shown
    shown = " ".join((await ssh_json(headgate, "login.example.org", "-p22", "-l", "x"))["command"])
    assert "Port=" not in shown
    assert "User=" not in shown


async def ssh_json(headgate: CommandLine, *arguments: str) -> dict[str, Any]:
    """What `headgate ssh` would do."""
    done = (await headgate("ssh", "--json", *arguments)).checked()
    found: dict[str, Any] = msgspec.json.decode(done.stdout)
    return found


@pytest.mark.parametrize("host", ["-oProxyCommand=x", "a b", "a;b", "", "x@-y", "$(x)"])
async def test_a_strange_host_is_usage(headgate: CommandLine, host: str):
    """What is no host name reaches neither ssh nor a configuration."""
    assert (await headgate("ssh", "--", host)).status == 2


async def test_what_the_person_wants_stricter_stays_so(headgate: CommandLine):
    """Their own `StrictHostKeyChecking yes` counts, below our Include, too; their `no` does not."""
    config = headgate.home / ".ssh" / "config"
    config.parent.mkdir(mode=0o700)
    for setting, ours in (("yes", "yes"), ("no", "ask"), ("accept-new", "ask"), ("ask", "ask")):
        host = f"Include headgate/*.conf\nHost login.*\n  StrictHostKeyChecking {setting}\n"
        config.write_text(host)
        command = (await ssh_json(headgate, "login.example.org"))["command"]
        assert f"StrictHostKeyChecking={ours}" in command
        printed = (await headgate("ssh-config")).checked().stdout.decode()
        assert f"StrictHostKeyChecking {ours}" in printed


async def test_ssh_config_prints_and_writes(headgate: CommandLine):
    """By default it is printed; --write makes the file, and the Include only with --yes."""
    printed = (await headgate("ssh-config")).checked().stdout.decode()
    assert "Match host login.example.org exec" in printed
    assert not (headgate.home / ".ssh").exists()
    wrote = (await headgate("ssh-config", "--write")).checked().stderr.decode()
    assert "Put this at the top of" in wrote
    (path,) = (headgate.home / ".ssh" / "headgate").glob("*.conf")
    assert stat.S_IMODE((headgate.home / ".ssh").stat().st_mode) == 0o700
    assert path.read_text() == printed
    assert not (headgate.home / ".ssh" / "config").exists()
    done = await headgate.json("ssh-config", "--write", "--yes", "--host", "gpu*.example.org")
    assert isinstance(done, dict)
    assert (done["file"], done["written"], done["included"]) == (str(path), True, True)
    assert "Match host gpu*.example.org exec" in done["config"]
    (await headgate("ssh-config", "--write", "--yes")).checked()
    config = (headgate.home / ".ssh" / "config").read_text()
    assert config.count("Include") == 1


@pytest.mark.parametrize("pattern", ["*", "?*", "*.*", "a b", "-x"])
async def test_not_every_host_is_the_sites(headgate: CommandLine, pattern: str):
    """A pattern of all hosts, or none, becomes no configuration."""
    done = await headgate("ssh-config", "--host", pattern)
    assert done.status == 1
    assert done.stdout == b""


async def test_a_hostile_sites_names_stay_out_of_the_configuration(
    headgate: CommandLine, gateway: FakeGateway
):
    """A login node that is no host name is left out."""
    gateway.login_nodes = [
        {"host": 'x" exec "touch owned', "port": 22, "realm": "hpc"},
        {"host": "good.example.org", "port": 22, "realm": "hpc"},
    ]
    (await headgate("login", gateway.url)).checked()
    printed = (await headgate("ssh-config")).checked().stdout.decode()
    assert "owned" not in printed
    assert "Match host good.example.org" in printed


async def test_status_and_whoami_show_the_end(headgate: CommandLine):
    """In local time where people look, as UTC in JSON."""
    assert "No SSH certificates" in (await headgate("ssh-config", "--status")).stderr.decode()
    renewed = await headgate.json("ssh-renew")
    status = await headgate.json("ssh-config", "--status")
    assert isinstance(renewed, dict)
    assert status == {"certificates": [{**renewed, "revoked": False}]}
    shown = (await headgate("ssh-config", "--status", TZ="Asia/Tokyo")).checked().stdout.decode()
    hour = (int(renewed["valid_before"][11:13]) + 9) % 24
    assert f" {hour:02d}:{renewed['valid_before'][14:16]}" in shown
    assert "certificate" in (await headgate("whoami")).checked().stdout.decode()


async def test_logout_forgets_key_and_certificate(headgate: CommandLine, gateway: FakeGateway):
    """Nothing that logs in stays on the machine; ssh names the login that is missing."""
    (await headgate("ssh-renew")).checked()
    (await headgate("logout")).checked()
    left = {path.name for path in directory(headgate).iterdir()}
    assert left <= {"identity.json", "identity.json.lock", "known_hosts"}
    quick = ("ssh-renew", "--quiet", str(directory(headgate)))
    done = await headgate(*quick)
    assert done.status == 1
    assert f"Run: headgate login {gateway.url}" in done.stderr.decode()
    assert done.stderr.count(b"\n") == 1
    (await headgate("login", gateway.url)).checked()
    (await headgate(*quick)).checked()


async def test_logout_waits_for_a_renewal(headgate: CommandLine, translator: FakeTranslator):
    """A certificate that is on its way while the person logs out is forgotten, too."""
    (await headgate("ssh-renew")).checked()
    translator.gate.clear()
    renewal = asyncio.create_task(headgate("ssh-renew", "--force"))
    await until(lambda: len(translator.keys) == 2, seconds=30)
    logout = await headgate.start("logout")
    lock = directory(headgate) / "identity.json.lock"
    files = Path(f"/proc/{logout.pid}/fd")
    await until(
        lambda: logout.returncode is not None or lock in {p.resolve() for p in files.glob("*")},
        seconds=30,
    )
    assert logout.returncode is None
    translator.gate.set()
    await asyncio.gather(renewal, logout.communicate())
    assert logout.returncode == 0
    left = {path.name for path in directory(headgate).iterdir()}
    assert left <= {"identity.json", "identity.json.lock", "known_hosts"}


async def test_whoami_says_what_keeps_one_out(headgate: CommandLine, translator: FakeTranslator):
    """A suspension has its reason and its owner; without an answer nothing is said of it."""
    known = await headgate.json("whoami")
    assert isinstance(known, dict)
    assert (known["account"], known["holds"]) == ("alice", [])
    hold = {
        "id": "21e35149-746f-4263-9392-a59ee3da9859",
        "owner": "peer:importer",
        "reason": "lost\x1b[2J laptop",
        "realm": "",
        "created_at": "2020-01-02T10:00:00Z",
    }
    translator.holds = [hold, {**hold, "realm": "hpc"}]
    said = (await headgate("whoami")).checked().stderr.decode()
    assert "Suspended since 2020-01-02: lost" in said
    assert "Suspended in hpc since" in said
    assert "by peer:importer, who can lift it" in said
    assert "\x1b" not in said
    translator.acr = "stronger"
    assert b"Suspended" not in (await headgate("whoami")).checked().stderr
    unknown = await headgate.json("whoami")
    assert isinstance(unknown, dict)
    assert "holds" not in unknown


async def test_delegations(headgate: CommandLine, translator: FakeTranslator):
    """Listed for people and programs; ended by the beginning of the row; others' are unknown."""
    row = "21e35149-746f-4263-9392-a59ee3da9859"
    delegation = {
        "row": row,
        "service": "headgate-gateway",
        "sealed_at": "2026-01-01T12:00:00Z",
        "expires_at": "2026-01-31T12:00:00Z",
        "state": "active",
        "certificates": [{"serial": 7, "verb": "status", "valid_before": "2026-01-01T12:05:00Z"}],
    }
    others = [{**delegation, "row": f"0000000{n}-746f-4263-9392-a59ee3da9859"} for n in (1, 2)]
    translator.delegations, translator.page = [*others, delegation], 1
    shown = (await headgate("delegations")).checked().stdout.decode()
    assert row in shown
    assert "1 certificate" in shown
    listed = await headgate.json("delegations", "list")
    assert isinstance(listed, dict)
    assert listed["delegations"][2]["certificates"][0]["serial"] == 7
    assert await headgate.json("delegations", "end", row[:6]) == {"ended": row}
    assert delegation["state"] == "ended"
    unknown = await headgate("delegations", "end", "ffff")
    assert (unknown.status, "No delegation" in unknown.stderr.decode()) == (1, True)
    assert (await headgate("delegations", "end")).status == 2


async def test_no_secret_is_ever_shown(headgate: CommandLine):
    """Neither token nor key is printed, or in the arguments of what is run."""
    done = await headgate("ssh", "--json", "login.example.org")
    key = (directory(headgate) / "id_ed25519").read_text().splitlines()[1]
    for secret in (login(headgate)["access_token"], login(headgate)["refresh_token"], key):
        assert secret.encode() not in done.stdout + done.stderr
