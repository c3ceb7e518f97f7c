"""What a node is told, and how sshd's answers are judged: all without a node."""

import shlex
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from headgate.settings import EX_CONFIG
from token_translator import __main__ as tokens_main
from token_translator.nodes import findings, lines
from token_translator.nodes.effective import judge
from token_translator.nodes.host_certificate import FOREVER, shown_in
from token_translator.nodes.settings import Node

NODE = Node(realm="main", uid_first=20000, uid_last=29999, gateways=("192.0.2.10",))
ED25519 = "Ed25519 certificates from elsewhere"
SOUND = {
    "trustedusercakeys": (NODE.user_ca,),
    "revokedkeys": (NODE.revoked_keys,),
    "authorizedprincipalscommand": (f"{NODE.principals_program} %u %U",),
    "authorizedprincipalscommanduser": ("nobody",),
    "authorizedprincipalsfile": ("none",),
    "usepam": ("yes",),
    "authorizedkeysfile": ("none",),
    "authorizedkeyscommand": ("none",),
    "permituserenvironment": ("no",),
    "pubkeyauthentication": ("yes",),
    "pubkeyacceptedalgorithms": ("ssh-ed25519-cert-v01@openssh.com,ssh-ed25519",),
    "casignaturealgorithms": ("ssh-ed25519,rsa-sha2-512",),
    "forcecommand": ("none",),
    "acceptenv": ("LANG", "LC_*"),
    "authenticationmethods": ("any",),
}


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"realm": "a b"}, "realm"),
        ({"realm": "Main"}, "realm"),
        ({"uid_first": 30000}, "uid_last"),
        ({"session_program": "/usr/libexec/a b"}, "session_program"),
        ({"user_ca": "relative"}, "user_ca"),
        ({"revoked_keys": "/etc/x\nForceCommand y"}, "revoked_keys"),
        ({"principals_program": "/x;y"}, "principals_program"),
        ({"principals_user": "no body"}, "principals_user"),
        ({"linked": ("root",)}, "linked"),
        ({"linked": ("a;b",)}, "linked"),
        ({"host_sets": ("a:b",)}, "host_sets"),
        ({"host_sets": ("a@b",)}, "host_sets"),
        ({"people_group": "a b"}, "people_group"),
        ({"tokens": "https://x/'; y"}, "tokens"),
        ({"host_certificate": "/etc/ssh/key.pub"}, "host_certificate"),
        ({"session_digests": ("x",)}, "session_digests"),
        ({"gateways": ("login.example.org",)}, "login.example.org"),
        ({"front_doors": ("192.0.2.1 ForceCommand",)}, "192.0.2.1"),
    ],
)
def test_node_lines_hold_only_words(changes: dict[str, object], key: str) -> None:
    """What would not stay one word in sshd's file or the shell's is refused, by its key."""
    usual = {"realm": "main", "uid_first": 20000, "uid_last": 29999}
    with pytest.raises(ValueError, match=key):
        Node(**{**usual, **changes})  # type: ignore[arg-type] - wrong on purpose


def test_node_lines_each_have_their_reason() -> None:
    """Every line for sshd stands below a comment that says why."""
    node = Node(
        realm="main",
        uid_first=20000,
        uid_last=29999,
        gateways=("192.0.2.10", "192.0.2.11"),
        front_doors=("192.0.2.11",),
        second_factor=True,
        people_group="hpc",
        host_certificate="/etc/ssh/ssh_host_ed25519_key-cert.pub",
    )
    blocks = [block.splitlines() for block in lines.sshd(node).strip().split("\n\n")]
    assert all(block[0].startswith("#") for block in blocks if block != ["Match all"])
    text = lines.sshd(node)
    # An address that is both comes with terminals: the front door's people need them.
    assert "Match Address 192.0.2.11\n" in text
    assert "Match Address 192.0.2.10\n" in text
    assert "ForceCommand" not in [line.split()[0] for line in text.splitlines() if line.strip()]
    assert text.rstrip().endswith("Match all")


