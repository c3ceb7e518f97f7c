"""Where a jump may go: exactly where the list says, and never to the inside."""

import asyncio
import socket
from typing import Any

import pytest

from token_translator.frontdoor.environment import environment
from token_translator.frontdoor.targets import Target, TargetError, Targets, addresses

LOGIN = Target(host="login1.hpc.example", address="192.0.2.10")


def test_only_the_listed_name_and_port():
    """A target is found by its name and port, in any case and with a final dot, else not."""
    targets = Targets([LOGIN])
    assert targets.find("login1.hpc.example", 22) == LOGIN
    assert targets.find("LOGIN1.hpc.example.", 22) == LOGIN
    for host, port in (
        ("login1.hpc.example", 2222),
        ("login1.hpc.example", 0),
        ("192.0.2.10", 22),
        ("login1", 22),
        ("login1.hpc.example.evil.example", 22),
        ("login1.hpc.example\0", 22),
        ("127.0.0.1", 22),
        ("localhost", 22),
        ("169.254.169.254", 80),
        ("", 22),
    ):
        assert targets.find(host, port) is None


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "::1", "169.254.169.254", "0.0.0.0", "::", "224.0.0.1", "::ffff:127.0.0.1"],  # noqa: S104 - to be refused
)
def test_an_address_on_the_inside_is_no_target(host: str):
    """Loopback, link-local and the like as a target's own name are a mistake in the settings."""
    with pytest.raises(ValueError, match="not an address that is reached"):
        Target(host=host)


async def test_a_given_address_is_not_looked_up():
    """With an address in the settings, no name server has a say."""
    assert await addresses(LOGIN) == ("192.0.2.10",)


@pytest.mark.parametrize(
    "answer", [["127.0.0.1"], ["192.0.2.1", "127.0.0.1"], ["169.254.169.254"], ["::1"], []]
)
async def test_a_name_that_leads_inside_is_refused(
    answer: list[str], monkeypatch: pytest.MonkeyPatch
):
    """Whoever rules the name cannot turn it into a way to this machine's own services."""

    async def found(*_: Any, **__: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 22)) for address in answer]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", found)
    with pytest.raises(TargetError):
        await addresses(Target(host="login2.hpc.example"))


def test_environment_is_the_locale_and_no_more():
    """Of what a client sends, LANG and LC_* get through; nothing that a program obeys."""
    asked = {
        "LANG": "de_DE.UTF-8",
        "LC_ALL": "C",
        "LC_TIME": "en_DK.UTF-8",
        "LD_PRELOAD": "/srv/evil.so",
        "PATH": "/srv",
        "BASH_ENV": "/srv/evil",
        "LC_": "x",
        "LC_EVIL()": "() { :; }",
        "lang": "C",
        "LANGUAGE": "de",
        "LC_NAME": "a\nb",
        "LC_PAPER": "x" * 257,
    }
    assert environment(asked) == {"LANG": "de_DE.UTF-8", "LC_ALL": "C", "LC_TIME": "en_DK.UTF-8"}


def test_environment_is_short():
    """However many variables are sent, twenty get through."""
    many = {f"LC_{a}{b}": "C" for a in "ABCDEFGHIJ" for b in "ABCDEFGHIJ"}
    assert len(environment(many)) == 20
