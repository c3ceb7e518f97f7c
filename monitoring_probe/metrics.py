"""A measurement as Zabbix items: one flat object of item keys and values (pure).

One run is sent as one value: a JSON object under the trapper item `hg.snapshot`, whose members are
named exactly like the items that take their values out of it (dependent items, JSONPath). Against
hundreds of separate trapper values this gives one acknowledgement per run (there is no half
accepted run to bisect), all values of one moment with one clock, and partitions or GPU types that
appear get their items and values from the next run on, while a value for an item that discovery
has not made yet would be refused. What could not be measured is absent, never 0.
"""

import re
from collections.abc import Iterable, Sequence

from headgate.slurm.capacity import Machine, by_type, machines, total
from headgate.slurm.model import JobState, Node, Partition, QueuedJob
from monitoring_probe.judge import Verdict, summary, worst
from monitoring_probe.measurement import Measurement

Reading = int | float | str | list[dict[str, str]]

NODE_STATES = (
    "idle",
    "mixed",
    "alloc",
    "drain",
    "down",
    "noresp",
    "maint",
    "resv",
    "powered_off",
    "other",
)
JOB_STATES = ("pending", "running", "suspended", "completing", "other")
REASONS = (
    "priority",
    "resources",
    "dependency",
    "held",
    "begin_time",
    "limits",
    "array",
    "partition",
    "reservation",
    "licenses",
    "nodes",
    "none",
    "other",
)
MIB = 1024 * 1024
_CHAR = 255
"""What a Zabbix item of type character holds."""

_TEXT = 16_000
"""As much of the list of bad nodes as anybody reads."""

_REASON_GROUPS: tuple[tuple[str, str], ...] = (
    (r"Priority$", "priority"),
    (r"Resources$|Nodes_required", "resources"),
    (r"Dependency", "dependency"),
    (r"JobHeld|.*Hold$|SpecialExit", "held"),
    (r"BeginTime", "begin_time"),
    (r"JobArrayTaskLimit", "array"),
    (
        r"QOS|Assoc|Max.*Limit|.*PerUser|.*PerAccount|.*Per_User|TimeLimit|AccountNotAllowed",
        "limits",
    ),
    (r"Partition", "partition"),
    (r"Reservation", "reservation"),
    (r"Licenses", "licenses"),
    (r"ReqNodeNotAvail|BadConstraints|Node|FrontEndDown", "nodes"),
    (r"None$|$", "none"),
)
_NOT_ELIGIBLE = frozenset({"held", "dependency", "begin_time", "array"})
_SAFE = re.compile(r"[A-Za-z0-9_.:+@/#-]+")


def readings(measurement: Measurement, verdicts: Sequence[Verdict]) -> dict[str, Reading]:
    """Every item this run has a value for, by key."""
    found: dict[str, Reading] = {"hg.heartbeat": int(measurement.taken_at.timestamp())}
    found |= _verdicts(measurement, verdicts)
    found |= _probe(measurement)
    found |= _controllers(measurement)
    counted = None if measurement.nodes.value is None else machines(measurement.nodes.value)
    if counted is not None:
        found |= _nodes([machine.node for machine in counted])
        found |= _capacity(counted)
    if measurement.jobs.value is not None:
        found |= _jobs(measurement.jobs.value)
    found |= _partitions(measurement, counted)
    return found


def _verdicts(measurement: Measurement, verdicts: Sequence[Verdict]) -> dict[str, Reading]:
    found: dict[str, Reading] = {
        "hg.state[all]": int(worst(verdicts)),
        "hg.reason[all]": summary(verdicts)[:_CHAR],
        "hg.svc.discovery": [{"{#SVC}": one.subject} for one in verdicts if one.service],
    }
    for one in verdicts:
        prefix = "hg.svc." if one.service else "hg."
        found[f"{prefix}state[{one.subject}]"] = int(one.state)
        found[f"{prefix}reason[{one.subject}]"] = one.reason[:_CHAR]
    for name, service in measurement.services.items():
        if service.seconds is not None:
            found[f"hg.svc.latency[{name}]"] = round(service.seconds, 6)
    return found


