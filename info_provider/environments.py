"""Kinds of nodes: nodes that a job could not tell apart become one ExecutionEnvironment."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from headgate.slurm.capacity import Machine
from headgate.slurm.model import Node

MEMORY_TOLERANCE = 1.01
"""The same hardware reports memory that differs by firmware; within 1 % it is the same kind."""

_PLATFORMS = {"x86_64": "amd64", "i386": "i386", "i686": "i386", "ppc64le": "powerpc"}


@dataclass(frozen=True, slots=True)
class NodeKind:
    """One kind of node: its stable name, what its nodes have in common, and the nodes.

    `memory_mib` is the least any of them has; `gpus` are pairs of type and number per node.
    `platform` and `os_family` are empty if no node of the kind has ever registered.
    """

    name: str
    platform: str
    os_family: str
    sockets: int
    cores_per_socket: int
    threads_per_core: int
    cpus: int
    memory_mib: int
    gpus: tuple[tuple[str, int], ...]
    nodes: tuple[Machine, ...]


@dataclass(frozen=True, slots=True)
class _Shape:
    sockets: int
    cores_per_socket: int
    threads_per_core: int
    cpus: int
    gpus: tuple[tuple[str, int], ...]
    features: tuple[str, ...]


def kinds(nodes: Iterable[Machine], *, features: Sequence[str] = ()) -> tuple[NodeKind, ...]:
    """The kinds among these nodes, in the order of their names.

    A node that never registered reports neither architecture nor system; it counts as the kind
    it would be if all others of its shape agree.
    """
    shapes: dict[_Shape, list[Machine]] = {}
    for machine in nodes:
        shapes.setdefault(_shape(machine, features), []).append(machine)
    found = [
        _kind(shape, platform, group)
        for shape, members in shapes.items()
        for platform, alike in _by_platform(members).items()
        for group in _by_memory(alike)
    ]
    return _named_apart(sorted(found, key=lambda kind: (kind.name, kind.memory_mib)))


def _shape(machine: Machine, features: Sequence[str]) -> _Shape:
    node = machine.node
    return _Shape(
        node.sockets,
        node.cores_per_socket,
        node.threads_per_core,
        node.cpus,
        tuple(sorted((kind, slots.installed) for kind, slots in machine.gpus.items())),
        tuple(feature for feature in features if feature in node.features),
    )


def _by_platform(nodes: Sequence[Machine]) -> Mapping[tuple[str, str], list[Machine]]:
    groups: dict[tuple[str, str], list[Machine]] = {}
    unregistered: list[Machine] = []
    for machine in nodes:
        node = machine.node
        if node.architecture:
            groups.setdefault((node.architecture, _family(node)), []).append(machine)
        else:
            unregistered.append(machine)
    if unregistered:
        home = next(iter(groups)) if len(groups) == 1 else ("", "")
        groups.setdefault(home, []).extend(unregistered)
    return groups


def _family(node: Node) -> str:
    return node.operating_system.split(maxsplit=1)[0].lower() if node.operating_system else ""


def _by_memory(nodes: Sequence[Machine]) -> list[list[Machine]]:
    groups: list[list[Machine]] = []
    for machine in sorted(nodes, key=lambda one: (one.node.memory_mib, one.node.name)):
        least = groups[-1][0].node.memory_mib if groups else 0
        if groups and machine.node.memory_mib <= least * MEMORY_TOLERANCE:
            groups[-1].append(machine)
        else:
            groups.append([machine])
    return groups


def _kind(shape: _Shape, platform: tuple[str, str], nodes: list[Machine]) -> NodeKind:
    architecture, family = platform
    named = _PLATFORMS.get(architecture, architecture)
    memory = nodes[0].node.memory_mib
    words = [
        named or "unknown",
        f"{shape.cpus}cpu",
        f"{round(memory / 1024) or 1}g",
        *(f"{number}x{kind or 'gpu'}" for kind, number in shape.gpus),
        *shape.features,
    ]
    return NodeKind(
        name=re.sub(r"[^A-Za-z0-9._-]", "_", "-".join(words)),
        platform=named,
        os_family=family,
        sockets=shape.sockets,
        cores_per_socket=shape.cores_per_socket,
        threads_per_core=shape.threads_per_core,
        cpus=shape.cpus,
        memory_mib=memory,
        gpus=shape.gpus,
        nodes=tuple(nodes),
    )


def _named_apart(found: Sequence[NodeKind]) -> tuple[NodeKind, ...]:
    """Kinds whose names round to the same get a number; the smallest memory keeps the name."""
    seen: dict[str, int] = {}
    apart = []
    for kind in found:
        seen[kind.name] = seen.get(kind.name, 0) + 1
        again = seen[kind.name]
        apart.append(replace(kind, name=f"{kind.name}-{again}") if again > 1 else kind)
    return tuple(apart)
