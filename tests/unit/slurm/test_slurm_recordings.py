"""What real Slurm printed, read again: every release that was recorded."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.slurm import parse
from headgate.slurm.model import Gres, JobState

RECORDED = Path(__file__).parents[2] / "recordings" / "slurm" / "22.05"
MARK = "5ca1ab1e0000"


def recorded(name: str) -> str:
    """A recorded answer."""
    return (RECORDED / name).read_text(encoding="utf-8")


def complain(kind: str, text: str) -> None:
    """Nothing in a recording is unknown."""
    raise AssertionError(f"{kind}: {text}")


def test_the_configuration():
    """Name, release and settings of a real site."""
    found = parse.configuration(recorded("show-config.txt"), complain)
    assert (found.cluster, found.version, found.min_job_age_seconds) == ("dev", "22.05.8", 300)
    assert found.values["SlurmctldHost[0]"] == "vm(localhost)"
    assert found.values["PowerPlugin"] == ""
    assert len(found.values) > 150


def test_the_controllers():
    """One that is up, and the words of one that is down."""
    (found,) = parse.controllers(recorded("ping.txt"))
    assert (found.role, found.host, found.up) == ("primary", "vm", True)
    down = "Slurmctld(backup1) at b is DOWN\n*****\n** RESTORE SLURMCTLD DAEMON TO SERVICE **\n"
    assert [one.up for one in parse.controllers(down)] == [False]


def test_the_partitions():
    """Hidden ones, limits and who may use them."""
    main, long, staff = parse.partitions(recorded("show-partition.txt"), complain)
    assert (main.name, main.is_default, main.max_time_minutes) == ("main", True, 1440)
    assert (main.default_time_minutes, main.nodes, main.total_cpus) == (10, "n[1-2]", 16)
    assert (long.max_time_minutes, long.default_time_minutes, long.max_nodes) == (None, None, None)
    assert (staff.hidden, staff.allow_accounts, staff.allow_groups) == (True, ("staff",), ())


def test_the_nodes():
    """GPUs in use by type, a drained node with its reason, a reserved one, one without GPUs."""
    first, second, third = parse.nodes(recorded("show-node.txt"), complain)
    assert (first.name, first.cpus, first.cpus_allocated, first.memory_mib) == ("n1", 8, 5, 4000)
    assert first.gres == (Gres("gpu", "tesla", 2), Gres("gpu", "a100", 2))
    assert first.gres_used == (Gres("gpu", "tesla", 2), Gres("gpu", "a100", 1))
    assert first.operating_system == "Linux 6.1.0-31-amd64 #1 SMP PREEMPT_DYNAMIC @0"
    assert first.state.startable
    assert (second.reason, second.state.base) == ("bad disk: x=1 [y]", "MIXED")
    assert not second.state.available
    assert (third.gres, third.gres_used) == ((), (Gres("gpu", "", 0),))
    assert third.state.flags == {"MAINTENANCE", "RESERVED", "PLANNED"}
    assert third.partitions == ("long", "staff")


def test_the_reservations():
    """One, and the sentence that there is none."""
    (found,) = parse.reservations(recorded("show-reservation.txt"), complain)
    assert (found.name, found.state, found.nodes) == ("maint", "ACTIVE", "n3")
    assert found.flags == ("MAINT", "SPEC_NODES")
    assert found.starts_at == datetime(2026, 11, 21, 12, 12, 47, tzinfo=UTC)
    assert parse.reservations(recorded("show-reservation-none.txt"), complain) == ()


def test_the_queue():
    """States, exits, arrays and resources of a real queue, forged names and account included."""
    rows = {
        row.job_id: row for row in parse.queued_jobs(recorded("squeue-all.txt"), MARK, complain)
    }
    assert 77 not in rows
    assert 99 not in rows
    assert (rows[21].state, rows[21].exit_status, rows[21].exit_signal) == (JobState.FAILED, 3, 0)
    assert (rows[22].state, rows[22].exit_status, rows[22].exit_signal) == (JobState.FAILED, 0, 9)
    assert (rows[23].state, rows[23].started_at) == (JobState.CANCELLED, None)
    assert (rows[26].tasks, rows[26].array_job_id) == (14, 26)
    assert rows[29].account == "evil|7\n77|x|y"
    assert (rows[31].node_list, rows[31].nodes, rows[31].tres["gres/gpu:tesla"]) == ("n[1-2]", 2, 3)
    assert rows[31].time_limit_minutes is None
    assert rows[32].partitions == ("main", "long")
    assert rows[33].reason == "ReqNodeNotAvail, May be reserved for other job"
    assert rows[33].started_at is None
    waiting = parse.queued_jobs(recorded("squeue.txt"), MARK, complain)
    assert {row.job_id for row in waiting} == {20, 26, 28, 29, 30, 31, 32, 33}


def test_the_queue_by_name():
    """Names that differ in case are others, though squeue's filter lets them pass."""
    names = ["hg-1", "hg-2", "hg-3", "none"]
    found = parse.named_jobs(recorded("squeue-named.txt"), MARK, names, complain)
    ids = {name: [row.job_id for row in rows] for name, rows in found.items()}
    assert ids == {"hg-1": [23], "hg-2": [24], "hg-3": [29]}