def _probe(measurement: Measurement) -> dict[str, Reading]:
    backlog = measurement.backlog
    found: dict[str, Reading] = {
        "hg.probe.run.time": round(measurement.run_seconds, 6),
        "hg.spool.runs": backlog.runs,
        "hg.spool.size": backlog.size,
        "hg.spool.age": round(backlog.age, 3),
        "hg.spool.dropped": backlog.dropped,
    }
    for name, answer in measurement.commands().items():
        found[f"hg.cmd.rc[{name}]"] = int(answer.value is None)
        found[f"hg.cmd.time[{name}]"] = round(answer.seconds, 6)
    return found


def _controllers(measurement: Measurement) -> dict[str, Reading]:
    controllers = measurement.controllers.value
    if controllers is None:
        return {}
    known = [one for one in controllers if _SAFE.fullmatch(f"{one.role}@{one.host}")]
    found: dict[str, Reading] = {
        "hg.ctld.discovery": [{"{#CTLD}": f"{one.role}@{one.host}"} for one in known],
    }
    return found | {f"hg.ctld.up[{one.role}@{one.host}]": int(one.up) for one in known}


def _nodes(nodes: Sequence[Node]) -> dict[str, Reading]:
    found: dict[str, Reading] = dict(_counts("hg.nodes", NODE_STATES, map(node_state, nodes)))
    bad = [
        f"{one.name}: {one.reason or one.state.base}" for one in nodes if not one.state.available
    ]
    found["hg.nodes.bad"] = "\n".join(bad)[:_TEXT]
    return found


def node_state(node: Node) -> str:
    """The one word a node is counted under: sinfo's order, an administrator's intent first."""
    flags = node.state.flags
    order: tuple[tuple[str, bool], ...] = (
        ("maint", bool(flags & {"MAINT", "MAINTENANCE"})),
        ("drain", "DRAIN" in flags),
        (
            "down",
            node.state.base in {"DOWN", "ERROR", "UNKNOWN"} or bool(flags & {"FAIL", "INVAL"}),
        ),
        ("noresp", "NOT_RESPONDING" in flags),
        ("powered_off", any(flag.startswith(("POWER", "REBOOT_ISSUED")) for flag in flags)),
        ("resv", "RESERVED" in flags),
        ("other", "COMPLETING" in flags and node.state.base == "IDLE"),
        ("idle", node.state.base in {"IDLE", "PLANNED"}),
        ("mixed", node.state.base == "MIXED"),
        ("alloc", node.state.base == "ALLOCATED"),
    )
    return next((word for word, holds in order if holds), "other")


def _capacity(counted: Sequence[Machine]) -> dict[str, Reading]:
    cpus = total(machine.cpus for machine in counted)
    found: dict[str, Reading] = {
        "hg.cpus.total": cpus.installed,
        "hg.cpus.alloc": cpus.used,
        "hg.cpus.idle": cpus.free,
        "hg.cpus.other": cpus.installed - cpus.used - cpus.free,
    }
    gpus = by_type(machine.gpus for machine in counted)
    away = by_type(machine.gpus for machine in counted if not machine.node.state.available)
    names = {kind: kind or "untyped" for kind in gpus if _SAFE.fullmatch(kind or "untyped")}
    found["hg.gpu.discovery"] = [{"{#GPU}": name} for name in names.values()]
    for kind, name in names.items():
        slots = gpus[kind]
        down = away[kind].installed - away[kind].used if kind in away else 0
        found[f"hg.gpu.total[{name}]"] = slots.installed
        found[f"hg.gpu.alloc[{name}]"] = slots.used
        found[f"hg.gpu.free[{name}]"] = slots.free
        found[f"hg.gpu.down[{name}]"] = down
        found[f"hg.gpu.other[{name}]"] = slots.installed - slots.used - slots.free - down
    return found


def _jobs(jobs: Sequence[QueuedJob]) -> dict[str, Reading]:
    waiting = [job for job in jobs if job.state.pending]
    return {
        **_counts(
            "hg.jobs",
            JOB_STATES,
            (job_state(job) for job in jobs if not job.state.final),
            (job.tasks for job in jobs if not job.state.final),
        ),
        **_counts(
            "hg.jobs.pending",
            REASONS,
            (reason_group(job.reason) for job in waiting),
            (job.tasks for job in waiting),
        ),
    }


