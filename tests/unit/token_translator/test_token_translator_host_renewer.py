"""What a node's renewer of its host certificate says when it gets none: the server's own words."""

import json
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from token_translator.nodes import lines
from token_translator.nodes.settings import Node

UNKNOWN = {"status": 403, "code": "host_unknown", "detail": "This host key is not enrolled here."}


class Server(HTTPServer):
    """Answers every POST with the same bytes."""

    status = 403
    body = b""


class Answer(BaseHTTPRequestHandler):
    """One request."""

    server: Server

    def do_POST(self) -> None:
        """Read the body, answer."""
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(self.server.status)
        self.send_header("Content-Type", "application/problem+json")
        self.send_header("Content-Length", str(len(self.server.body)))
        self.end_headers()
        self.wfile.write(self.server.body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's name
        """Say nothing."""


@pytest.fixture
def server() -> Iterator[Server]:
    """A translator that refuses."""
    with Server(("127.0.0.1", 0), Answer) as one:
        thread = threading.Thread(target=one.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield one
        one.shutdown()
        thread.join()


def renew(folder: Path, port: int) -> subprocess.CompletedProcess[str]:
    """Run the script as the timer does."""
    key = folder / "key"
    if not key.exists():
        argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)]
        subprocess.run(argv, check=True, timeout=30)
    node = Node(
        realm="site1",
        uid_first=20000,
        uid_last=29999,
        tokens=f"http://127.0.0.1:{port}",
        host_certificate=f"{key}-cert.pub",
    )
    script = folder / "headgate-host-certificate"
    script.write_text(lines.host_certificate(node))
    return subprocess.run(
        ["sh", str(script)], check=False, capture_output=True, text=True, timeout=60
    )


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (UNKNOWN, "refused with status 403: This host key is not enrolled here. (host_unknown)"),
        (
            {"code": "x", "detail": 'Say "no"\\ \x1b[2J\n.', "more": "detail"},
            r'refused with status 403: Say "no"\ \u001b[2J\n. (x)',
        ),
        ({"title": "Bad Gateway"}, "refused with status 403"),
    ],
)
def test_a_refusal_is_told(tmp_path: Path, server: Server, document: object, words: str) -> None:
    """The sentence and the code are on standard error, nothing is installed, the status is 1."""
    server.body = json.dumps(document, separators=(",", ":")).encode()
    done = renew(tmp_path, server.server_port)
    assert done.stderr.strip() == f"headgate-host-certificate: {words}"
    assert (done.returncode, done.stdout) == (1, "")
    assert not (tmp_path / "key-cert.pub").exists()


@pytest.mark.parametrize("body", [b"<html>\x1b[2J", b"", b"x" * 100_000])
def test_what_is_no_refusal_of_ours_is_told_too(
    tmp_path: Path, server: Server, body: bytes
) -> None:
    """A proxy's page is not printed: its status is."""
    server.status, server.body = 502, body
    done = renew(tmp_path, server.server_port)
    assert done.returncode == 1
    assert "status 502" in done.stderr
    assert len(done.stderr) < 400
    assert "\x1b" not in done.stderr


def test_an_answer_that_is_no_certificate(tmp_path: Path, server: Server) -> None:
    """What ssh-keygen does not read is not installed, and that is said."""
    server.status, server.body = 201, b"ssh-ed25519 AAAA nonsense\n"
    done = renew(tmp_path, server.server_port)
    assert done.returncode == 1
    assert "not a certificate" in done.stderr
    assert not (tmp_path / "key-cert.pub").exists()


def test_nobody_answers(tmp_path: Path) -> None:
    """Without a connection there is curl's reason, and a status that is not 0."""
    done = renew(tmp_path, 1)
    assert done.returncode != 0
    assert "headgate-host-certificate" in done.stderr
    assert "connect" in done.stderr
