"""What a cluster's snapshot becomes in GLUE 2.1."""

import json
from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headgate.slurm.model import JobState, NodeState
from info_provider.render import glue2_json
from info_provider.site import describe
from info_provider.snapshot import Health


def published(snapshot: Any, settings: Any) -> dict[str, Any]:
    """The document, read back."""
    document: dict[str, Any] = json.loads(glue2_json(describe(snapshot, settings)))
    return document


def test_gpus_while_a_job_runs_and_a_node_is_drained(make: SimpleNamespace) -> None:
    """Eight GPUs, one used on a drained node: the manager, the share and the nodes agree."""
    snapshot = make.snapshot(
        nodes=[
            make.node("n1", state="MIXED+DRAIN", cpus_allocated=1, used="gpu:tesla:1(IDX:0)"),
            make.node("n2"),
        ],
        jobs=[make.job(tres="cpu=1,mem=1G,node=1,gres/gpu=1,gres/gpu:tesla=1")],
    )
    document = published(snapshot, make.settings())
    [manager] = document["ComputingManagerAcceleratorInfo"]
    [share] = document["ComputingShareAcceleratorInfo"]
    [kind] = document["AcceleratorEnvironment"]
    expected = {"gpu.tesla.total": "8", "gpu.tesla.used": "1", "gpu.tesla.free": "4"}
    assert manager["Extension"] == share["Extension"] == kind["Extension"] == expected
    assert manager["TotalPhysicalAccelerators"] == 8
    assert manager["UsedAcceleratorSlots"] == 1
    assert share["FreeAcceleratorSlots"] == 4
    assert share["UsedAcceleratorSlots"] == 1
    assert share["MaxAcceleratorSlotsPerJob"] == 8
    [environment] = document["ExecutionEnvironment"]
    assert environment["TotalInstances"] == 2
    assert environment["UnavailableInstances"] == 1
    assert environment["UsedInstances"] == 0
    assert document["ComputingManager"][0]["TotalLogicalCPUs"] == 16
    assert document["ComputingManager"][0]["SlotsUsedByLocalJobs"] == 1


def test_overlapping_partitions_count_a_node_once(make: SimpleNamespace) -> None:
    """A node of two queues is in both shares and once in the manager; use is the own jobs'."""
    snapshot = make.snapshot(
        partitions=[make.partition("gpu"), make.partition("long")],
        nodes=[make.node(partitions=("gpu", "long"), state="MIXED", cpus_allocated=3)],
        jobs=[make.job(1, cpus=2), make.job(2, cpus=1, partitions=("long",))],
    )
    document = published(snapshot, make.settings())
    assert document["ComputingManager"][0]["TotalLogicalCPUs"] == 8
    shares = {share["Name"]: share for share in document["ComputingShare"]}
    assert [shares[name]["UsedSlots"] for name in ("gpu", "long")] == [2, 1]
    assert [shares[name]["FreeSlots"] for name in ("gpu", "long")] == [5, 5]


def test_waiting_jobs_of_two_partitions_wait_in_both(make: SimpleNamespace) -> None:
    """`--partition=gpu,long` waits in each share, an array counts its elements."""
    snapshot = make.snapshot(
        partitions=[make.partition("gpu"), make.partition("long")],
        jobs=[
            make.job(1, "PENDING", partitions=("gpu", "long"), cpus=4, reason="Resources"),
            make.job(2, "PENDING", cpus=2, tasks=10, reason="Priority"),
        ],
    )
    shares = {
        share["Name"]: share for share in published(snapshot, make.settings())["ComputingShare"]
    }
    assert shares["gpu"]["WaitingJobs"] == 11
    assert shares["gpu"]["RequestedSlots"] == 24
    assert shares["long"]["WaitingJobs"] == 1
    assert "EstimatedAverageWaitingTime" not in shares["gpu"]


def test_held_jobs_do_not_spoil_the_wait_estimate(make: SimpleNamespace) -> None:
    """Slots are free and only a held job waits: a new job would start at once."""
    snapshot = make.snapshot(jobs=[make.job(1, "PENDING", reason="JobHeldUser")])
    [share] = published(snapshot, make.settings())["ComputingShare"]
    assert share["WaitingJobs"] == 1
    assert share["EstimatedAverageWaitingTime"] == 0


