"""What the gateway says of its health, and to whom."""

from aiohttp.test_utils import TestClient, TestServer

from gateway.v1.health import add_public_health, operations
from headgate.web import create_app

FAULT = "sqlite: unable to open /var/lib/headgate-gateway/gateway.db"


async def missing() -> str:
    """A check that fails, with words for operators."""
    return FAULT


async def fine() -> str:
    """A check that does not."""
    return ""


async def test_strangers_hear_whether_it_is_ready_and_nothing_else():
    """`?verbose` names no dependency, no path and no reason on the public listener."""
    app = create_app()
    add_public_health(app, {"database": missing, "changes": fine})
    async with TestClient(TestServer(app)) as client:
        plain = await client.get("/readyz")
        verbose = await client.get("/readyz?verbose")
        assert (plain.status, verbose.status) == (503, 503)
        said = await plain.text() + await verbose.text()
        assert "not ready" in said
        assert "database" not in said
        assert "sqlite" not in said
        assert (await client.get("/livez")).status == 200


async def test_operators_hear_what_is_missing():
    """The operators' listener names each check and its fault."""
    async with TestClient(TestServer(operations({"database": missing, "changes": fine}))) as client:
        answer = await client.get("/readyz?verbose")
        assert answer.status == 503
        assert (await answer.text()).splitlines() == [f"database: {FAULT}", "changes: ok"]
