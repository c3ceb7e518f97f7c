"""Certificates as they are read, worn and matched with a key; a real ssh-keygen makes them."""

import json
import os
import subprocess
import time
from pathlib import Path

import pytest

from headgate.cli.ssh import files
from headgate.cli.ssh.wire import Certificate, WireError, blob


def run(*argv: str, cwd: Path) -> None:
    """A command that succeeds."""
    subprocess.run(argv, check=True, cwd=cwd, capture_output=True)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """An identity whose certificate is good for ten minutes."""
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", "ca", cwd=tmp_path)
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", "id_ed25519", cwd=tmp_path)
    certify(tmp_path, "-1m:+10m")
    return tmp_path


def certify(directory: Path, validity: str, *more: str) -> None:
    """A certificate for the key there."""
    argv = ("ssh-keygen", "-q", "-s", "ca", "-I", "id", "-n", "a,b", "-z", "7", "-V", validity)
    run(*argv, *more, "id_ed25519.pub", cwd=directory)


def test_a_certificate_says_what_ssh_keygen_put_in(directory: Path):
    """Serial, principals, times and the key are read as they were written."""
    certificate = files.read_certificate(str(directory))
    assert certificate is not None
    assert (certificate.serial, certificate.key_id) == (7, b"id")
    assert certificate.principals == [b"a", b"b"]
    assert 590 < certificate.remaining(time.time()) <= 600
    assert certificate.key == blob((directory / "id_ed25519.pub").read_bytes())


ALICE = {"iss": "https://iam.example.org/", "sub": "alice-1"}
BOB = {**ALICE, "sub": "bob-1"}


def keep(path: Path, **content: object) -> Path:
    """A private JSON file."""
    path.write_text(json.dumps(content))
    return path


def test_a_good_certificate_with_its_key_is_ready(directory: Path):
    """Nothing has to be done, and the command of `Match exec` sees that."""
    assert files.ready(str(directory), {}, time.time())
    assert not files.nothing_to_do(["ssh-renew", "--quiet", str(directory)], {})
    keep(directory / "identity.json", person=ALICE, login=str(directory / "login.json"))
    asked = keep(directory / "revocations_asked")
    assert files.nothing_to_do(["ssh-renew", "--quiet", str(directory)], {})
    for moment in (time.time() - 61, time.time() + 3600):
        os.utime(asked, (moment, moment))
        assert not files.nothing_to_do(["ssh-renew", "--quiet", str(directory)], {})
    asked.touch()
    assert not files.nothing_to_do(["ssh-renew", str(directory)], {})
    assert not files.nothing_to_do(["ssh-renew", "--quiet", str(directory), "--force"], {})
    assert not files.nothing_to_do([], {})


@pytest.mark.parametrize(
    ("saved", "environ", "ours"),
    [
        ({"person": ALICE}, {}, True),
        ({"person": BOB}, {}, False),
        ({}, {}, False),
        ({"person": ALICE}, {"HEADGATE_TOKEN": "t"}, False),
        ({"person": ALICE}, {"HEADGATE_TOKEN": " "}, True),
        ({"person": ALICE}, {"BEARER_TOKEN": "t"}, True),
        (None, {}, True),
        (None, {"BEARER_TOKEN": "t"}, False),
        (None, {"BEARER_TOKEN_FILE": "/run/token"}, False),
        (None, {"HEADGATE_TOKEN": "t"}, False),
    ],
)
def test_it_is_the_logins_own(
    tmp_path: Path, saved: dict[str, object] | None, environ: dict[str, str], *, ours: bool
):
    """A given token, or a saved login of somebody else, leaves something to do."""
    login = tmp_path / "login.json"
    if saved is not None:
        keep(login, **saved)
    keep(tmp_path / "identity.json", person=ALICE, login=str(login))
    assert files.ours(str(tmp_path), environ) is ours


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"person": null, "login": ""}', "{"])
def test_an_identity_that_does_not_say_whose_it_is(tmp_path: Path, content: str):
    """One of an older version, or a damaged one, is for the whole command to look at."""
    (tmp_path / "identity.json").write_text(content)
    assert not files.ours(str(tmp_path), {})
    keep(tmp_path / "login.json", person=None)
    keep(tmp_path / "identity.json", person=None, login=str(tmp_path / "login.json"))
    assert not files.ours(str(tmp_path), {})


@pytest.mark.parametrize(
    ("validity", "ready"),
    [
        ("-1m:+10m", True),
        ("-10m:+130s", True),
        ("-10m:+115s", False),
        ("-1m:+30s", True),
        ("-2m:+30s", False),
        ("-10m:-1m", False),
        ("+1m:+10m", False),
    ],
)
def test_it_is_renewed_in_time(directory: Path, validity: str, *, ready: bool):
    """Two minutes before its end, or in its last quarter; before its beginning it is no use."""
    certify(directory, validity)
    assert files.ready(str(directory), {}, time.time()) is ready


def test_a_key_that_is_gone_is_noticed(directory: Path):
    """Without the private key, and without an agent that has it, there is something to do."""
    (directory / "id_ed25519").unlink()
    assert not files.ready(str(directory), {}, time.time())
    assert not files.ready(str(directory), {"SSH_AUTH_SOCK": "/nonexistent"}, time.time())


def test_a_certificate_for_another_key_is_no_use(directory: Path):
    """The public key beside it must be the certified one."""
    (directory / "id_ed25519").unlink()
    (directory / "id_ed25519.pub").unlink()
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", "id_ed25519", cwd=directory)
    assert not files.ready(str(directory), {}, time.time())


def test_links_are_not_followed(directory: Path):
    """A certificate that is a link is none."""
    (directory / "id_ed25519-cert.pub").rename(directory / "elsewhere")
    (directory / "id_ed25519-cert.pub").symlink_to("elsewhere")
    assert files.read_certificate(str(directory)) is None


def test_host_certificates_and_nonsense_are_refused(directory: Path):
    """Only a user certificate counts; whatever else is there is an error, never a crash."""
    certify(directory, "-1m:+10m", "-h")
    assert files.read_certificate(str(directory)) is None
    line = (directory / "id_ed25519-cert.pub").read_bytes()
    content = blob(line)
    for cut in range(0, len(content) - 60, 7):
        with pytest.raises(WireError):
            Certificate(content[:cut])
    for wrong in (b"", b"ssh-ed25519", b"ssh-ed25519 !!!", b"ssh-rsa " + line.split()[1]):
        with pytest.raises(WireError):
            blob(wrong)
