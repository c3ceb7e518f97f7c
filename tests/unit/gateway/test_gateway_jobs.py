"""What makes a specification acceptable, and what is sealed of it."""

import hashlib
import json
from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.jobs import (
    Container,
    Failure,
    FailureKind,
    Job,
    JobSpec,
    Resources,
    Sealed,
    State,
    check_spec,
)
from headgate.identity import Identity
from headgate.problems import Invalid

NOW = datetime(2026, 11, 21, tzinfo=UTC)


def make_job(**changes: object) -> Job:
    """A job that has just been admitted."""
    job = Job(
        id="6f3b6c1e-0000-4000-8000-000000000001",
        owner=Identity("https://iam/", "alice"),
        client_id="",
        groups=(),
        cluster="c",
        realm="r",
        account="alice",
        uid=20001,
        directory="/home/alice/j",
        spec=JobSpec(executable="/bin/true"),
        created_at=NOW,
        updated_at=NOW,
    )
    return msgspec.structs.replace(job, **changes)


def test_all_faults_of_a_specification_are_reported_with_their_place():
    """A specification with several faults names each by its JSON pointer."""
    spec = JobSpec(
        executable="a\0b",
        environment={"1X": "v", "OK": "a\0"},
        container=Container("-oProxyCommand=x"),
        resources=Resources(node_count=3, process_count=2),
    )
    with pytest.raises(Invalid) as caught:
        check_spec(spec)
    assert {fault.pointer for fault in caught.value.faults} == {
        "/executable",
        "/environment/1X",
        "/environment/OK",
        "/container/image",
        "/resources/process_count",
    }


@given(script=st.text(), argument=st.text(alphabet=st.characters(exclude_categories=["Cs"])))
def test_the_digest_is_that_of_canonical_json(script: str, argument: str):
    """The digest equals SHA-256 over sorted compact JSON made by another encoder."""
    script = script.encode(errors="replace").decode()
    sealed = Sealed("row", 7, script, ("--a=1", argument), "/d", "export A=1\n")
    document = {
        "v": 1,
        "row": "row",
        "uid": 7,
        "script_sha256": hashlib.sha256(script.encode()).hexdigest(),
        "sbatch_args": ["--a=1", argument],
        "directory": "/d",
        "env_sha256": hashlib.sha256(b"export A=1\n").hexdigest(),
    }
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert sealed.digest() == hashlib.sha256(text.encode()).hexdigest()


def test_a_change_makes_the_next_revision_and_no_change_none():
    """A revision counts changes, not looks."""
    job = make_job()
    same = job.changed(NOW, {"state": State.NEW})
    other = job.changed(NOW, {"state": State.QUEUED})
    assert same is job
    assert (other.revision, other.state) == (2, State.QUEUED)


def test_nothing_follows_an_end():
    """A job that has ended stays as it ended."""
    failure = Failure(FailureKind.LOST, "gone")
    ended = make_job().ended(State.FAILED, NOW, failure)
    assert ended.changed(NOW, {"state": State.ACTIVE}) is ended
    assert ended.ended(State.COMPLETED, NOW) is ended
