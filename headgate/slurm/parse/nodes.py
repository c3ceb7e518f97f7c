"""Nodes and their states, from scontrol's long words and from sinfo's short ones."""

import re

from headgate.slurm.model import Node, NodeState
from headgate.slurm.parse.notes import Note, silent
from headgate.slurm.parse.records import number, record, words
from headgate.slurm.parse.resources import gres

_SUFFIXES = {
    "*": "NOT_RESPONDING",
    "~": "POWERED_DOWN",
    "#": "POWERING_UP",
    "!": "POWER_DOWN",
    "%": "POWERING_DOWN",
    "$": "MAINTENANCE",
    "@": "REBOOT_REQUESTED",
    "^": "REBOOT_ISSUED",
    "-": "PLANNED",
}
"""sinfo(1), NODE STATE CODES: what is appended to a state."""

_BASES = frozenset({"ALLOCATED", "DOWN", "ERROR", "FUTURE", "IDLE", "MIXED", "UNKNOWN"})
_FLAGS = frozenset(
    {
        *_SUFFIXES.values(),
        "BLOCKED",
        "CLOUD",
        "COMPLETING",
        "DRAIN",
        "DYNAMIC_FUTURE",
        "DYNAMIC_NORM",
        "EXTERNAL",
        "FAIL",
        "INVAL",
        "PERFCTRS",
        "POWER_DRAIN",
        "POWER_UP",
        "RESERVED",
        "UNDRAIN",
    }
)
_SAME = {
    "ALLOC": "ALLOCATED",
    "BOOT": "REBOOT_ISSUED",
    "COMP": "COMPLETING",
    "DRAINED": "DRAIN",
    "FAILG": "FAILING",
    "FUTR": "FUTURE",
    "INVALID_REG": "INVAL",
    "MAINT": "MAINTENANCE",
    "MIX": "MIXED",
    "NO_RESPOND": "NOT_RESPONDING",
    "NPC": "PERFCTRS",
    "PLND": "PLANNED",
    "POW_DN": "POWERING_DOWN",
    "POW_UP": "POWERING_UP",
    "REBOOT": "REBOOT_REQUESTED",
    "RESV": "RESERVED",
    "UNK": "UNKNOWN",
}
"""Other spellings of the same, short ones of sinfo and those of other releases."""

_TOGETHER = {
    "DRAINING": ("ALLOCATED", "DRAIN"),
    "DRNG": ("ALLOCATED", "DRAIN"),
    "FAILING": ("ALLOCATED", "FAIL"),
}
"""Words of sinfo that say a base and a flag at once."""

_REASON = re.compile(
    r"(.*?)(?: \[[^\[\]]*@[^\[\]]*\])?(?:\s+(?:Comment|Extra|ResvName)=.*)?", re.DOTALL
)
"""An operator's words, then who said them and when, then fields of newer releases."""


def node_state(text: str, note: Note = silent) -> NodeState:
    """A state such as `IDLE+DRAIN`, `mix-`, `DOWN*+CLOUD` as a base and flags.

    A flag that stands alone (`drained`, `maint`) has base IDLE, which is what such a node is but
    for the flag. An unknown word is kept and noted; as a base it never counts as startable.
    """
    found: list[str] = []
    for written in text.strip().upper().split("+"):
        word = written.rstrip("".join(_SUFFIXES))
        found.extend(_SUFFIXES[char] for char in written[len(word) :])
        word = _SAME.get(word, word)
        found.extend(_TOGETHER.get(word, (word,) if word else ()))
    for word in found:
        if word not in _BASES and word not in _FLAGS:
            note("node state", word)
    bases = [word for word in found if word not in _FLAGS]
    flags = frozenset(word for word in found if word in _FLAGS) | frozenset(bases[1:])
    if not bases:
        return NodeState("IDLE" if flags else "UNKNOWN", flags)
    return NodeState(bases[0], flags)


def nodes(text: str, note: Note = silent) -> tuple[Node, ...]:
    """The nodes of `scontrol -a -d -o show node` (scontrol(1)); only with -d are GRES in use."""
    return tuple(_node(line, note) for line in text.splitlines() if line.startswith("NodeName="))


def _node(line: str, note: Note) -> Node:
    # The reason is an operator's free text and comes behind all that matters.
    head, _, tail = line.partition(" Reason=")
    values = record(head)
    reason = _REASON.fullmatch(tail)
    cpus = number(values, "CPUTot", note)
    return Node(
        name=values["NodeName"],
        state=node_state(values.get("State", ""), note),
        cpus=cpus,
        cpus_effective=number(values, "CPUEfctv", note, cpus),
        cpus_allocated=number(values, "CPUAlloc", note),
        sockets=number(values, "Sockets", note, 1),
        cores_per_socket=number(values, "CoresPerSocket", note, 1),
        threads_per_core=number(values, "ThreadsPerCore", note, 1),
        memory_mib=number(values, "RealMemory", note),
        memory_allocated_mib=number(values, "AllocMem", note),
        architecture=values.get("Arch", ""),
        operating_system=values.get("OS", ""),
        partitions=words(values.get("Partitions", "")),
        features=words(values.get("ActiveFeatures", values.get("AvailableFeatures", ""))),
        gres=gres(values.get("Gres", ""), note),
        gres_used=gres(values.get("GresUsed", ""), note),
        reason=reason[1].strip() if reason else tail.strip(),
    )
