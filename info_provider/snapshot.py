"""What is known of a cluster at one moment: all that the published description is made from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from headgate.slurm.model import Configuration, Node, Partition, QueuedJob


@dataclass(frozen=True, slots=True)
class Health:
    """What an endpoint's health URL said: GLUE's word (ok, critical, unknown) and the reason."""

    state: str
    info: str


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The cluster at one moment. `health` is by endpoint URL; an endpoint may be missing in it."""

    taken_at: datetime
    configuration: Configuration
    partitions: Sequence[Partition]
    nodes: Sequence[Node]
    jobs: Sequence[QueuedJob]
    health: Mapping[str, Health] = field(default_factory=dict)
