"""The lines of the batch script that fetch an image, run for real with a registry that says no."""

import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from gateway.images import image_failure
from gateway.jobs import Container, JobSpec
from gateway.runner.udocker import UdockerRuntime, UdockerSettings

FAIL = """
fail() { { echo "$1"; tail -c 3000 "$headgate/words"; } > "$headgate/failure"; exit 1; }
"""


class Registry(BaseHTTPRequestHandler):
    """Answers with the status that the image's name is."""

    def do_GET(self) -> None:
        """As the image is called."""
        self.send_response(int(self.path.split("/")[2]))
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Quiet."""


@pytest.fixture
def registry() -> Iterator[str]:
    """A registry's address."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Registry) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def pulled(folder: Path, registry: str, image: str) -> str:
    """What the script writes down when udocker cannot pull."""
    udocker = folder / "udocker"
    udocker.write_text('#!/bin/sh\necho "Error: pulling manifest:" >&2\nexit 1\n')
    udocker.chmod(0o755)
    spec = JobSpec(executable="id", container=Container(image))
    runtime = UdockerRuntime(UdockerSettings(program=str(udocker), registry=registry))
    done = subprocess.run(
        ["/bin/sh"],
        input=FAIL + runtime.prepare(spec),
        env={"HOME": str(folder), "PATH": "/usr/bin:/bin", "headgate": str(folder)},
        text=True,
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 1
    kind, _, words = (folder / "failure").read_text().partition("\n")
    assert kind == "image"
    return words


@pytest.mark.parametrize(
    ("image", "retry", "verdict"),
    [
        ("404/tool:1", False, "does not exist in its registry:"),
        ("401/tool", False, "or is not public"),
        ("500/tool:1", True, "does not answer"),
    ],
)
def test_the_registrys_own_answer_decides(
    tmp_path: Path, registry: str, image: str, *, retry: bool, verdict: str
):
    """Udocker's words are the same each time: the registry is asked once more."""
    words = pulled(tmp_path, registry, image)
    failure = image_failure(words, JobSpec(executable="id", container=Container(image)))
    assert failure.retry is retry
    assert verdict in failure.detail
    assert "pulling manifest" in failure.detail


def test_a_registry_that_is_away_is_worth_another_try(tmp_path: Path):
    """Nobody listens there: status 000."""
    words = pulled(tmp_path, "http://127.0.0.1:9", "group/tool:1")
    failure = image_failure(words, JobSpec(executable="id", container=Container("group/tool:1")))
    assert (failure.retry, "does not answer" in failure.detail) == (True, True)
