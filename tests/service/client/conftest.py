"""Fixtures: a fake gateway, and a clock that never makes anybody wait."""

from collections.abc import AsyncIterator

import pytest

from tests.service.client.fake_gateway import FakeGateway, running
from tests.service.client.hurried_clock import HurriedClock


@pytest.fixture
def clock() -> HurriedClock:
    """A clock that hurries."""
    return HurriedClock()


@pytest.fixture
async def gateway() -> AsyncIterator[FakeGateway]:
    """A listening fake gateway."""
    async with running() as listening:
        yield listening
