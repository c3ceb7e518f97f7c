"""What one run found out, and what it could not: values that hold no opinion."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Generic, TypeVar

from headgate.slurm.model import Controller, Node, Partition, QueuedJob

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Answer(Generic[T]):
    """What a Slurm command said; `value` is None if it failed, and `failure` says how.

    `seconds` is how long it took, also in vain.
    """

    value: T | None
    seconds: float
    failure: str = ""


class Readiness(StrEnum):
    """How a service answered: ready, it says it is not, it does not answer, or we cannot ask."""

    READY = "ready"
    NOT_READY = "not ready"
    DOWN = "down"
    UNMEASURED = "unmeasured"


@dataclass(frozen=True, slots=True)
class Service:
    """One service's readiness; `seconds` until it answered, None without an answer."""

    readiness: Readiness
    reason: str
    seconds: float | None = None
    slow_after: float = 2.0


@dataclass(frozen=True, slots=True)
class Backlog:
    """What waits in the spool: runs, bytes, the oldest one's age in seconds; runs ever dropped."""

    runs: int = 0
    size: int = 0
    age: float = 0.0
    dropped: int = 0


@dataclass(frozen=True, slots=True)
class Measurement:
    """Everything from one run; `taken_at` is its one time, `run_seconds` how long it took."""

    taken_at: datetime
    controllers: Answer[Sequence[Controller]]
    nodes: Answer[Sequence[Node]]
    partitions: Answer[Sequence[Partition]]
    jobs: Answer[Sequence[QueuedJob]]
    services: Mapping[str, Service] = field(default_factory=dict)
    backlog: Backlog = Backlog()
    run_seconds: float = 0.0

    def commands(self) -> Mapping[str, Answer[object]]:
        """The Slurm commands of this run by short name: at most four."""
        return {
            "ping": Answer(
                self.controllers.value, self.controllers.seconds, self.controllers.failure
            ),
            "nodes": Answer(self.nodes.value, self.nodes.seconds, self.nodes.failure),
            "partitions": Answer(
                self.partitions.value, self.partitions.seconds, self.partitions.failure
            ),
            "jobs": Answer(self.jobs.value, self.jobs.seconds, self.jobs.failure),
        }
