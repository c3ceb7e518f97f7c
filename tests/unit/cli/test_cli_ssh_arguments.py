"""Which settings a person gives to ssh after the host, and which words are the command's."""

import pytest

from headgate.cli.ssh.arguments import settings


@pytest.mark.parametrize(
    ("arguments", "given"),
    [
        ((), set()),
        (("mkdir", "-p", "x"), set()),
        (("--", "-p", "22"), set()),
        (("-v", "--", "mkdir", "-p", "x"), set()),
        (("-p", "22"), {"port"}),
        (("-p22", "id"), {"port"}),
        (("-Cp", "22", "id"), {"port"}),
        (("-L", "-p", "id"), set()),
        (("-i", "key", "-l", "bob"), {"user"}),
        (("-o", "Port=22"), {"port"}),
        (("-oport 22", "-o", " User = bob"), {"port", "user"}),
        (("-o",), {""}),
        (("-tt", "tmux", "-l"), set()),
    ],
)
def test_options_end_where_the_command_begins(arguments: tuple[str, ...], given: set[str]):
    """As ssh's own reading of its arguments has it."""
    assert settings(arguments) == given
