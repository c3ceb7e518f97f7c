"""Health and numbers: whether the gateway is ready, for anybody; the rest, for its operators.

The details name databases, hosts and paths. Behind a proxy every caller comes from the loopback,
so that no address tells an operator from a stranger: a listener of its own does.
"""

from collections.abc import Mapping

from aiohttp import web
from aiohttp.typedefs import Handler

from headgate.web import Check, add_health, create_app


def add_public_health(app: web.Application, checks: Mapping[str, Check]) -> None:
    """`/livez` and `/readyz`; `?verbose` says no more than whether it is ready."""

    async def gateway() -> str:
        faults = [await check() for check in checks.values()]
        return "not ready" if any(faults) else ""

    add_health(app, {"gateway": gateway})


def operations(checks: Mapping[str, Check], metrics: Handler | None = None) -> web.Application:
    """The operators' own listener: `/metrics`; `/readyz?verbose` names each fault."""
    app = create_app()
    add_health(app, checks)
    if metrics is not None:
        app.router.add_get("/metrics", metrics)
    return app
