"""`make demo`: the story on a real site or the embedded one; on a terminal the site stays up."""

import argparse
import asyncio
import contextlib
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

from headgate import logs
from headgate.command import CommandError
from testbed import embedded
from testbed.control import ControlError
from testbed.instances import InstanceError
from testbed.launch import site
from testbed.narrator import Narrator, StoryError, on_a_terminal
from testbed.story import IMAGE, Stage, tell

Staged = Callable[[Path], contextlib.AbstractAsyncContextManager[Stage]]
"""A site to tell the story on, with a home directory for alice."""


def main() -> int:
    """Tell the story; 0: all of it was true."""
    parser = argparse.ArgumentParser(prog="python -m testbed.demo", description=__doc__)
    parser.add_argument("--site", choices=["real", "embedded"], default="real")
    arguments = parser.parse_args()
    logs.configure("warning")
    stage = _real if arguments.site == "real" else _embedded
    try:
        asyncio.run(_demo(stage))
    except StoryError as error:
        sys.stderr.write(f"\ndemo: this did not happen as it should: {error}\n")
        return 1
    except (InstanceError, CommandError, ControlError) as error:
        sys.stderr.write(f"\ndemo: {error}\n")
        return 1
    except (KeyboardInterrupt, asyncio.CancelledError):
        return 130
    return 0


async def _demo(staged: Staged) -> None:
    story = asyncio.current_task()
    if story is not None:
        # A closed terminal and a polite kill end it as Ctrl-C does: nothing is left behind.
        for number in (signal.SIGHUP, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, story.cancel)
    with tempfile.TemporaryDirectory(prefix="headgate-demo-") as home:
        async with staged(Path(home)) as stage:
            await tell(stage)
            stage.narrator.say("\nAll of this was real, and has happened as it was told.")
            if on_a_terminal():
                _invite(stage)
                await asyncio.Event().wait()


def _invite(stage: Stage) -> None:
    """What to try while the site is up."""
    program = Path(sys.executable).parent / "headgate"
    image = f"--image {IMAGE} " if stage.ssh is not None else ""
    stage.narrator.say(f"""
The site stays up until Ctrl-C. In another terminal:

  {program} login {stage.gateway}      # as alice, bob or carol; dave has no account
  {program} job submit {image}--gpus 1 --wait -- sh -c 'id; echo GPU $CUDA_VISIBLE_DEVICES'
  curl {stage.gateway}/v1
""")


@contextlib.asynccontextmanager
async def _real(home: Path) -> AsyncIterator[Stage]:
    sys.stdout.write("Bringing up a whole HPC site: Slurm, MariaDB, sshd, an image registry …\n")
    sys.stdout.flush()
    async with site() as running:
        at = running.addresses
        narrator = Narrator(str(home), str(Path(sys.executable).parent))
        narrator.say(
            f"  issuer            {at.issuer}\n"
            f"  gateway           {at.gateway}\n"
            f"  token_translator  {at.token_translator}\n"
            f"  account_importer  {at.account_importer}\n"
            f"  login node        ssh -p {at.ssh['port']} 127.0.0.1\n"
            f"  Slurm             {at.cluster}: 2 nodes, 8 GPUs"
        )

        async def inside(argv: Sequence[str]) -> Sequence[str]:
            program = f"{at.venv}/bin/{argv[0]}" if argv[0].startswith("headgate") else argv[0]
            return await running.entry((program, *argv[1:]))

        yield Stage(
            narrator=narrator,
            gateway=str(at.gateway),
            home=home,
            inside=inside,
            settings=lambda service: running.path("conf", f"{service}.toml"),
            ssh=str(at.ssh["host"]),
        )


@contextlib.asynccontextmanager
async def _embedded(home: Path) -> AsyncIterator[Stage]:
    async with embedded.embedded() as running:
        at = running.addresses
        narrator = Narrator(str(home), str(Path(sys.executable).parent))
        narrator.say(embedded.SAID_AT_START.format(user=running.user))
        narrator.say(
            f"  issuer            {at.issuer}\n"
            f"  gateway           {at.gateway}\n"
            f"  token_translator  {at.token_translator}\n"
            f"  account_importer  {at.account_importer}\n"
            f"  Slurm             simulated: 2 nodes, 8 GPUs"
        )

        async def inside(argv: Sequence[str]) -> Sequence[str]:
            return running.command(*argv)

        yield Stage(
            narrator=narrator,
            gateway=at.gateway,
            home=home,
            inside=inside,
            settings=lambda service: running.path("conf", f"{service}.toml"),
            ssh=None,
        )


if __name__ == "__main__":
    sys.exit(main())
