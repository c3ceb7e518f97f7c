"""Who may use which partition, in GLUE's `basic` scheme: what Slurm allows, seen per VO (pure)."""

from collections.abc import Sequence

from headgate.slurm.model import Partition
from info_provider.settings import VoSettings


def rules(partition: Partition, organisations: Sequence[VoSettings]) -> tuple[str, ...]:
    """`vo:NAME` for each VO whose members the partition takes; a raw account is never a VO."""
    return tuple(f"vo:{vo.name}" for vo in organisations if _admits(partition, vo))


def _admits(partition: Partition, vo: VoSettings) -> bool:
    limits = (
        (partition.allow_accounts, vo.accounts),
        (partition.allow_groups, vo.groups),
        (partition.allow_qos, vo.qos),
    )
    return all(_open(allowed) or set(allowed) & set(own) for allowed, own in limits)


def _open(allowed: Sequence[str]) -> bool:
    return not allowed or "ALL" in allowed
