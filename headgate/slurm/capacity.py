"""What a node's hardware comes to for jobs: how much is installed, in use and free to start on."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from headgate.slurm.model import Gres, Node

CARD_SHARES = ("shard", "mps")
"""Generic resources that are slices of whole GPUs (gres.conf(5)); they are no GPUs themselves."""


@dataclass(frozen=True, slots=True)
class Slots:
    """Things that jobs take: `used + free <= usable <= installed`, none ever negative.

    `usable` is what serves jobs now: all of an available node, and on any other only what running
    jobs still hold. `free` is what a job could start on at this moment.
    """

    installed: int = 0
    usable: int = 0
    used: int = 0
    free: int = 0

    def __add__(self, other: "Slots") -> "Slots":
        return Slots(
            self.installed + other.installed,
            self.usable + other.usable,
            self.used + other.used,
            self.free + other.free,
        )


def cpus(node: Node) -> Slots:
    """The CPUs of a node as Slurm schedules them (slurm.conf(5), CPUs; CPUEfctv)."""
    if not node.state.installed:
        return Slots()
    effective = min(node.cpus_effective or node.cpus, node.cpus)
    used = min(node.cpus_allocated, node.cpus)
    usable = max(effective, used) if node.state.available else used
    free = max(0, effective - used) if node.state.startable else 0
    return Slots(node.cpus, usable, used, free)


def gpus(node: Node) -> Mapping[str, Slots]:
    """The GPUs of a node by Slurm's type (empty: untyped), MIG instances counted as GPUs.

    A GPU is free if no job holds it or a share of it, the node can start work, and a CPU is left
    to start it with. How shares lie on cards is not in what Slurm reports in bulk: the fewest
    cards that can hold them are taken as occupied.
    """
    if not node.state.installed:
        return {}
    installed = _counts(node.gres, "gpu")
    if not installed:
        return {}
    used = _attributed(installed, _counts(node.gres_used, "gpu"))
    shared = _shared_cards(node, installed)
    startable = cpus(node).free > 0
    slots = {}
    for kind, count in installed.items():
        usable = count if node.state.available else used[kind]
        left = max(0, count - used[kind] - shared[kind])
        slots[kind] = Slots(count, usable, used[kind], left if startable else 0)
    return slots


@dataclass(frozen=True, slots=True)
class Machine:
    """A node with its capacity worked out once."""

    node: Node
    cpus: Slots
    gpus: Mapping[str, Slots]


def machines(nodes: Iterable[Node]) -> list[Machine]:
    """All nodes whose hardware counts, each with its capacity."""
    return [Machine(node, cpus(node), gpus(node)) for node in nodes if node.state.installed]


def total(slots: Iterable[Slots]) -> Slots:
    """The sum; of nothing, nothing."""
    return sum(slots, Slots())


def by_type(each: Iterable[Mapping[str, Slots]]) -> Mapping[str, Slots]:
    """The sums per GPU type over nodes, in the order of the types' names."""
    sums: dict[str, Slots] = {}
    for node in each:
        for kind, slots in node.items():
            sums[kind] = sums.get(kind, Slots()) + slots
    return dict(sorted(sums.items()))


def _counts(gres: Iterable[Gres], name: str) -> dict[str, int]:
    counts: dict[str, int] = {}
    for one in gres:
        if one.name == name:
            counts[one.type] = counts.get(one.type, 0) + one.count
    return counts


def _attributed(installed: Mapping[str, int], used: Mapping[str, int]) -> dict[str, int]:
    """Use per installed type; what names no installed type goes where there is room, in order."""
    given = {kind: min(used.get(kind, 0), count) for kind, count in installed.items()}
    stray = sum(used.values()) - sum(used.get(kind, 0) for kind in installed)
    for kind in sorted(installed):
        taken = min(stray, installed[kind] - given[kind])
        given[kind] += taken
        stray -= taken
    return given


def _shared_cards(node: Node, cards: Mapping[str, int]) -> dict[str, int]:
    """How many cards of each type have at least one share in use."""
    busy = dict.fromkeys(cards, 0)
    for name in CARD_SHARES:
        shares = _counts(node.gres, name)
        if not shares:
            continue
        used = _attributed(shares, _counts(node.gres_used, name))
        for kind, count in used.items():
            _occupy(busy, cards, kind, used=count, shares=shares[kind])
    return busy


def _occupy(
    busy: dict[str, int], cards: Mapping[str, int], kind: str, *, used: int, shares: int
) -> None:
    """Mark the fewest cards that `used` of `shares` can lie on; untyped shares are on any type."""
    kinds = [kind] if kind in cards else sorted(cards)
    number = sum(cards[one] for one in kinds)
    if not (used and number):
        return
    per_card = max(1, -(-shares // number))
    occupied = -(-used // per_card)
    for one in kinds:
        taken = min(occupied, cards[one] - busy[one])
        busy[one] += taken
        occupied -= taken
