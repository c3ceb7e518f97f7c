"""Which of a caller's jobs are meant."""

from dataclasses import dataclass
from datetime import datetime

from gateway.jobs import State


@dataclass(frozen=True, slots=True)
class Selection:
    """What all selected jobs have in common; what is left out does not matter.

    `labels` are names with the value that is asked for, None: any. `created_after` and
    `created_before` exclude the moment itself. `queue` is Slurm's where it is known, else the
    one that was asked for.
    """

    states: tuple[State, ...] = ()
    cluster: str | None = None
    queue: str | None = None
    labels: tuple[tuple[str, str | None], ...] = ()
    created_after: datetime | None = None
    created_before: datetime | None = None
    ids: tuple[str, ...] | None = None
    cancel_requested: bool | None = None