@pytest.mark.parametrize("part", ["sshd", "principals", "units", "host-certificate", "all"])
def test_node_lines_are_printed(part: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each part is printed by the command, from options alone."""
    words = ["node-setup", "--print", part, "--realm", "main", "--gateway", "192.0.2.10"]
    assert tokens_main.main([*words, "--uid-first", "20000", "--uid-last", "29999"]) == 0
    assert capsys.readouterr().out.startswith("#")


@pytest.mark.parametrize(
    "words", [["--realm", "main"], ["--realm", "a b", "--uid-first", "20000", "--uid-last", "3"]]
)
def test_node_lines_need_the_sites_numbers(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Without them, or with what cannot be, there is one sentence and the status of settings."""
    assert tokens_main.main(["node-setup", "--print", "sshd", *words]) == EX_CONFIG
    assert "headgate-tokens: the node:" in capsys.readouterr().err


def test_node_lines_options_stand_over_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A node's TOML is read, an option replaces a key of it, an unknown key is refused."""
    path = tmp_path / "node.toml"
    path.write_text('realm = "main"\nuid_first = 20000\nuid_last = 29999\n')
    words = ["node-setup", "--print", "principals", "--node", str(path)]
    assert tokens_main.main([*words, "--realm", "other"]) == 0
    assert "'other'" in capsys.readouterr().out
    assert tokens_main.main([*words, "--realm", "a b"]) == EX_CONFIG
    path.write_text(path.read_text() + "uid_frist = 1\n")
    assert tokens_main.main(words) == EX_CONFIG


def test_node_lines_end_with_a_check_that_works(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command that proves it names the node as the one that printed it did."""
    path = tmp_path / "my node.toml"
    path.write_text('realm = "main"\nuid_first = 20000\nuid_last = 29999\n')
    for words in (
        ["--node", str(path), "--gateway", "192.0.2.10", "--gateway", "192.0.2.11"],
        ["--realm", "main", "--uid-first", "20000", "--uid-last", "29999"],
    ):
        assert tokens_main.main(["node-setup", "--print", *words]) == 0
        (line,) = [
            line
            for line in capsys.readouterr().out.splitlines()
            if line.startswith("# headgate-tokens node-setup --check")
        ]
        said = shlex.split(line.removeprefix("# headgate-tokens node-setup --check"))
        assert sorted(said) == sorted(words)


def test_node_lines_say_how_authorities_are_compared(capsys: pytest.CaptureFixture[str]) -> None:
    """Both sides of the comparison are commands that print fingerprints."""
    words = ["--realm", "main", "--uid-first", "20000", "--uid-last", "29999"]
    assert tokens_main.main(["node-setup", "--print", *words]) == 0
    printed = capsys.readouterr().out
    assert f"ssh-keygen -lf {NODE.user_ca}" in printed
    assert "`headgate-signer authorities`" in printed


@pytest.mark.parametrize("words", [[], ["--realm", "main"]])
def test_node_lines_name_the_options_that_are_missing(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """The complaint says what to type."""
    assert tokens_main.main(["node-setup", "--print", *words]) == EX_CONFIG
    complaint = capsys.readouterr().err
    assert "--node FILE" in complaint
    assert ("--realm" in complaint) is (not words)
    assert "--uid-first, --uid-last" in complaint


def test_node_judgement_of_a_certificate_that_sshd_does_not_know() -> None:
    """It is sshd's line that is missing; the file may well be there."""
    node = msgspec.structs.replace(NODE, host_certificate="/etc/ssh/key-cert.pub")
    found = {finding.check: finding for finding in judge(node, SOUND, "alice", "elsewhere")}
    finding = found["sshd's host certificate"]
    assert finding.state == "failed"
    assert finding.detail == "sshd has no line: HostCertificate /etc/ssh/key-cert.pub"


def script(tmp_path: Path, node: Node) -> Path:
    """The principals program in a file."""
    path = tmp_path / "principals"
    path.write_text(lines.principals_program(node))
    return path


@pytest.mark.parametrize(
    ("name", "uid", "opens"),
    [
        ("alice", "20000", True),
        ("alice", "29999", True),
        ("a.b-c_d", "20001", True),
        ("alice", "19999", False),
        ("alice", "30000", False),
        ("root", "0", False),
        ("toor", "0", False),
        ("linked", "500", True),
        ("linked", "0", False),
        ("linkedx", "500", False),
        ("-n", "20001", False),
        ("Alice", "20001", False),
        ("a b", "20001", False),
        ("a\nhg:main:root", "20001", False),
        ("$(id)", "20001", False),
        ("", "20001", False),
        ("alice", "99999999999999999999999", False),
        ("alice", "-20001", False),
        ("alice", "", False),
    ],
)
def test_node_principals_program_prints(tmp_path: Path, name: str, uid: str, opens: bool) -> None:  # noqa: FBT001 - a case's outcome
    """Its own principals for accounts of the range and linked ones; nothing for all others."""
    node = Node(
        realm="main", uid_first=20000, uid_last=29999, linked=("linked",), host_sets=("data",)
    )
    argv = ["sh", str(script(tmp_path, node)), name, uid]
    done = subprocess.run(argv, check=False, capture_output=True, text=True, timeout=20)
    expected = f"hg:main:{name}\nhg:main@data:{name}\n" if opens else ""
    assert done.stdout == expected
    if opens:
        assert done.returncode == 0
        assert node.principals_of(name, int(uid)) == tuple(expected.split())


@pytest.mark.parametrize("words", [[], ["alice"], ["alice", "x"]])
def test_node_principals_program_fails_closed(tmp_path: Path, words: list[str]) -> None:
    """Called wrongly it prints nothing and fails, which denies."""
    argv = ["sh", str(script(tmp_path, NODE)), *words]
    done = subprocess.run(argv, check=False, capture_output=True, text=True, timeout=20)
    assert (done.stdout, done.returncode != 0) == ("", True)


def states(changes: dict[str, tuple[str, ...]], place: str = "elsewhere") -> dict[str, str]:
    """Sshd's answer, judged: what is not as it has to be."""
    found = judge(NODE, {**SOUND, **changes}, "alice", place)
    return {finding.check: finding.state for finding in found if finding.state != "ok"}


def test_node_judgement_of_a_sound_sshd() -> None:
    """Nothing is found where everything is as printed."""
    assert states({}) == {}
    assert states({}, "a gateway, 192.0.2.10") == {}


@pytest.mark.parametrize(
    ("keyword", "values", "check", "state"),
    [
        ("trustedusercakeys", ("none",), "sshd's authorities", "failed"),
        ("revokedkeys", (), "sshd's revocation list", "failed"),
        ("authorizedprincipalscommand", ("none",), "sshd's principals", "failed"),
        ("authorizedprincipalscommanduser", ("root",), "sshd's principals", "failed"),
        ("authorizedprincipalsfile", ("/etc/x",), "sshd's principals", "failed"),
        ("usepam", ("no",), "expired accounts", "warning"),
        ("authorizedkeysfile", (".ssh/authorized_keys",), "no other keys", "warning"),
        ("authorizedkeyscommand", ("/usr/bin/sss",), "no other keys", "warning"),
        ("permituserenvironment", ("yes",), "the users' environment", "failed"),
        ("pubkeyauthentication", ("no",), "certificates from elsewhere", "failed"),
        ("pubkeyacceptedalgorithms", ("rsa-sha2-512",), ED25519, "failed"),
        ("casignaturealgorithms", ("rsa-sha2-512",), ED25519, "failed"),
        ("forcecommand", ("/bin/x",), "no command of sshd's own from elsewhere", "failed"),
        ("acceptenv", ("*",), "variables from elsewhere", "failed"),
        ("acceptenv", ("LD_*",), "variables from elsewhere", "failed"),
        ("acceptenv", ("LANG SHELLOPTS",), "variables from elsewhere", "failed"),
    ],
)  # fmt: skip
def test_node_judgement_names_what_is_wrong(
    keyword: str, values: tuple[str, ...], check: str, state: str
) -> None:
    """One keyword that is otherwise is found, and that alone."""
    assert states({keyword: values}) == {check: state}


@pytest.mark.parametrize(
    ("methods", "fails"),
    [
        ("any", False),
        ("publickey", False),
        ("publickey,keyboard-interactive", True),
        ("password publickey", False),
        ("publickey,keyboard-interactive publickey", False),
        ("keyboard-interactive", True),
    ],
)
def test_node_judgement_of_second_factors(methods: str, fails: bool) -> None:  # noqa: FBT001 - a case's outcome
    """A service gets in with a certificate alone, or it does not get in."""
    found = states({"authenticationmethods": (methods,)}, "a gateway, 192.0.2.10")
    assert bool(found) is fails


def test_node_findings_have_a_status() -> None:
    """A failure is 1, something not looked at 3, warnings alone are 0."""
    some = [findings.ok("a"), findings.warning("b", "x")]
    assert findings.status(some) == 0
    assert findings.status([*some, findings.skipped("c", "x")]) == 3
    assert findings.status([*some, findings.skipped("c", "x"), findings.failed("d", "x")]) == 1


CERTIFICATE = """\
/etc/ssh/ssh_host_ed25519_key-cert.pub:
        Type: ssh-ed25519-cert-v01@openssh.com host certificate
        Public key: ED25519-CERT SHA256:VfJyhQ
        Signing CA: ED25519 SHA256:b2kEQH (using ssh-ed25519)
        Key ID: "v1;host=login1.site.example"
        Serial: 9
        Valid: from 2026-01-01T00:00:00 to 2026-02-01T00:00:00
        Principals: 
                login1.site.example
                127.0.0.1
        Critical Options: (none)
        Extensions: (none)
"""  # noqa: W291 - as ssh-keygen prints it


def test_node_host_certificate_is_read_as_shown() -> None:
    """What `ssh-keygen -L` prints, with names, one without, one for ever, and something else."""
    shown = shown_in(CERTIFICATE)
    assert (shown.kind, shown.key, shown.authority) == ("host", "SHA256:VfJyhQ", "SHA256:b2kEQH")
    assert shown.names == ("login1.site.example", "127.0.0.1")
    assert shown.valid_before == datetime(2026, 2, 1, tzinfo=UTC)
    start, _, rest = CERTIFICATE.partition("Principals: \n")
    none = f"{start}Principals: (none)\n{rest[rest.index('        Critical') :]}"
    assert shown_in(none).names == ()
    ever = CERTIFICATE.replace("from 2026-01-01T00:00:00 to 2026-02-01T00:00:00", "forever")
    assert shown_in(ever).valid_before == FOREVER
    with pytest.raises(ValueError, match="no certificate"):
        shown_in("256 SHA256:x no comment (ED25519)")
