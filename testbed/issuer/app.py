"""The issuer as an application, and as a context for tests."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from headgate.clock import Clock, SystemClock
from headgate.service import listening
from headgate.web import add_health
from headgate.web import create_app as bare_app
from testbed.issuer import authorize, control, oauth, page, scim
from testbed.issuer.core import Issuer, create_issuer
from testbed.issuer.settings import IssuerSettings


def create_app(issuer: Issuer) -> web.Application:
    """All routes of the issuer; `issuer.url` must be set before the first request."""
    app = bare_app()
    app.middlewares.append(_faults(issuer))
    authorize.add_routes(app, issuer)
    oauth.add_routes(app, issuer)
    page.add_routes(app, issuer)
    scim.add_routes(app, issuer)
    control.add_routes(app, issuer)
    add_health(app, {})
    return app


def _faults(issuer: Issuer) -> Middleware:
    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        return await issuer.misbehave(request) or await handler(request)

    return middleware


@contextlib.asynccontextmanager
async def running(
    settings: IssuerSettings,
    *,
    clock: Clock | None = None,
    control_secret: str = "",
    state: Path | None = None,
) -> AsyncIterator[Issuer]:
    """A listening issuer on the configured loopback port (0: a free one); `.url` is its name.

    Without `control_secret` the control routes refuse everybody.
    """
    issuer = create_issuer(
        settings, clock=clock or SystemClock(), control_secret=control_secret, state=state
    )
    async with listening(create_app(issuer), settings.listen) as address:
        issuer.url = address + "/"
        yield issuer
