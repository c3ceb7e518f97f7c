"""Counting CPUs and GPUs of nodes in all the states Slurm knows."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.slurm.capacity import Slots, by_type, cpus, gpus, total
from headgate.slurm.model import Gres, Node, NodeState


def test_idle_gpus_of_a_serving_node_are_free(make: SimpleNamespace) -> None:
    """Of 4 GPUs with one in use, 3 are free."""
    node = make.node(state="MIXED", cpus_allocated=1, used="gpu:tesla:1(IDX:0)")
    assert gpus(node) == {"tesla": Slots(4, 4, 1, 3)}


def test_a_drained_node_keeps_what_runs_and_offers_nothing(make: SimpleNamespace) -> None:
    """Its running CPUs and GPUs stay used, the rest is neither free nor usable."""
    node = make.node(state="MIXED+DRAIN", cpus_allocated=2, used="gpu:tesla:1(IDX:0)")
    assert gpus(node) == {"tesla": Slots(4, 1, 1, 0)}
    assert cpus(node) == Slots(8, 2, 2, 0)


def test_a_future_node_counts_as_nothing(make: SimpleNamespace) -> None:
    """Nodes that are only configured for later have no hardware."""
    node = make.node(state="FUTURE")
    assert (cpus(node), gpus(node)) == (Slots(), {})


@pytest.mark.parametrize("flag", ["POWERED_DOWN", "POWERING_UP", "RESERVED", "COMPLETING"])
def test_installed_but_not_now(make: SimpleNamespace, flag: str) -> None:
    """A node that is asleep, waking, reserved or completing is installed and offers nothing."""
    node = make.node(state=f"IDLE+{flag}")
    assert cpus(node) == Slots(8, 8, 0, 0)
    assert gpus(node)["tesla"].free == 0


def test_gpus_without_a_free_cpu_are_not_free(make: SimpleNamespace) -> None:
    """No job can start on the idle GPUs of a node whose CPUs are all taken."""
    node = make.node(state="ALLOCATED", cpus_allocated=8, used="gpu:tesla:1(IDX:0)")
    assert gpus(node) == {"tesla": Slots(4, 4, 1, 0)}


def test_effective_cpus_are_what_jobs_get(make: SimpleNamespace) -> None:
    """CPUs set aside for the system (CoreSpecCount) are installed, not free."""
    assert cpus(make.node(cpus_effective=6, cpus_allocated=1)) == Slots(8, 6, 1, 5)


def test_untyped_use_belongs_to_the_only_type(make: SimpleNamespace) -> None:
    """`gpu:(null):2` on a node of one type is use of that type."""
    node = make.node(used="gpu:(null):2(IDX:0-1)")
    assert gpus(node) == {"tesla": Slots(4, 4, 2, 2)}


def test_untyped_gpus(make: SimpleNamespace) -> None:
    """GPUs that have no type are counted under the empty one."""
    assert gpus(make.node(gres="gpu:2", used="gpu:1")) == {"": Slots(2, 2, 1, 1)}


def test_two_types_on_a_node_are_kept_apart(make: SimpleNamespace) -> None:
    """Each entry of the list counts, not only the first or the last."""
    node = make.node(
        gres="gpu:a100:2(S:0-1),gpu:t4:4(S:0-1)", used="gpu:a100:2(IDX:0-1),gpu:t4:1(IDX:2)"
    )
    assert gpus(node) == {"a100": Slots(2, 2, 2, 0), "t4": Slots(4, 4, 1, 3)}


def test_mig_instances_are_slots(make: SimpleNamespace) -> None:
    """A type with a dot is a type; each instance is one that a job can have."""
    node = make.node(gres="gpu:a100_1g.5gb:7", used="gpu:a100_1g.5gb:3(IDX:0-2)")
    assert gpus(node) == {"a100_1g.5gb": Slots(7, 7, 3, 4)}


def test_shards_are_no_gpus_but_occupy_them(make: SimpleNamespace) -> None:
    """A card with a shard in use is not free, and no GPU is used."""
    node = make.node(gres="gpu:tesla:4,shard:tesla:16", used="gpu:tesla:1,shard:tesla:5")
    assert gpus(node) == {"tesla": Slots(4, 4, 1, 1)}


def test_untyped_shares_lie_on_any_card(make: SimpleNamespace) -> None:
    """`mps:400` on 4 cards: 150 in use occupy two of them."""
    node = make.node(gres="gpu:a:2,gpu:b:2,mps:400", used="mps:150")
    assert total(gpus(node).values()) == Slots(4, 4, 0, 2)


_GRES = st.lists(
    st.builds(
        Gres,
        st.sampled_from(["gpu", "shard", "mps", "license"]),
        st.sampled_from(["", "a100", "t4", "1g.5gb"]),
        st.integers(0, 64),
    ),
    max_size=4,
).map(tuple)
_STATES = st.builds(
    NodeState,
    st.sampled_from(["IDLE", "MIXED", "ALLOCATED", "DOWN", "FUTURE", "UNKNOWN", "NEWWORD"]),
    st.frozensets(st.sampled_from(["DRAIN", "MAINTENANCE", "PLANNED", "POWERED_DOWN"])),
)
_COUNT = st.integers(0, 512)
_NODES = st.builds(
    Node,
    name=st.just("n"),
    state=_STATES,
    cpus=_COUNT,
    cpus_effective=_COUNT,
    cpus_allocated=_COUNT,
    sockets=_COUNT,
    cores_per_socket=_COUNT,
    threads_per_core=_COUNT,
    memory_mib=_COUNT,
    memory_allocated_mib=_COUNT,
    architecture=st.just("x86_64"),
    operating_system=st.just("Linux"),
    partitions=st.just(("gpu",)),
    features=st.just(()),
    gres=_GRES,
    gres_used=_GRES,
)


@given(st.lists(_NODES, max_size=5))
def test_no_count_is_negative_or_over_the_total(nodes: list[Node]) -> None:
    """Whatever Slurm says, used + free <= usable <= installed, and nothing is below zero."""
    sums = [total(map(cpus, nodes)), *by_type(map(gpus, nodes)).values()]
    sums += [slots for node in nodes for slots in (cpus(node), *gpus(node).values())]
    for slots in sums:
        assert slots.used >= 0
        assert slots.free >= 0
        assert slots.used + slots.free <= slots.usable <= slots.installed
