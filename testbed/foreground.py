"""`python -m testbed.foreground`: a site with its people's accounts, for as long as this runs."""

import argparse
import asyncio
import signal
import sys

from headgate import logs
from headgate.command import CommandError
from testbed.control import ControlError
from testbed.instances import InstanceError
from testbed.launch import site
from testbed.site import Addresses
from testbed.slurm import GPUS, NODES

_JOB = '{"executable": "/bin/hostname"}'


def main(argv: list[str] | None = None) -> int:
    """Bring the site up and keep it until INT or TERM: 0; 1: it did not come up."""
    parser = argparse.ArgumentParser(prog="python -m testbed.foreground", description=__doc__)
    parser.add_argument("--name", default="main", help="which site, if there are several")
    parser.add_argument(
        "--by-way-of",
        default="",
        metavar="COMMAND",
        help="what people type before a command for it to run here, where that is a container",
    )
    arguments = parser.parse_args(argv)
    logs.configure("warning")
    try:
        asyncio.run(_until_told(arguments.name, arguments.by_way_of))
    except (InstanceError, CommandError, ControlError) as error:
        sys.stderr.write(f"testbed: {error}\n")
        return 1
    return 0


async def _until_told(name: str, by_way_of: str) -> None:
    """INT and TERM end it at any moment, also while the site comes up; nothing is left."""
    told = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        # A container's process 1 has no default action for either.
        asyncio.get_running_loop().add_signal_handler(number, told.set)
    staying = asyncio.create_task(_stay(name, by_way_of))
    asking = asyncio.create_task(told.wait())
    await asyncio.wait({staying, asking}, return_when=asyncio.FIRST_COMPLETED)
    asking.cancel()
    staying.cancel()
    # What went wrong, if anything did; being told to end is not that.
    (outcome,) = await asyncio.gather(staying, return_exceptions=True)
    if isinstance(outcome, Exception):
        raise outcome


async def _stay(name: str, by_way_of: str) -> None:
    _say("Bringing up a whole HPC site: Slurm, MariaDB, sshd, an image registry …")
    async with site(name) as running:
        await running.import_accounts()
        _say(invitation(running.addresses, by_way_of))
        await asyncio.Event().wait()


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def invitation(at: Addresses, by_way_of: str = "") -> str:
    """Where everything is, and what to try first; `by_way_of` goes before what must run here."""
    here = f"{by_way_of} " if by_way_of else ""
    testbed = f"python -m testbed --name {at.name}"
    return f"""
  issuer            {at.issuer}
  gateway           {at.gateway}
  token_translator  {at.token_translator}
  account_importer  {at.account_importer}
  login node        ssh -p {at.ssh["port"]} 127.0.0.1
  Slurm             {at.cluster}: {len(NODES)} nodes, {len(NODES) * GPUS} GPUs
  people            {", ".join(at.users)}

It stays up until it is stopped. In another terminal, as a person:

  {here}headgate login {at.gateway}
  {here}headgate whoami
  {here}headgate job submit --image {at.image} --gpus 1 --time 5m --wait -- id

as a program that has a token:

  TOKEN=$({here}{testbed} token alice)
  curl -H "Authorization: Bearer $TOKEN" -d '{_JOB}' {at.gateway}/v1/jobs

and as the site's administrator:

  {here}{testbed} status
  {here}{testbed} exec -- sacct -a -X
"""


if __name__ == "__main__":
    sys.exit(main())
