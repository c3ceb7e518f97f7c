"""What the tests of sender and tracker share."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway import tables
from gateway.store import Store, create_engine
from tests.unit.gateway.edge_world import Edge
from tests.unit.gateway.recovery_world import World


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """A fresh one."""
    url = f"sqlite+aiosqlite:///{tmp_path}/gateway.db"
    engine = create_engine(url)
    async with engine.begin() as connection:
        await connection.run_sync(tables.metadata.create_all)
    await engine.dispose()
    store = Store(url)
    made = World(store)
    yield made
    await made.tracker.close()
    await store.close()


@pytest.fixture
async def edge(world: World) -> Edge:
    """The interface in front of it."""
    return Edge(world)