def job_state(job: QueuedJob) -> str:
    """The word a job is counted under."""
    if job.state.pending:
        return "pending"
    words = {
        JobState.RUNNING: "running",
        JobState.CONFIGURING: "running",
        JobState.SUSPENDED: "suspended",
        JobState.STOPPED: "suspended",
        JobState.COMPLETING: "completing",
        JobState.STAGE_OUT: "completing",
    }
    return words.get(job.state, "other")


def reason_group(reason: str) -> str:
    """The group of a reason (squeue(1), JOB REASON CODES): a fixed list, whatever comes new."""
    return next((group for form, group in _REASON_GROUPS if re.match(form, reason)), "other")


def _counts(
    prefix: str, words: Sequence[str], found: Iterable[str], weights: Iterable[int] | None = None
) -> dict[str, Reading]:
    numbers = dict.fromkeys(words, 0)
    pairs = ((word, 1) for word in found) if weights is None else zip(found, weights, strict=True)
    for word, weight in pairs:
        numbers[word] += weight
    return {f"{prefix}[{word}]": number for word, number in numbers.items()}


def _partitions(measurement: Measurement, counted: Sequence[Machine] | None) -> dict[str, Reading]:
    """Items of each partition, as far as the commands they come from succeeded."""
    listed: Sequence[Partition] | None = measurement.partitions.value
    names: dict[str, None] = dict.fromkeys(one.name for one in listed or ())
    if listed is None:
        names = dict.fromkeys(name for one in counted or () for name in one.node.partitions)
    safe = [name for name in names if _SAFE.fullmatch(name)]
    if not safe:
        return {}
    found: dict[str, Reading] = {"hg.part.discovery": [{"{#PART}": name} for name in safe]}
    for partition in listed or ():
        if partition.name in safe:
            found[f"hg.part.state[{partition.name}]"] = partition.state
    if counted is not None:
        found |= _partition_nodes(safe, counted)
    if measurement.jobs.value is not None:
        found |= _partition_jobs(safe, measurement.jobs.value, measurement.taken_at.timestamp())
    return found


def _partition_nodes(names: Sequence[str], counted: Sequence[Machine]) -> dict[str, Reading]:
    members: dict[str, list[Machine]] = {name: [] for name in names}
    for machine in counted:
        for name in machine.node.partitions:
            if name in members:
                members[name].append(machine)
    found: dict[str, Reading] = {}
    for name, here in members.items():
        cpus = total(machine.cpus for machine in here)
        avail = sum(machine.node.state.available for machine in here)
        found[f"hg.part.cpus.total[{name}]"] = cpus.installed
        found[f"hg.part.cpus.alloc[{name}]"] = cpus.used
        found[f"hg.part.cpus.idle[{name}]"] = cpus.free
        found[f"hg.part.cpus.other[{name}]"] = cpus.installed - cpus.used - cpus.free
        found[f"hg.part.mem.total[{name}]"] = sum(one.node.memory_mib for one in here) * MIB
        found[f"hg.part.mem.alloc[{name}]"] = (
            sum(one.node.memory_allocated_mib for one in here) * MIB
        )
        found[f"hg.part.nodes.avail[{name}]"] = avail
        found[f"hg.part.nodes.bad[{name}]"] = len(here) - avail
    return found


def _partition_jobs(
    names: Sequence[str], jobs: Sequence[QueuedJob], now: float
) -> dict[str, Reading]:
    """Jobs per partition; one that waits for several waits in each, one that runs is in one."""
    running: dict[str, int] = dict.fromkeys(names, 0)
    pending: dict[str, int] = dict.fromkeys(names, 0)
    oldest: dict[str, float] = dict.fromkeys(names, 0.0)
    for job in jobs:
        if job.state.pending:
            for name in job.partitions:
                _add(pending, name, job.tasks)
                if name in oldest and reason_group(job.reason) not in _NOT_ELIGIBLE:
                    since = job.submitted_at.timestamp() if job.submitted_at else now
                    oldest[name] = max(oldest[name], now - since)
        elif not job.state.final:
            for name in job.partitions[:1]:
                _add(running, name, 1)
    found: dict[str, Reading] = {}
    for name in names:
        found[f"hg.part.jobs.running[{name}]"] = running[name]
        found[f"hg.part.jobs.pending[{name}]"] = pending[name]
        found[f"hg.part.wait.oldest[{name}]"] = round(oldest[name], 3)
    return found


def _add(numbers: dict[str, int], name: str, more: int) -> None:
    if name in numbers:
        numbers[name] += more