def test_hidden_and_root_partitions_only_on_request(make: SimpleNamespace) -> None:
    """What a site hides from its users it does not publish, unless told to."""
    snapshot = make.snapshot(
        partitions=[
            make.partition("gpu"),
            make.partition("secret", hidden=True),
            make.partition("admin", root_only=True),
        ]
    )
    names = lambda **publish: [  # noqa: E731 - one expression, used twice
        share["Name"]
        for share in published(snapshot, make.settings(publish=publish))["ComputingShare"]
    ]
    assert names() == ["gpu"]
    assert names(hidden=True, root_only=True) == ["gpu", "secret", "admin"]
    assert names(hidden=True, partitions=["secret"]) == ["secret"]


def test_partition_states(make: SimpleNamespace) -> None:
    """Each state has its word, and only a partition that is UP has free slots."""
    states = {
        "UP": ("production", 8),
        "DRAIN": ("draining", 0),
        "DOWN": ("queueing", 0),
        "INACTIVE": ("closed", 0),
        "SOMETHING": ("closed", 0),
    }
    for state, expected in states.items():
        snapshot = make.snapshot(partitions=[make.partition(state=state)])
        [share] = published(snapshot, make.settings())["ComputingShare"]
        assert (share["ServingState"], share["FreeSlots"]) == expected


def test_limits(make: SimpleNamespace) -> None:
    """Times in seconds, NONE means the maximum applies, unlimited is the placeholder."""
    snapshot = make.snapshot(
        partitions=[
            make.partition("gpu", max_time_minutes=None, default_time_minutes=30, max_nodes=1),
            make.partition("long", max_time_minutes=1440, max_cpus_per_node=4),
        ],
        nodes=[make.node(f"n{i}", partitions=("gpu", "long")) for i in (1, 2)],
    )
    document = published(snapshot, make.settings())
    gpu, long = document["ComputingShare"]
    assert (gpu["MaxWallTime"], gpu["DefaultWallTime"]) == (999_999_999, 1800)
    assert (long["MaxWallTime"], long["DefaultWallTime"]) == (86400, 86400)
    assert (gpu["MaxSlotsPerJob"], long["MaxSlotsPerJob"]) == (8, 8)
    assert document["ComputingShareAcceleratorInfo"][0]["MaxAcceleratorSlotsPerJob"] == 4
    assert (gpu["MaxMainMemory"], gpu["GuaranteedMainMemory"]) == (4000, 4000)


def test_a_partition_without_nodes(make: SimpleNamespace) -> None:
    """It is a share with nothing in it and no resource."""
    snapshot = make.snapshot(partitions=[make.partition("gpu"), make.partition("empty")])
    share = published(snapshot, make.settings())["ComputingShare"][1]
    assert (share["FreeSlots"], share["UsedSlots"], share["MaxSlotsPerJob"]) == (0, 0, 0)
    assert share["Associations"]["ResourceID"] == []


def test_kinds_of_nodes(make: SimpleNamespace) -> None:
    """Memory within 1 % is one kind, other GPUs another; FUTURE nodes are none."""
    snapshot = make.snapshot(
        nodes=[
            make.node("n1", memory_mib=128541),
            make.node("n2", memory_mib=128540),
            make.node("n3", memory_mib=128540, gres=""),
            make.node("n4", state="FUTURE", memory_mib=1),
            make.node("n5", memory_mib=128541, architecture="", operating_system="", state="DOWN"),
        ]
    )
    document = published(snapshot, make.settings())
    kinds = {kind["Name"]: kind for kind in document["ExecutionEnvironment"]}
    assert {name: kind["TotalInstances"] for name, kind in kinds.items()} == {
        "amd64-8cpu-126g": 1,
        "amd64-8cpu-126g-4xtesla": 3,
    }
    assert kinds["amd64-8cpu-126g-4xtesla"]["MainMemorySize"] == 128540
    assert document["ComputingManager"][0]["Homogeneous"] is False
    assert document["ComputingManager"][0]["LogicalCPUDistribution"] == "8:4"


