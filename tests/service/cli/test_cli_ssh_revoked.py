"""A certificate that the site has revoked: the command notices, gets another, or says why not."""

import os
from pathlib import Path

import pytest

from headgate.cli.ssh.wire import Certificate, blob
from testbed.issuer.settings import IssuerSettings
from tests.service.cli.command_line import CommandLine
from tests.service.cli.fake_translator import FakeTranslator
from tests.service.cli.ssh_login import SETTINGS, directory

ASKED = "revocations_asked"


@pytest.fixture
def settings() -> IssuerSettings:
    """The issuer's, for tests to change."""
    return SETTINGS


@pytest.fixture
async def headgate(logged_in: CommandLine) -> CommandLine:
    """The command of somebody who has logged in and has a certificate, of a minute ago."""
    (await logged_in("ssh-renew")).checked()
    a_minute_later(logged_in)
    return logged_in


def a_minute_later(headgate: CommandLine) -> None:
    """Let the last question about the certificate be as old as that."""
    asked = directory(headgate) / ASKED
    os.utime(asked, (asked.stat().st_mtime - 61,) * 2)


def serial(headgate: CommandLine) -> int:
    """The serial of the certificate that ssh is given."""
    path: Path = directory(headgate) / "id_ed25519-cert.pub"
    return Certificate(blob(path.read_bytes())).serial


async def test_a_revoked_certificate_is_replaced(headgate: CommandLine, translator: FakeTranslator):
    """After a suspension and a resume, what ssh runs gets a new certificate for a new key."""
    translator.revoked.add(1)
    quick = ("ssh-renew", "--quiet", str(directory(headgate)))
    done = await headgate(*quick)
    assert (done.status, done.stdout, done.stderr) == (0, b"", b"")
    assert serial(headgate) == 2
    assert translator.keys[0] != translator.keys[1]


async def test_headgate_ssh_replaces_it_too(headgate: CommandLine, translator: FakeTranslator):
    """`headgate ssh` does not offer a revoked certificate, and says that there is another."""
    translator.revoked.add(1)
    done = (await headgate("ssh", "login.example.org", "-V")).checked()
    assert "was revoked" in done.stderr.decode()
    assert serial(headgate) == 2


async def test_whoever_is_suspended_reads_why(headgate: CommandLine, translator: FakeTranslator):
    """While a hold is in force, each of the ways to ssh says the site's reason."""
    translator.revoked.add(1)
    translator.suspended = True
    quick = ("ssh-renew", "--quiet", str(directory(headgate)))
    for command in (quick, quick, ("ssh", "login.example.org", "true")):
        done = await headgate(*command)
        assert done.status == 1
        assert "suspended: misuse" in done.stderr.decode()
    translator.suspended = False
    (await headgate(*quick)).checked()
    assert serial(headgate) == 2


async def test_the_site_is_asked_once_a_minute(headgate: CommandLine, translator: FakeTranslator):
    """A good certificate costs one question a minute, and the list travels only when it changed."""
    quick = ("ssh-renew", "--quiet", str(directory(headgate)))
    for _ in range(2):
        (await headgate(*quick)).checked()
    assert (translator.lists_asked, translator.lists_sent) == (1, 1)
    a_minute_later(headgate)
    (await headgate(*quick)).checked()
    assert (translator.lists_asked, translator.lists_sent) == (2, 1)
    assert serial(headgate) == 1


@pytest.mark.parametrize("answer", [None, b"no list at all"])
async def test_without_an_answer_the_certificate_counts(
    headgate: CommandLine, translator: FakeTranslator, answer: bytes | None
):
    """A site without a list, or with one that is none, keeps nobody from using what they have."""
    translator.list_bytes = answer
    translator.revoked.add(1)
    quick = ("ssh-renew", "--quiet", str(directory(headgate)))
    done = await headgate(*quick)
    assert (done.status, done.stderr) == (0, b"")
    assert serial(headgate) == 1


async def test_the_status_shows_it(headgate: CommandLine, translator: FakeTranslator):
    """`ssh-config --status` does not call a revoked certificate good."""
    translator.revoked.add(1)
    assert "revoked" in (await headgate("ssh-config", "--status")).checked().stdout.decode()
    (await headgate("ssh-renew")).checked()
    assert "revoked" not in (await headgate("ssh-config", "--status")).checked().stdout.decode()
