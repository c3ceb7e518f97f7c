"""GPUs as GLUE 2.1 has them: one object per type for manager and share, one per model and node.

GLUE counts all GPUs of a manager or share together; who needs them by model finds
`gpu.<type>.total`, `.used` and `.free` in the object's Extension, `<type>` being Slurm's word, or
`untyped`.
"""

from collections.abc import Mapping

from headgate.slurm.capacity import Slots, by_type, total
from info_provider.environments import NodeKind
from info_provider.glue import (
    AcceleratorEnvironment,
    ComputingManagerAcceleratorInfo,
    ComputingShareAcceleratorInfo,
)
from info_provider.gpus import GpuModel, describe
from info_provider.identifiers import Identifiers
from info_provider.settings import GpuSettings

GPU = "GPU"


def counts(slots: Mapping[str, Slots]) -> Mapping[str, str]:
    """Installed, used and free GPUs by Slurm's type, as extension keys."""
    found = {}
    for kind, one in slots.items():
        word = kind or "untyped"
        found[f"gpu.{word}.total"] = str(one.installed)
        found[f"gpu.{word}.used"] = str(one.used)
        found[f"gpu.{word}.free"] = str(one.free)
    return found


def of_manager(
    ids: Identifiers, slots: Mapping[str, Slots]
) -> tuple[ComputingManagerAcceleratorInfo, ...]:
    """The cluster's GPUs; none, no object. MIG instances are slots, how many cards is unknown."""
    if not slots:
        return ()
    everything = total(slots.values())
    partitioned = any(describe(kind).partition for kind in slots)
    return (
        ComputingManagerAcceleratorInfo(
            **ids.head("ComputingManagerAcceleratorInfo", GPU.lower()),
            type=GPU,
            total_physical_accelerators=None if partitioned else everything.installed,
            total_accelerator_slots=everything.usable,
            used_accelerator_slots=everything.used,
            extension=counts(slots),
            associations={"ComputingManagerID": ids.manager},
        ),
    )


def of_share(
    ids: Identifiers, share: str, slots: Mapping[str, Slots], most_per_job: int
) -> tuple[ComputingShareAcceleratorInfo, ...]:
    """A partition's GPUs; none, no object."""
    if not slots:
        return ()
    everything = total(slots.values())
    return (
        ComputingShareAcceleratorInfo(
            **ids.head("ComputingShareAcceleratorInfo", f"{GPU.lower()}.{share}"),
            type=GPU,
            free_accelerator_slots=everything.free,
            used_accelerator_slots=everything.used,
            max_accelerator_slots_per_job=most_per_job,
            extension=counts(slots),
            associations={"ComputingShareID": ids.of("ComputingShare", share)},
        ),
    )


def of_nodes(
    ids: Identifiers, kind: NodeKind, known: Mapping[str, GpuSettings]
) -> tuple[AcceleratorEnvironment, ...]:
    """One object per model in a kind of node; the site's word on a type goes before the table."""
    sums = by_type(machine.gpus for machine in kind.nodes)
    found = []
    for word, number in kind.gpus:
        model = _model(word, known)
        found.append(
            AcceleratorEnvironment(
                **ids.head("AcceleratorEnvironment", f"{word or 'gpu'}.{kind.name}"),
                type=GPU,
                logical_accelerators=number,
                physical_accelerators=None if model.partition else number,
                model=model.model or GPU.lower(),
                vendor=model.vendor,
                memory=model.memory_mb,
                other_info=(f"MIG={model.partition}",) if model.partition else (),
                extension=counts({word: sums[word]}),
                associations={"ExecutionEnvironmentID": ids.of("ExecutionEnvironment", kind.name)},
            )
        )
    return tuple(found)


def _model(word: str, known: Mapping[str, GpuSettings]) -> GpuModel:
    table = describe(word)
    ours = known.get(word or "untyped", GpuSettings())
    return GpuModel(
        ours.model or table.model,
        ours.vendor or table.vendor,
        table.memory_mb if ours.memory_mb is None else ours.memory_mb,
        table.partition,
    )