def test_the_accounting():
    """Attempts oldest first, by whom they were cancelled, and no row out of an account's name."""
    names = ["hg-1", "hg-2", "hg-3", "two", "killed", "sweep", "train"]
    found = parse.accounted_jobs(recorded("sacct.txt"), MARK, names, complain)
    assert [row.job_id for row in found["hg-1"]] == [4, 23]
    assert [row.started_at for row in found["hg-1"]] == [None, None]
    (second,) = found["hg-2"]
    assert (second.state, second.cancelled_by_uid) == (JobState.CANCELLED, 0)
    (third,) = found["hg-3"]
    assert (third.uid, third.account) == (60002, "evil|7\n77|x|y")
    assert [(row.exit_status, row.exit_signal) for row in found["two"] + found["killed"]] == [
        (3, 0),
        (0, 9),
    ]
    assert found["train"][0].ended_at is None


@pytest.mark.parametrize("name", ["squeue-all.txt", "squeue.txt"])
def test_an_answer_that_was_cut_short_is_refused(name: str):
    """Half an answer would look like jobs that ended."""
    text = recorded(name)
    for end in (1, 10, 200):
        with pytest.raises(parse.MalformedAnswerError):
            parse.queued_jobs(text[:-end], MARK)
    with pytest.raises(parse.MalformedAnswerError):
        parse.accounted_jobs(recorded("sacct.txt")[:-40], MARK, ["hg-1"])
    assert parse.queued_jobs("", MARK) == []


@given(st.text(max_size=80).filter(lambda text: MARK not in text))
def test_no_account_changes_another_row(account: str):
    """Whatever a user puts into the last field, rows before and behind stay what they are."""
    row = recorded("squeue.txt").splitlines()[0].rpartition(f"|{MARK}")[0].rpartition("|")[0]
    forged = row.replace("26|26|", "50|50|")
    text = f"{row}|a|{MARK}\n{forged}|{account}|{MARK}\n{row}|b|{MARK}\n"
    rows = parse.queued_jobs(text, MARK, complain)
    assert [found.job_id for found in rows] == [26, 26, 50]
    assert [found.account for found in rows[:2]] == ["a", "b"]


def test_a_row_that_is_none_is_noted_and_left_out():
    """A field that a newer release writes otherwise costs its row, not the answer."""
    heard: list[tuple[str, str]] = []
    text = recorded("squeue.txt").replace("26|26|", "x26|26|")
    rows = parse.queued_jobs(text, MARK, lambda kind, text: heard.append((kind, text)))
    assert len(rows) == 7
    assert [kind for kind, _ in heard] == ["queue row"]