def test_a_site_whose_nodes_never_registered(make: SimpleNamespace) -> None:
    """What the model requires and nobody knows is the placeholder."""
    snapshot = make.snapshot(nodes=[make.node(state="DOWN", architecture="", operating_system="")])
    [kind] = published(snapshot, make.settings())["ExecutionEnvironment"]
    assert (kind["Platform"], kind["OSFamily"]) == ("UNDEFINEDVALUE", "UNDEFINEDVALUE")


def test_gpu_models(make: SimpleNamespace) -> None:
    """The table names the card, the site's own word goes first, MIG has no card count."""
    snapshot = make.snapshot(
        nodes=[make.node("n1", gres="gpu:nvidia_a100-sxm4-80gb:4,gpu:tesla:2,gpu:1g.10gb:7")]
    )
    document = published(
        snapshot, make.settings(gpu={"tesla": {"model": "T4", "memory_mb": 16000}})
    )
    models = {one["Model"]: one for one in document["AcceleratorEnvironment"]}
    assert models["a100"]["Memory"] == 80000
    assert models["a100"]["Vendor"] == "NVIDIA"
    assert models["T4"]["Memory"] == 16000
    assert models["1g.10gb"]["LogicalAccelerators"] == 7
    assert "PhysicalAccelerators" not in models["1g.10gb"]
    assert "TotalPhysicalAccelerators" not in document["ComputingManagerAcceleratorInfo"][0]


def test_two_types_in_a_share(make: SimpleNamespace) -> None:
    """Each type is counted from its own TRES; where Slurm tracks none, from the nodes."""
    nodes = [
        make.node(
            gres="gpu:a100:2,gpu:t4:2",
            used="gpu:a100:1,gpu:t4:2",
            state="MIXED",
            cpus_allocated=3,
        )
    ]
    jobs = [make.job(1, tres="gres/gpu=1,gres/gpu:a100=1"), make.job(2, tres="gres/gpu=2")]
    tracked = published(make.snapshot(nodes=nodes, jobs=jobs), make.settings())
    untracked = published(make.snapshot(nodes=nodes, jobs=jobs, values={}), make.settings())
    for document in (tracked, untracked):
        [info] = document["ComputingShareAcceleratorInfo"]
        assert info["UsedAcceleratorSlots"] == 3
        assert info["FreeAcceleratorSlots"] == 1
        assert info["Extension"]["gpu.a100.used"] == "1"


def test_a_cluster_without_gpus_has_no_accelerators(make: SimpleNamespace) -> None:
    """No object at all, rather than zeros."""
    document = published(make.snapshot(nodes=[make.node(gres="")]), make.settings())
    assert not [name for name in document if "Accelerator" in name]


def test_policies_are_per_vo(make: SimpleNamespace) -> None:
    """A VO may use a share if its accounts and groups may; an account name is never a VO."""
    snapshot = make.snapshot(
        partitions=[
            make.partition("gpu"),
            make.partition("private", allow_accounts=("chem",)),
            make.partition("mixed", allow_accounts=("deep", "chem"), allow_groups=("hpc",)),
        ]
    )
    vos = [
        {"name": "deep.vo", "accounts": ["deep"], "groups": ["hpc"]},
        {"name": "other.vo", "accounts": ["deep"]},
    ]
    policies = published(snapshot, make.settings(vo=vos))["MappingPolicy"]
    assert {policy["Name"]: policy["Rule"] for policy in policies} == {
        "gpu": ["vo:deep.vo", "vo:other.vo"],
        "mixed": ["vo:deep.vo"],
    }
    assert "MappingPolicy" not in published(snapshot, make.settings())


def test_endpoints_say_how_they_feel(make: SimpleNamespace) -> None:
    """Health comes from the probe; an endpoint nobody asked is unknown."""
    endpoints = [{"url": "https://a.example.org"}, {"url": "https://b.example.org"}]
    snapshot = make.snapshot(health={"https://a.example.org": Health("critical", "answers 503")})
    first, second = published(snapshot, make.settings(endpoint=endpoints))["ComputingEndpoint"]
    assert (first["HealthState"], first["HealthStateInfo"]) == ("critical", "answers 503")
    assert second["HealthState"] == "unknown"
    assert first["ID"] != second["ID"]


