"""What OpenSSH is told: the real ssh understands it, and nothing foreign gets in."""

import subprocess
from pathlib import Path

import pytest

from headgate.cli.failures import CommandFailure
from headgate.cli.site_names import Domain
from headgate.cli.ssh import config, hosts

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJFz5r2HeF4w2yJ9y8vR9Cw0O4sN1p9mF3y3c8yQ2bJk"


def use(directory: Path, **node: object) -> hosts.Use:
    """An identity at a host."""
    at = hosts.Node(**{"host": "login.example.org", "port": 2222, **node})
    return hosts.Use(at, "alice", str(directory), str(directory / "known_hosts"))


def understood(text: str, tmp_path: Path, host: str) -> dict[str, list[str]]:
    """What `ssh -G` makes of a configuration."""
    path = tmp_path / "config"
    path.write_text(text)
    done = subprocess.run(
        ["ssh", "-G", "-F", str(path), host], check=True, capture_output=True, text=True
    )
    settings: dict[str, list[str]] = {}
    for line in done.stdout.splitlines():
        name, _, value = line.partition(" ")
        settings.setdefault(name, []).append(value)
    return settings


def test_ssh_understands_it(tmp_path: Path):
    """Account, port, key and certificate hold for the host, and for no other."""
    text = config.snippet("https://x", [use(tmp_path, vouched=True)], ("true",))
    here = understood(text, tmp_path, "login.example.org")
    assert (here["user"], here["port"]) == (["alice"], ["2222"])
    assert here["certificatefile"] == [f"{tmp_path}/id_ed25519-cert.pub"]
    assert here["identityfile"] == [f"{tmp_path}/id_ed25519"]
    assert here["identitiesonly"] == ["yes"]
    assert here["stricthostkeychecking"] == ["true"]
    assert here["addkeystoagent"] == ["false"]
    assert f"{tmp_path}/known_hosts" in here["userknownhostsfile"][0]
    elsewhere = understood(text, tmp_path, "other.example.org")
    assert elsewhere["port"] == ["22"]
    assert f"{tmp_path}/id_ed25519" not in elsewhere["identityfile"]


def test_what_ssh_needs_holds_when_the_renewal_failed(tmp_path: Path):
    """Port, account and host key checking stay; the certificate is left out."""
    text = config.snippet("https://x", [use(tmp_path)], ("false",))
    here = understood(text, tmp_path, "login.example.org")
    assert (here["user"], here["port"]) == (["alice"], ["2222"])
    assert here["stricthostkeychecking"] == ["ask"]
    assert "certificatefile" not in here


def test_renewal_runs_for_its_own_host_only(tmp_path: Path):
    """`ssh` to anywhere else does not start the command."""
    mark = tmp_path / "mark"
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {mark}\n")
    program.chmod(0o700)
    text = config.snippet("https://x", [use(tmp_path)], (str(program),))
    understood(text, tmp_path, "other.example.org")
    assert not mark.exists()
    understood(text, tmp_path, "login.example.org")
    assert mark.exists()


@pytest.mark.parametrize("program", ["/a b/headgate", "/a%h", "/a;b", "/a$(b)", '/a"b', "/a`b`"])
def test_a_strange_path_is_refused(tmp_path: Path, program: str):
    """The command goes through a shell of the person's: only plain paths do."""
    with pytest.raises(CommandFailure, match="cannot be written"):
        config.snippet("https://x", [use(tmp_path)], (program,))


@pytest.mark.parametrize("account", ["-oProxyCommand=x", "a b", "a\nProxyCommand x", "", "a%r"])
def test_a_strange_account_is_refused(tmp_path: Path, account: str):
    """What a service names as the account becomes a setting only if it is a name."""
    with pytest.raises(CommandFailure, match="no account"):
        hosts.Use(hosts.Node("h"), account, str(tmp_path)).place()


