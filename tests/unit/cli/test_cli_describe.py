"""Jobs in words."""

from datetime import UTC, datetime, timedelta

import pytest

from headgate.cli import describe
from headgate.cli.logins import Login
from headgate.client import Attributes, Failure, Job, JobSpec, JobState, Resources

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("pointer", "words"),
    [
        ("/resources/gpu_cores_per_process", "--gpus (/resources/gpu_cores_per_process)"),
        ("/environment/A~1B", "--env (/environment/A~1B)"),
        ("/arguments/3", "the command (/arguments/3)"),
        ("/resources/unheard_of", "/resources/unheard_of"),
        ("", "the request"),
    ],
)
def test_a_pointer_is_what_was_typed(pointer: str, words: str):
    """Each place in a specification has the name of its option, unknown ones their own."""
    assert describe.option_of(pointer) == words


def test_a_change_is_a_sentence():
    """State first, then why, how long, and with what code."""
    failed = Job(
        id="x",
        state=JobState.FAILED,
        exit_code=3,
        started_at=NOW,
        ended_at=NOW + timedelta(seconds=62),
        failure=Failure(kind="payload", detail="The payload ended with exit code 3."),
    )
    assert describe.sentence(failed, NOW) == (
        "failed after 1m02s with exit code 3: The payload ended with exit code 3."
    )
    queued = Job(id="x", state=JobState.QUEUED, status_message="Waits for resources.")
    assert describe.sentence(queued, NOW) == "queued: Waits for resources."


def test_what_is_known_is_shown():
    """The request reads as people say it; what is not known is empty."""
    spec = JobSpec(
        executable="python",
        arguments=["a b.py"],
        resources=Resources(gpu_cores_per_process=2, memory=2**32),
        attributes=Attributes(duration=600),
    )
    fields = describe.fields(Job(id="x", state=JobState.NEW, spec=spec), NOW)
    assert fields["command"] == "python 'a b.py'"
    assert fields["asked for"] == "2 GPUs, 4 GiB, for 10m"
    assert fields["started"] == ""


def test_a_login_does_not_show_its_token():
    """The text form of a login has no secret."""
    login = Login(access_token="secret-a", refresh_token="secret-b")
    assert "secret" not in f"{login!r} {login}"