def test_every_association_leads_to_something_published(make: SimpleNamespace) -> None:
    """No ID is used twice, and whatever refers to an entity of ours finds it."""
    snapshot = make.snapshot(
        partitions=[make.partition("gpu"), make.partition("long")],
        nodes=[make.node("n1"), make.node("n2", gres="", partitions=("long",))],
    )
    document = published(
        snapshot,
        make.settings(
            location={"name": "Hall 1", "country": "PL"},
            contact=[{"detail": "mailto:ops@example.org"}],
            endpoint=[{"url": "https://gw.example.org"}],
            vo=[{"name": "deep.vo"}],
        ),
    )
    ids = [entity["ID"] for entities in document.values() for entity in entities]
    assert len(ids) == len(set(ids))
    for entities in document.values():
        for entity in entities:
            for role, target in entity["Associations"].items():
                targets = target if isinstance(target, list) else [target]
                missing = [one for one in targets if one is not None and one not in ids]
                assert not missing or role == "UserDomainID", (entity["ID"], role)


def test_ids_do_not_change_with_the_load(make: SimpleNamespace) -> None:
    """Draining nodes and running jobs leave every ID as it was."""
    idle = published(make.snapshot(), make.settings())
    busy = published(
        make.snapshot(nodes=[make.node(state="MIXED+DRAIN", cpus_allocated=2)]), make.settings()
    )
    ids = [
        [entity["ID"] for entities in document.values() for entity in entities]
        for document in (idle, busy)
    ]
    assert ids[0] == ids[1]


@given(
    states=st.lists(
        st.tuples(
            st.sampled_from(["IDLE", "MIXED", "ALLOCATED", "DOWN"]),
            st.sampled_from([frozenset[str](), frozenset({"DRAIN"})]),
            st.integers(0, 8),
            st.integers(0, 4),
        ),
        min_size=1,
        max_size=4,
    ),
    running=st.lists(st.tuples(st.integers(0, 50), st.integers(0, 9)), max_size=4),
)
def test_shares_never_promise_more_than_there_is(
    make: SimpleNamespace,
    states: list[tuple[str, frozenset[str], int, int]],
    running: list[tuple[int, int]],
) -> None:
    """Queue and nodes may disagree by a moment; used + free still stays within the total."""
    nodes = [
        make.node(f"n{i}", cpus_allocated=cpus, used=f"gpu:tesla:{cards}")
        for i, (_, _, cpus, cards) in enumerate(states)
    ]
    nodes = [
        _with_state(node, NodeState(base, flags))
        for node, (base, flags, _, _) in zip(nodes, states, strict=True)
    ]
    jobs = [
        make.job(i, cpus=cpus, tres=f"gres/gpu={cards}") for i, (cpus, cards) in enumerate(running)
    ]
    document = published(make.snapshot(nodes=nodes, jobs=jobs), make.settings())
    [share] = document["ComputingShare"]
    assert 0 <= share["UsedSlots"] + share["FreeSlots"] <= 8 * len(nodes)
    [info] = document["ComputingShareAcceleratorInfo"]
    assert 0 <= info["UsedAcceleratorSlots"] + info["FreeAcceleratorSlots"] <= 4 * len(nodes)
    assert "-" not in str([share["UsedSlots"], share["FreeSlots"]])


def _with_state(node: Any, state: NodeState) -> Any:
    facts = {name: getattr(node, name) for name in node.__slots__}
    return type(node)(**(facts | {"state": state}))


def test_every_job_state_has_a_place(make: SimpleNamespace) -> None:
    """Ended jobs are not counted; each other state is running, waiting or suspended."""
    for state in JobState:
        snapshot = make.snapshot(jobs=[make.job(1, state.value)])
        [share] = published(snapshot, make.settings())["ComputingShare"]
        assert share["TotalJobs"] == (0 if state.final else 1)
        parts = share["RunningJobs"] + share["WaitingJobs"] + share["SuspendedJobs"]
        assert parts == share["TotalJobs"]