@pytest.mark.parametrize(
    ("host", "good"),
    [
        ("login.example.org", True),
        ("127.0.0.1", True),
        ("::1", False),
        ("2001:db8::1", True),
        ("-oProxyCommand=x", False),
        ("a b", False),
        ("a\nb", False),
        ("*", False),
        ("$(x)", False),
        ("", False),
    ],
)
def test_only_names_are_hosts(host: str, *, good: bool):
    """Nothing that ssh or a shell would read otherwise is a host."""
    assert bool(hosts.HOST.fullmatch(host)) is good


def test_known_hosts_are_lines_of_keys():
    """Certificate authorities, revocations and keys are kept; anything else is left out."""
    good = (
        f"@cert-authority *.example.org {KEY}",
        f"@revoked * {KEY}",
        f"[login.example.org]:2222,10.0.0.1 {KEY} a comment",
    )
    bad = (
        "login.example.org",
        f"@command x {KEY}",
        f"a b {KEY}",
        "login.example.org ssh-ed25519 !!!",
        f"login.example.org\x1b[2J {KEY}",
        "<html>",
    )
    assert hosts.known_hosts("\n".join((*good, *bad))) == good


@pytest.mark.parametrize(
    ("names", "vouched"),
    [
        ("login.example.org", False),
        ("[login.example.org]:2222", True),
        ("[*.example.org]:2222", True),
        ("*", True),
        ("*,!*.example.org*", False),
        ("*,![login.example.org]:2222", False),
        ("|1|abc=|def=", True),
        ("other.example.org", False),
    ],
)
def test_a_host_is_vouched_for_by_a_line_about_it(names: str, *, vouched: bool):
    """Patterns, ports and negations count as OpenSSH has them."""
    line = f"{names} {KEY}"
    assert hosts.vouched([line], "login.example.org", 2222) is vouched
    assert hosts.vouched([f"@cert-authority {line}"], "login.example.org", 2222) is vouched
    assert not hosts.vouched([f"@revoked {line}"], "login.example.org", 2222)


@pytest.mark.parametrize(
    ("names", "kept"),
    [
        ("login.example.org", "login.example.org"),
        ("*,login.example.org,10.0.0.1", "login.example.org"),
        ("*.x.example.org,!b.x.example.org", "*.x.example.org,!b.x.example.org"),
        ("*,!other.example.net", ""),
        ("|1|abc=|def=", ""),
        ("github.com", ""),
    ],
)
def test_a_site_vouches_for_its_own_hosts(names: str, kept: str):
    """Other names are taken out of a line, and a line without one of its own is left out."""
    domain = Domain("example.org")
    for marker in ("", "@cert-authority "):
        lines, _ = hosts.own([f"{marker}{names} {KEY} a comment"], domain)
        assert lines == ((f"{marker}{kept} {KEY} a comment",) if kept else ())
    assert hosts.own([f"@revoked {names} {KEY}"], domain)[0] == (f"@revoked {names} {KEY}",)


def test_the_include_goes_on_top_once(tmp_path: Path):
    """What was there stays, a link stays a link, the mode stays, and twice is once."""
    target = tmp_path / "dotfiles"
    target.write_text("Host x\n  Port 1\n")
    target.chmod(0o644)
    folder = tmp_path / ".ssh"
    folder.mkdir()
    (folder / "config").symlink_to(target)
    assert not config.included(folder)
    config.include(folder)
    assert config.included(folder)
    assert target.read_text() == "Include headgate/*.conf\n\nHost x\n  Port 1\n"
    assert (folder / "config").is_symlink()
    assert target.stat().st_mode & 0o777 == 0o644


def test_the_include_makes_a_new_configuration(tmp_path: Path):
    """Where there is no configuration, a private one is made."""
    config.include(tmp_path / ".ssh")
    path = tmp_path / ".ssh" / "config"
    assert path.read_text() == "Include headgate/*.conf\n"
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
