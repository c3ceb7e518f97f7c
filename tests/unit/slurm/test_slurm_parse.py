"""The parsers of Slurm's small languages: times, amounts, resources, host lists, states."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.slurm import parse
from headgate.slurm.model import Gres, JobState, NodeState


class Heard:
    """Collects what a parser did not understand."""

    def __init__(self) -> None:
        self.said: list[tuple[str, str]] = []

    def __call__(self, kind: str, text: str) -> None:
        """Hear one thing."""
        self.said.append((kind, text))


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("30", 1800),
        ("10:00", 600),
        ("1:00:00", 3600),
        ("1-02:00:00", 93600),
        ("2-0", 172800),
        ("1-2:30", 95400),
        ("UNLIMITED", None),
        ("infinite", None),
        ("NONE", None),
        ("n/a", None),
        ("NOT_SET", None),
        ("Partition_Limit", None),
    ],
)
def test_time_limits_are_seconds(text: str, length: int | None):
    """Each form of a time limit is its length; words for none are None."""
    assert parse.seconds(text) == length


@pytest.mark.parametrize("text", ["soon", "1:2:3:4", "-5", "1-", "1-1:1:1:1", "٣", "1.5"])
def test_what_is_no_time_limit_is_refused(text: str):
    """Nothing else is taken for a length of time."""
    with pytest.raises(ValueError, match="not a time limit"):
        parse.seconds(text)


@given(st.integers(0, 400), st.integers(0, 23), st.integers(0, 59), st.integers(0, 59))
def test_every_length_can_be_read_back(days: int, hours: int, minutes: int, seconds: int):
    """What squeue prints for a length is that length; minutes are rounded up."""
    length = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    text = f"{days}-{hours:02}:{minutes:02}:{seconds:02}"
    assert parse.seconds(text) == length
    assert parse.minutes(text) == -(-length // 60)


def test_a_strange_time_limit_is_noted_and_none():
    """A limit that cannot be read stops nothing."""
    heard = Heard()
    assert parse.minutes("soon", heard) is None
    assert heard.said == [("time limit", "soon")]


def test_moments_are_aware_and_in_utc():
    """Epoch seconds become UTC; words for no time become None; other texts are noted."""
    heard = Heard()
    assert parse.moment("1795263110", heard) == datetime(2026, 11, 21, 12, 11, 50, tzinfo=UTC)
    for nothing in ("N/A", "Unknown", "None", "NONE", "", "0"):
        assert parse.moment(nothing, heard) is None
    assert heard.said == []
    assert parse.moment("2026-11-21T12:11:50", heard) is None
    assert parse.moment("9" * 30, heard) is None
    assert [kind for kind, _ in heard.said] == ["time", "time"]


@pytest.mark.parametrize(
    ("text", "size"),
    [("100", 100 << 20), ("100M", 100 << 20), ("1.50G", 1536 << 20), ("2T", 2 << 40), ("4K", 4096)],
)
def test_memory_is_bytes(text: str, size: int):
    """Without a unit Slurm means MiB; fractions occur."""
    assert parse.bytes_of(text) == size


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("gpu:tesla:2,gpu:a100:2", (Gres("gpu", "tesla", 2), Gres("gpu", "a100", 2))),
        (
            "gpu:tesla:2(IDX:0-1),gpu:a100:1(IDX:2)",
            (Gres("gpu", "tesla", 2), Gres("gpu", "a100", 1)),
        ),
        ("gpu:4(S:0-1)", (Gres("gpu", "", 4),)),
        ("gpu:(null):4(IDX:0-3)", (Gres("gpu", "", 4),)),
        ("gpu:0(IDX:N/A)", (Gres("gpu", "", 0),)),
        ("gpu:tesla:0(IDX:0,2)", (Gres("gpu", "tesla", 0),)),
        ("gpu", (Gres("gpu", "", 1),)),
        ("gpu:a100", (Gres("gpu", "a100", 1),)),
        ("gpu:1g.5gb:7(S:0)", (Gres("gpu", "1g.5gb", 7),)),
        ("gpu:1g.5gb", (Gres("gpu", "1g.5gb", 1),)),
        ("gpu:2080ti", (Gres("gpu", "2080ti", 1),)),
        ("gpu:a100:no_consume:2", (Gres("gpu", "a100", 2),)),
        ("shard:16,mps:tesla:2K", (Gres("shard", "", 16), Gres("mps", "tesla", 2048))),
        ("gres:gpu:tesla:1", (Gres("gpu", "tesla", 1),)),
        ("gres/gpu:a100=4", (Gres("gpu", "a100", 4),)),
        ("(null)", ()),
        ("N/A", ()),
        ("", ()),
    ],
)
def test_gres_of_every_form(text: str, wanted: tuple[Gres, ...]):
    """Names, types and counts come out of each way to write them; places do not."""
    heard = Heard()
    assert parse.gres(text, heard) == wanted
    assert heard.said == []


@given(st.text(max_size=60))
def test_no_text_stops_the_parsers(text: str):
    """Whatever Slurm says, the tolerant parsers return."""
    heard = Heard()
    parse.gres(text, heard)
    parse.tres(text, heard)
    parse.moment(text, heard)
    parse.minutes(text, heard)
    parse.node_state(text, heard)
    parse.job_state(text, heard)
    parse.nodes(f"NodeName={text}", heard)
    parse.partitions(f"PartitionName={text}", heard)
    parse.reservations(f"ReservationName={text}", heard)
    parse.configuration(text, heard)
    parse.controllers(text)


_TYPES = st.from_regex(r"[a-z][a-z0-9_.-]{0,8}", fullmatch=True)


@given(st.lists(st.tuples(_TYPES.filter(lambda word: word != "no_consume"), st.integers(0, 99))))
def test_every_list_of_gpus_can_be_read_back(gpus: list[tuple[str, int]]):
    """Types and counts survive, whatever sockets and indexes say."""
    text = ",".join(f"gpu:{kind}:{count}(S:0,1-2)" for kind, count in gpus)
    assert parse.gres(text) == tuple(Gres("gpu", kind, count) for kind, count in gpus)


def test_tres_counts_typed_and_untyped_apart():
    """Memory is bytes; what is not a count is noted and left out."""
    heard = Heard()
    text = "cpu=2,mem=8000M,node=2,billing=2,gres/gpu=4,gres/gpu:a100=1,energy=n/s"
    assert parse.tres(text, heard) == {
        "cpu": 2,
        "mem": 8000 << 20,
        "node": 2,
        "billing": 2,
        "gres/gpu": 4,
        "gres/gpu:a100": 1,
    }
    assert heard.said == [("tres", "energy=n/s")]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n[1-3]", ("n1", "n2", "n3")),
        ("n[08-11,3]-ib,login", ("n08-ib", "n09-ib", "n10-ib", "n11-ib", "n3-ib", "login")),
        ("r[1-2]n[1-2]", ("r1n1", "r1n2", "r2n1", "r2n2")),
        ("(null)", ()),
        ("None assigned", ()),
    ],
)
def test_host_lists_are_their_names(text: str, names: tuple[str, ...]):
    """Ranges, zeros, more than one bracket and plain names come out in order."""
    assert parse.expand(text) == names
    assert parse.count(text) == len(names)


@pytest.mark.parametrize(
    "text", ["n[1-", "n]1[", "n[a-b]", "n[3-1]", "n[[1]]", "n[0-9999999]", ","]
)
def test_what_is_no_host_list_is_refused(text: str):
    """Neither nonsense nor a list that would fill the memory is expanded."""
    with pytest.raises(ValueError, match="host list"):
        parse.expand(text)


@pytest.mark.parametrize(
    ("text", "tasks"),
    [
        ("123_[1-9,20%5]", 10),
        ("1-9,20,30,40,50,60%2", 14),
        ("[10-30:10]", 3),
        ("123_7", 1),
        ("N/A", 1),
        ("", 1),
    ],
)
def test_array_expressions_count_their_tasks(text: str, tasks: int):
    """A pending array stands for all its elements; steps and limits are understood."""
    assert parse.array_tasks(text) == tasks


@pytest.mark.parametrize(
    ("text", "base", "flags"),
    [
        ("IDLE", "IDLE", set()),
        ("IDLE+DRAIN", "IDLE", {"DRAIN"}),
        ("MIXED+DRAIN", "MIXED", {"DRAIN"}),
        ("IDLE+MAINTENANCE+RESERVED+PLANNED", "IDLE", {"MAINTENANCE", "RESERVED", "PLANNED"}),
        ("UNKNOWN+MAINTENANCE", "UNKNOWN", {"MAINTENANCE"}),
        ("DOWN*+CLOUD", "DOWN", {"NOT_RESPONDING", "CLOUD"}),
        ("IDLE+CLOUD+POWERED_DOWN", "IDLE", {"CLOUD", "POWERED_DOWN"}),
        ("mix-", "MIXED", {"PLANNED"}),
        ("idle~", "IDLE", {"POWERED_DOWN"}),
        ("alloc#", "ALLOCATED", {"POWERING_UP"}),
        ("drng*", "ALLOCATED", {"DRAIN", "NOT_RESPONDING"}),
        ("drained$", "IDLE", {"DRAIN", "MAINTENANCE"}),
        ("maint", "IDLE", {"MAINTENANCE"}),
        ("failing", "ALLOCATED", {"FAIL"}),
        ("IDLE+INVALID_REG", "IDLE", {"INVAL"}),
        ("futr", "FUTURE", set()),
    ],
)
def test_node_states_of_scontrol_and_sinfo(text: str, base: str, flags: set[str]):
    """Words, suffixes and short forms become one base state and flags."""
    heard = Heard()
    assert parse.node_state(text, heard) == NodeState(base, frozenset(flags))
    assert heard.said == []


@pytest.mark.parametrize(
    ("text", "available", "startable"),
    [
        ("IDLE", True, True),
        ("MIXED+PLANNED", True, True),
        ("IDLE+DRAIN", False, False),
        ("ALLOCATED+DRAIN", False, False),
        ("DOWN", False, False),
        ("IDLE*", False, False),
        ("IDLE+MAINTENANCE", False, False),
        ("IDLE+INVALID_REG", False, False),
        ("IDLE+RESERVED", True, False),
        ("IDLE+POWERED_DOWN", True, False),
        ("MIXED+COMPLETING", True, False),
        ("UNKNOWN", False, False),
        ("TRANSCENDENT", True, False),
    ],
)
def test_what_a_state_means_for_jobs(text: str, available: bool, startable: bool):  # noqa: FBT001 - expectations
    """Drained, down and silent nodes serve nobody; what a new release invents is never free."""
    state = parse.node_state(text)
    assert (state.available, state.startable) == (available, startable)


def test_unknown_states_are_noted():
    """A state of a newer release is UNKNOWN for a job, kept for a node, and said once."""
    heard = Heard()
    assert parse.job_state("DREAMING", heard) is JobState.UNKNOWN
    assert parse.node_state("IDLE+DREAMING", heard).base == "IDLE"
    assert heard.said == [("job state", "DREAMING"), ("node state", "DREAMING")]


def test_the_same_is_noted_once(capsys: pytest.CaptureFixture[str]):
    """The log has one line for one thing that was not understood."""
    notes = parse.Notes()
    for _ in range(3):
        notes("job state", "DREAMING")
    notes("job state", "SLEEPING")
    assert len(capsys.readouterr().out.strip().splitlines()) == 2
