"""What the simulated cluster consists of: its nodes, queues and habits, as a settings file."""

from pathlib import Path

import msgspec

from headgate.settings import Section, SettingsError, load


class Gpus(Section, frozen=True):
    """GPUs of one type on a node."""

    type: str
    count: int


class NodeKind(Section, frozen=True):
    """Nodes alike, by a host list: `n[1-4]`. Memory in MiB."""

    names: str
    cpus: int
    memory_mib: int
    gpus: tuple[Gpus, ...] = ()
    features: tuple[str, ...] = ()


class Queue(Section, frozen=True):
    """A partition. Times in minutes; without `max_time_minutes` a job may run for ever."""

    name: str
    nodes: str
    default: bool = False
    max_time_minutes: int | None = None
    default_time_minutes: int | None = None
    up: bool = True


class Site(Section, frozen=True):
    """The whole simulated cluster.

    `kill_wait_seconds` passes between SIGTERM and SIGKILL (slurm.conf(5), KillWait);
    `min_job_age_seconds` an ended job stays in the queue. `minute_seconds` is how long a minute of
    a time limit lasts: less than 60 to see limits at work sooner.
    """

    nodes: tuple[NodeKind, ...]
    queues: tuple[Queue, ...]
    cluster: str = "simulated"
    accounts: tuple[str, ...] = ()
    kill_wait_seconds: float = 30.0
    min_job_age_seconds: int = 300
    minute_seconds: float = 60.0


SMALL = Site(
    nodes=(NodeKind(names="n[1-2]", cpus=8, memory_mib=4000, gpus=(Gpus(type="tesla", count=4),)),),
    queues=(
        Queue(
            name="main",
            nodes="n[1-2]",
            default=True,
            max_time_minutes=1440,
            default_time_minutes=10,
        ),
        Queue(name="long", nodes="n[1-2]"),
    ),
    kill_wait_seconds=2.0,
)
"""A site for a laptop: two nodes with four GPUs each and two queues."""


def read(path: Path) -> Site:
    """A site from a TOML file, or from one in JSON whose name ends in `.json`.

    Raises:
        SettingsError: unreadable, unknown or missing keys, values of another type.
    """
    if path.suffix != ".json":
        return load(path, Site)
    try:
        return msgspec.json.decode(path.read_bytes(), type=Site)
    except (OSError, msgspec.DecodeError) as error:
        raise SettingsError(f"{path}: {error}") from error


def write(site: Site, path: Path) -> None:
    """Write a site as JSON, for `read`."""
    path.write_bytes(msgspec.json.encode(site))
