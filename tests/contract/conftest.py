"""The clusters of the contract suites: a simulated one, and a real one of their own."""

from collections.abc import AsyncIterator

import pytest

from testbed.launch import Options, site
from tests.contract.slurm_subjects import Real, Simulated, Subject


@pytest.fixture(scope="session")
async def simulated(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Simulated]:
    """One simulated cluster for the whole suite."""
    subject = Simulated(tmp_path_factory.mktemp("simulated"))
    await subject.controller_up()
    yield subject
    await subject.down()


@pytest.fixture(scope="session")
async def real() -> AsyncIterator[Real]:
    """A real site of its own: this suite kills its daemons."""
    async with site("slurm-contract", options=Options(services=frozenset())) as running:
        argv = ("useradd", "--create-home", "--uid", "29800", "-p", "*", "contract")
        (await running.exec(argv)).checked()
        yield Real(running, await running.entry(()))


@pytest.fixture(params=["simulated", pytest.param("real", marks=pytest.mark.site)])
def cluster(request: pytest.FixtureRequest) -> Subject:
    """Each cluster in turn."""
    subject: Subject = request.getfixturevalue(request.param)
    return subject
