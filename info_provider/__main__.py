"""`headgate-info`: read the cluster once, describe it in GLUE 2.1, publish it (cron, timer)."""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

from headgate import logs
from headgate.clock import SystemClock
from headgate.settings import EX_CONFIG, SettingsError, command_environment, show
from headgate.slurm.cli import CommandReader, command_variables
from headgate.slurm.memory.reader import MemoryReader
from headgate.slurm.model import ClusterReader
from info_provider.collect import CannotPublish, collect
from info_provider.publish import CannotWrite, to_file, to_stdout
from info_provider.render import glue2_json
from info_provider.settings import InfoSettings, SlurmSettings, read
from info_provider.site import describe

CONFIG = Path("/etc/headgate/info.toml")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns 0, 1 (nothing was published) or 78 (the settings are wrong)."""
    arguments = _parser().parse_args(argv)
    logs.configure(arguments.log_level)
    try:
        settings = read(arguments.config)
        if arguments.verb == "check-config":
            sys.stdout.write(show(settings) + "\n")
            return 0
        output = arguments.output or settings.publish.output
        asyncio.run(_publish(settings, Path(output) if output else None))
    except SettingsError as error:
        return _failed(str(error), EX_CONFIG)
    except (CannotPublish, CannotWrite) as error:
        return _failed(f"nothing published: {error}", 1)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="headgate-info", description=__doc__)
    parser.add_argument(
        "--config", type=Path, default=CONFIG, metavar="FILE", help=f"settings, TOML; else {CONFIG}"
    )
    parser.add_argument("--log-level", default="warning", choices=("debug", "info", "warning"))
    verbs = parser.add_subparsers(dest="verb", required=True)
    run = verbs.add_parser("run", help="read the cluster and publish once")
    run.add_argument(
        "--output", metavar="FILE", help="replace FILE; without it, the configured one"
    )
    verbs.add_parser("check-config", help="print what was understood")
    for verb in verbs.choices.values():
        # Behind the verb, too; without a default, which would undo what stands before it.
        verb.add_argument("--config", type=Path, default=argparse.SUPPRESS, metavar="FILE")
    return parser


async def _publish(settings: InfoSettings, output: Path | None) -> None:
    """Collect, describe, render, hand over; until the last step nothing has changed.

    Raises:
        CannotPublish: no complete answer. CannotWrite: no place to put it.
    """
    try:
        async with asyncio.timeout(settings.publish.deadline):
            snapshot = await collect(
                _reader(settings.slurm),
                SystemClock(),
                expected_cluster=settings.slurm.cluster,
                endpoints=settings.endpoint,
            )
    except TimeoutError as error:
        raise CannotPublish(f"not done within {settings.publish.deadline:g} s") from error
    document = glue2_json(
        describe(snapshot, settings), accelerator_names=settings.publish.accelerator_names
    )
    if output is None:
        to_stdout(document)
    else:
        to_file(document, output)


def _reader(slurm: SlurmSettings) -> ClusterReader:
    if slurm.memory is not None:
        return MemoryReader(Path(slurm.memory.socket), timeout=slurm.timeout)
    environment = command_variables(command_environment(), slurm.conf)
    return CommandReader(env=environment, timeout=slurm.timeout)


def _failed(sentence: str, status: int) -> int:
    sys.stderr.write(f"headgate-info: {sentence}\n")
    return status


if __name__ == "__main__":
    sys.exit(main())
