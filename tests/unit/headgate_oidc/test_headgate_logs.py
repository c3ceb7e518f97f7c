"""What callers write into requests does not write into our logs."""

import json

import pytest
import structlog

from headgate import logs

PATH = "/v1/jobs/\r\nforged=line\x1b[2J\x9b2J\u202e"


@pytest.mark.parametrize("as_json", [True, False])
def test_a_request_cannot_forge_lines_or_steer_a_terminal(
    *, as_json: bool, capsys: pytest.CaptureFixture[str]
):
    """Line ends and escape sequences of a path are escaped, for people and for machines."""
    logs.configure(json=as_json)
    structlog.get_logger().info("request", path=PATH, bare="/\x1b[2J")
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert not [trick for trick in ("\r", "\x1b[2J", "\x9b", "\u202e") if trick in said]
    if as_json:
        assert json.loads(said)["path"] == PATH
