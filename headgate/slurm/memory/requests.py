"""From sbatch's options to a `Request`: the options the gateway uses, refused in Slurm's words."""

import re
from collections.abc import Mapping
from pathlib import PurePosixPath

from headgate.slurm.memory.jobs import Request
from headgate.slurm.memory.protocol import Refused
from headgate.slurm.memory.site import Queue, Site
from headgate.slurm.parse.quantities import mebibytes
from headgate.slurm.parse.times import minutes, seconds

_GPUS = re.compile(r"(?:(?P<type>[A-Za-z][\w.-]*):)?(?P<count>\d+)|(?P<only>[A-Za-z][\w.-]*)")
_FAILED = "Batch job submission failed: "
_BAD_GRES = "Invalid generic resource (gres) specification"


def request(
    options: Mapping[str, str], directory: str, site: Site, *, name: str = "sbatch", spread: int = 1
) -> Request:
    """What was asked for, with the site's defaults; options as sbatch(1) has them, long names.

    `name` is the job's without `--job-name`, `spread` the nodes without `--nodes`.

    Raises:
        Refused: a value is not of its form, or names something the site does not have.
    """
    queues = _queues(options, site)
    if options.get("reservation"):
        raise Refused(_FAILED + "Requested reservation is invalid")
    account = options.get("account", "")
    if site.accounts and account not in site.accounts:
        raise Refused(_FAILED + "Invalid account or account/partition combination specified")
    nodes = _number(options, "nodes", 0, '"{}" is not a valid node count')
    per_node = _number(options, "ntasks-per-node", 0)
    tasks = _number(options, "ntasks", max(1, nodes) * max(1, per_node))
    nodes = nodes or (-(-tasks // per_node) if per_node else spread)
    gpus, kind = _gpus(options, nodes)
    folder = str(PurePosixPath(directory) / options.get("chdir", ""))
    memory = _memory(options.get("mem"))
    output = str(PurePosixPath(folder) / options.get("output", "slurm-%j.out"))
    return Request(
        name=options.get("job-name", name),
        partitions=tuple(queue.name for queue in queues),
        account=account,
        time_limit_minutes=_time_limit(options.get("time"), queues[0]),
        node_count=nodes,
        tasks=tasks,
        tasks_per_node=per_node,
        cpus_per_task=_number(options, "cpus-per-task", 1),
        memory_mib=memory or 0,
        whole_memory=memory == 0,
        gpus=gpus,
        gpu_type=kind,
        output=output,
        error=str(PurePosixPath(folder) / options["error"]) if "error" in options else output,
        directory=folder,
        requeue="no-requeue" not in options,
        comment=options.get("comment", ""),
        held="hold" in options,
    )


def _queues(options: Mapping[str, str], site: Site) -> list[Queue]:
    known = {queue.name: queue for queue in site.queues}
    wanted = options.get("partition")
    if not wanted:
        if queue := next((queue for queue in site.queues if queue.default), None):
            return [queue]
        raise Refused(_FAILED + "No partition specified or system default partition")
    if unknown := [name for name in wanted.split(",") if name not in known]:
        raise Refused(
            f"invalid partition specified: {unknown[0]}",
            _FAILED + "Invalid partition name specified",
        )
    return [known[name] for name in wanted.split(",")]


def _number(
    options: Mapping[str, str], key: str, default: int, words: str = "Invalid numeric value"
) -> int:
    text = options.get(key)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        if "{}" in words:
            raise Refused(words.format(text))
        raise Refused(f'{words} "{text}" for --{key}.')
    return int(text)


def _time_limit(text: str | None, queue: Queue) -> int | None:
    if text is None:
        return queue.default_time_minutes or queue.max_time_minutes
    try:
        if seconds(text) == 0:
            return queue.max_time_minutes
        return minutes(text)
    except ValueError as error:
        raise Refused("Invalid --time specification") from error


def _memory(text: str | None) -> int | None:
    try:
        return None if text is None else mebibytes(text)
    except ValueError as error:
        raise Refused("Invalid --mem specification") from error


def _gpus(options: Mapping[str, str], nodes: int) -> tuple[tuple[int, ...], str]:
    """GPUs on each node of the allocation, and their type."""
    wanted = options.get("gpus-per-node", options.get("gres", ""))
    if "gpus-per-node" not in options and wanted:
        prefix, colon, wanted = wanted.partition(":")
        if prefix != "gpu":
            raise Refused(_BAD_GRES)
        wanted = wanted if colon else "1"
    if wanted:
        kind, count = _gpu(wanted)
        return (count,) * nodes, kind
    if "gpus" in options:
        kind, count = _gpu(options["gpus"])
        least, more = divmod(count, nodes)
        return tuple(least + (place < more) for place in range(nodes)), kind
    return (0,) * nodes, ""


def _gpu(text: str) -> tuple[str, int]:
    found = _GPUS.fullmatch(text)
    if found is None:
        raise Refused(_BAD_GRES)
    return found["only"] or found["type"] or "", int(found["count"] or 1)
