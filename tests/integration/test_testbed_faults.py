"""Disturbing a site on purpose: components die, stand still and come back."""

import signal

import pytest

from headgate.command import CommandError
from testbed.components import State
from testbed.control import ControlError
from testbed.site import Site

pytestmark = pytest.mark.site


async def test_slurmctld_can_be_killed_and_started_again(site: Site, user: str):
    """After a kill -9 nobody answers; after a start the nodes are there and jobs run."""
    await site.signal("slurmctld", signal.SIGKILL)
    assert (await site.status())["slurmctld"].state is State.ENDED
    with pytest.raises(CommandError, match="scontrol"):
        await site.slurm("scontrol", "ping")
    await site.start("slurmctld")
    assert (await site.slurm("srun", "id", "-un", user=user)).strip() == user


async def test_sshd_can_be_stopped_and_started(site: Site):
    """A stopped sshd is gone; a started one is ready on the same port."""
    await site.stop("sshd")
    assert (await site.status())["sshd"].state is State.STOPPED
    await site.start("sshd")
    assert (await site.status())["sshd"].state is State.READY


async def test_what_is_not_there_is_refused(site: Site):
    """An unknown component, and one that runs already, are errors that say so."""
    with pytest.raises(ControlError, match="no component 'slurmctl'"):
        await site.start("slurmctl")
    with pytest.raises(ControlError, match="sshd runs already"):
        await site.start("sshd")
