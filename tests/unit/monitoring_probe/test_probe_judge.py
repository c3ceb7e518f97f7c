"""Opinions on measurements."""

from types import SimpleNamespace

from headgate.slurm.model import Controller
from monitoring_probe.judge import State, Verdict, judge, summary, worst
from monitoring_probe.measurement import Backlog, Measurement, Readiness, Service
from monitoring_probe.metrics import readings
from monitoring_probe.plugin import line
from monitoring_probe.settings import Thresholds


def verdict(measurement: Measurement, subject: str) -> Verdict:
    """The one about that subject."""
    return {one.subject: one for one in judge(measurement, Thresholds())}[subject]


def test_all_is_well(make: SimpleNamespace) -> None:
    """A cluster that serves is OK throughout."""
    verdicts = judge(make.measurement(), Thresholds())
    assert worst(verdicts) is State.OK
    assert summary(verdicts) == "all is well"


def test_down_is_not_unmeasured(make: SimpleNamespace) -> None:
    """A slurmctld that answers no ping is critical; a ping that failed is unknown."""
    down = make.measurement(controllers=[Controller("primary", "head", up=False)])
    assert verdict(down, "slurm").state is State.CRITICAL
    failed = make.measurement(controllers="scontrol cannot be run")
    assert verdict(failed, "slurm") == Verdict("slurm", State.UNKNOWN, "scontrol cannot be run")


def test_a_backup_that_took_over_is_a_warning(make: SimpleNamespace) -> None:
    """One of two controllers down."""
    both = [Controller("primary", "a", up=False), Controller("backup", "b", up=True)]
    found = verdict(make.measurement(controllers=both), "slurm")
    assert (found.state, found.reason) == (State.WARNING, "a slurmctld is down (primary on a)")


def test_a_failed_query_is_unknown(make: SimpleNamespace) -> None:
    """The controller answers and a question does not: ours, with its words."""
    found = verdict(make.measurement(jobs="squeue did not end within 10 s"), "slurm")
    assert found.state is State.UNKNOWN
    assert "jobs: squeue did not end within 10 s" in found.reason


def test_shares_of_bad_nodes(make: SimpleNamespace) -> None:
    """Thresholds are shares of installed nodes; FUTURE ones do not count."""
    for bad, state in ((0, State.OK), (1, State.WARNING), (5, State.CRITICAL)):
        nodes = [make.node(f"n{i}", state="DOWN" if i < bad else "IDLE") for i in range(10)]
        found = make.measurement(nodes=[*nodes, make.node("f", state="FUTURE")])
        assert verdict(found, "nodes").state is state
    lone = [make.node("n0", state="DOWN"), *(make.node(f"m{i}") for i in range(10))]
    assert verdict(make.measurement(nodes=lone), "nodes").state is State.OK


def test_gpus_in_use_on_a_drained_node_are_not_bad(make: SimpleNamespace) -> None:
    """Only what could be used and cannot is counted."""
    nodes = [make.node(state="MIXED+DRAIN", used="gpu:tesla:4", cpus_allocated=4)]
    assert verdict(make.measurement(nodes=nodes), "gpus").state is State.OK


def test_services(make: SimpleNamespace) -> None:
    """Down and not ready are critical, slow is a warning, unmeasured is unknown."""
    cases = {
        "ok": (Service(Readiness.READY, "ready", 0.1), State.OK),
        "slow": (Service(Readiness.READY, "ready", 5.0), State.WARNING),
        "busy": (Service(Readiness.NOT_READY, "answers 503", 0.1), State.CRITICAL),
        "down": (Service(Readiness.DOWN, "no answer"), State.CRITICAL),
        "lost": (Service(Readiness.UNMEASURED, "no name"), State.UNKNOWN),
    }
    measurement = make.measurement(services={name: one for name, (one, _) in cases.items()})
    for name, (_, state) in cases.items():
        assert verdict(measurement, name).state is state
    verdicts = judge(measurement, Thresholds())
    assert worst(verdicts) is State.CRITICAL
    assert summary(verdicts).startswith("busy: answers 503; down: no answer; slow: ready, but")


def test_an_old_backlog_is_a_warning(make: SimpleNamespace) -> None:
    """Values that wait for a quarter of an hour are told."""
    measurement = make.measurement(backlog=Backlog(runs=15, age=901.0))
    assert verdict(measurement, "spool").state is State.WARNING


def test_the_line_of_a_plugin(make: SimpleNamespace) -> None:
    """One line, no bar in the words, performance data behind the bar."""
    measurement = make.measurement(
        nodes="a|b\nc", services={"gw": Service(Readiness.READY, "", 0.1)}
    )
    verdicts = judge(measurement, Thresholds())
    text = line(verdicts, readings(measurement, verdicts))
    assert text.startswith("HEADGATE UNKNOWN - ")
    words, _, performance = text.partition(" | ")
    assert "a/b c" in words
    assert "'gw'=0.1s" in performance
    assert "\n" not in text
