"""Opinions on a measurement (pure): OK, warning, critical, or it could not be measured.

"Down" and "could not be measured" are different answers: the first is the service's, the second is
ours. The numbers are those of the monitoring plugins' guidelines.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum

from headgate.slurm.capacity import machines
from monitoring_probe.measurement import Measurement, Readiness, Service
from monitoring_probe.settings import Thresholds


class State(IntEnum):
    """A plugin's exit status."""

    OK = 0
    WARNING = 1
    CRITICAL = 2
    UNKNOWN = 3


_WORST_FIRST = (State.CRITICAL, State.WARNING, State.UNKNOWN, State.OK)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The state of one subject and why; `service` says whether it is one of the suite."""

    subject: str
    state: State
    reason: str
    service: bool = False


def judge(measurement: Measurement, thresholds: Thresholds) -> tuple[Verdict, ...]:
    """A verdict per subject: slurm, nodes, gpus, spool, and each service."""
    return (
        _slurm(measurement),
        _nodes(measurement, thresholds),
        _gpus(measurement, thresholds),
        _spool(measurement, thresholds),
        *(_service(name, one) for name, one in measurement.services.items()),
    )


def worst(verdicts: Iterable[Verdict]) -> State:
    """The state of the whole: critical, then warning, then unknown; without verdicts OK."""
    states = {verdict.state for verdict in verdicts}
    return next((state for state in _WORST_FIRST if state in states), State.OK)


def summary(verdicts: Sequence[Verdict]) -> str:
    """What is wrong, the worst first, in one line; `all is well` otherwise."""
    bad = [verdict for verdict in verdicts if verdict.state is not State.OK]
    bad.sort(key=lambda verdict: _WORST_FIRST.index(verdict.state))
    return "; ".join(f"{one.subject}: {one.reason}" for one in bad) or "all is well"


def _slurm(measurement: Measurement) -> Verdict:
    controllers = measurement.controllers.value
    if not controllers:
        return Verdict(
            "slurm", State.UNKNOWN, measurement.controllers.failure or "no controller is configured"
        )
    down = [one for one in controllers if not one.up]
    names = ", ".join(f"{one.role} on {one.host}" for one in down)
    if len(down) == len(controllers):
        return Verdict("slurm", State.CRITICAL, f"slurmctld is down ({names})")
    failed = [name for name, answer in measurement.commands().items() if answer.failure]
    if failed:
        first = measurement.commands()[failed[0]].failure
        return Verdict("slurm", State.UNKNOWN, f"no answer about {', '.join(failed)}: {first}")
    if down:
        return Verdict("slurm", State.WARNING, f"a slurmctld is down ({names})")
    return Verdict("slurm", State.OK, "slurmctld answers")


def _nodes(measurement: Measurement, thresholds: Thresholds) -> Verdict:
    nodes = measurement.nodes.value
    if nodes is None:
        return Verdict("nodes", State.UNKNOWN, measurement.nodes.failure)
    installed = [node for node in nodes if node.state.installed]
    bad = sum(not node.state.available for node in installed)
    return _share(
        "nodes",
        bad,
        len(installed),
        "do not serve",
        warning=thresholds.nodes_warning,
        critical=thresholds.nodes_critical,
    )


def _gpus(measurement: Measurement, thresholds: Thresholds) -> Verdict:
    nodes = measurement.nodes.value
    if nodes is None:
        return Verdict("gpus", State.UNKNOWN, measurement.nodes.failure)
    found = [
        (machine.node.state.available, slots)
        for machine in machines(nodes)
        for slots in machine.gpus.values()
    ]
    bad = sum(slots.installed - slots.used for available, slots in found if not available)
    return _share(
        "gpus",
        bad,
        sum(slots.installed for _, slots in found),
        "are on nodes that do not serve",
        warning=thresholds.gpus_warning,
        critical=thresholds.gpus_critical,
    )


def _share(
    subject: str, bad: int, of: int, what: str, *, warning: float, critical: float
) -> Verdict:
    """Judge `bad` of `of`: at a threshold counts as over it, none bad is always OK."""
    if not bad:
        return Verdict(subject, State.OK, f"all {of} serve" if of else "there are none")
    state = State.OK
    if bad >= critical * of:
        state = State.CRITICAL
    elif bad >= warning * of:
        state = State.WARNING
    return Verdict(subject, state, f"{bad} of {of} {what}")


def _spool(measurement: Measurement, thresholds: Thresholds) -> Verdict:
    backlog = measurement.backlog
    if backlog.age >= thresholds.spool_warning:
        words = f"{backlog.runs} runs wait, the oldest for {backlog.age:.0f} s"
        return Verdict("spool", State.WARNING, words)
    return Verdict("spool", State.OK, f"{backlog.runs} runs wait")


def _service(name: str, service: Service) -> Verdict:
    state = {
        Readiness.READY: State.OK,
        Readiness.NOT_READY: State.CRITICAL,
        Readiness.DOWN: State.CRITICAL,
        Readiness.UNMEASURED: State.UNKNOWN,
    }[service.readiness]
    if state is State.OK and (service.seconds or 0.0) > service.slow_after:
        return Verdict(
            name, State.WARNING, f"ready, but after {service.seconds:.1f} s", service=True
        )
    return Verdict(name, state, service.reason, service=True)
