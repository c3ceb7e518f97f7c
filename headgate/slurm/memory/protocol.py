"""What is said on the simulated cluster's socket: one JSON line each way per question."""

import msgspec

LIMIT = 16 * 1024 * 1024
"""Bytes of one line; Slurm takes scripts up to 4 MiB."""


class Submit(msgspec.Struct, frozen=True, tag="submit"):
    """sbatch: its options as they were written (long names), script and environment."""

    options: dict[str, str]
    script: str
    arguments: list[str]
    environment: dict[str, str]
    directory: str
    host: str = "localhost"


class Cancel(msgspec.Struct, frozen=True, tag="cancel"):
    """scancel: jobs by id and by exact name; `signal` 0 ends them, another is only sent."""

    ids: list[int] = []
    name: str | None = None
    signal: int = 0


class Change(msgspec.Struct, frozen=True, tag="change"):
    """scontrol hold, release of one job."""

    verb: str
    id: int


class DrainNode(msgspec.Struct, frozen=True, tag="drain"):
    """scontrol update nodename=… state=drain|resume."""

    nodes: str
    drained: bool
    reason: str = ""


class Show(msgspec.Struct, frozen=True, tag="show"):
    """scontrol show job, with all that the simulated cluster knows of it."""

    id: int


class Ask(msgspec.Struct, frozen=True, tag="ask"):
    """One question of a `ClusterReader`; `names` and `since` (epoch seconds) where it has them."""

    what: str
    ended: bool = False
    names: list[str] = []
    since: float = 0.0


class Stop(msgspec.Struct, frozen=True, tag="stop"):
    """End all jobs with SIGKILL, then the cluster."""


Question = Submit | Cancel | Change | DrainNode | Show | Ask | Stop


class Refused(Exception):  # noqa: N818 - an answer, not a fault
    """Slurm's words for a refusal, one a line, as the command prints them."""

    def __init__(self, *words: str) -> None:
        super().__init__("; ".join(words))
        self.words = words


def answer(value: object) -> bytes:
    """The line that carries a value."""
    return msgspec.json.encode({"ok": value}) + b"\n"


def refusal(words: tuple[str, ...]) -> bytes:
    """The line that carries a refusal."""
    return msgspec.json.encode({"error": words}) + b"\n"
