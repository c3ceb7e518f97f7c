"""The container's files name things that exist, and its foreground site ends when it is told."""

import asyncio
import contextlib
import os
import re
import signal
from collections.abc import AsyncIterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from testbed import foreground
from testbed.site import Addresses
from testbed.venv import PACKAGES

ROOT = Path(__file__).resolve().parents[2]
AT = Addresses(
    name="main",
    state="/srv/s",
    cluster="testbed",
    realm="testbed",
    slurm_conf="/srv/s/slurm.conf",
    ssh={"host": "127.0.0.1", "port": 20005, "known_hosts": "/srv/s/known_hosts"},
    registry="http://127.0.0.1:20006",
    image="headgate/demo:latest",
    venv="/srv/venv",
    issuer="http://127.0.0.1:20001/",
    gateway="http://127.0.0.1:20002",
    token_translator="http://127.0.0.1:20003",
    account_importer="http://127.0.0.1:20004",
    users=("alice", "bob"),
)


def _words(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_the_image_is_given_all_that_the_site_is_made_of():
    """What .dockerignore lets through is there, and every package of the site is among it."""
    let_through = set(re.findall(r"^!(\S+)$", _words(".dockerignore"), re.MULTILINE))
    assert let_through >= {*PACKAGES, "constraints", "pyproject.toml", "README.md", "LICENSE"}
    assert [name for name in let_through if not (ROOT / name).exists()] == []


def test_the_image_has_the_lists_of_packages_that_the_demo_has():
    """The Dockerfile installs lists that exist: the demo's, without the monitoring server's."""
    calls = [_words("Dockerfile"), _words("testbed/setup/demo.sh")]
    image, demo = (
        re.findall(r'packages\.sh"? ([a-z ]+?) (?:\\|\|\|)', text)[0].split() for text in calls
    )
    assert {*demo} - {*image} == {"zabbix"}
    assert [
        part for part in image if not (ROOT / f"testbed/setup/packages/{part}.list").exists()
    ] == []


def test_the_container_runs_a_service_and_a_module_that_exist():
    """People are told to go by way of a service that compose.yaml has, to a module there is."""
    (module, service) = re.findall(
        r'^CMD \["python", "-m", "([\w.]+)", "--by-way-of", "docker compose exec -T (\w+)"\]$',
        _words("Dockerfile"),
        re.MULTILINE,
    )[0]
    assert find_spec(module)
    assert re.search(rf"^services:\n  {service}:$", _words("compose.yaml"), re.MULTILINE)


def test_the_invitation_says_where_everything_is():
    """Each address is in it, and each command that must run inside has the way in before it."""
    text = foreground.invitation(AT, "docker compose exec -T site")
    for address in (AT.issuer, AT.gateway, AT.token_translator, AT.account_importer, "20005"):
        assert address in text
    commands = re.findall(
        r"^.*(?:headgate (?:login|job|whoami)|python -m testbed).*$", text, re.MULTILINE
    )
    assert len(commands) == 6
    assert all("docker compose exec -T site" in command for command in commands)
    assert "docker" not in foreground.invitation(AT)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_site_and_is_no_failure(
    monkeypatch: pytest.MonkeyPatch, number: signal.Signals
):
    """INT and TERM end the site in order, whatever it is doing, and the status is 0."""
    ended = []

    @contextlib.asynccontextmanager
    async def site(name: str) -> AsyncIterator[None]:
        try:
            os.kill(os.getpid(), number)
            await asyncio.Event().wait()
            yield
        finally:
            ended.append(name)

    monkeypatch.setattr(foreground, "site", site)
    assert foreground.main(["--name", "x"]) == 0
    assert ended == ["x"]


def test_a_site_that_does_not_come_up_is_a_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """The reason goes to standard error, and the status is 1."""

    @contextlib.asynccontextmanager
    async def site(_name: str) -> AsyncIterator[None]:
        raise foreground.InstanceError("no right to")
        yield

    monkeypatch.setattr(foreground, "site", site)
    assert foreground.main([]) == 1
    assert capsys.readouterr().err == "testbed: no right to\n"
