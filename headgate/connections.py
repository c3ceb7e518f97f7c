"""How aiohttp serves connections here: what is not HTTP is neither logged nor sent back."""

from typing import Any

import msgspec
import structlog
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from headgate.problems import Internal, Invalid, Problem
from headgate.web import CONNECTION, PROBLEM_TYPE

log = structlog.get_logger(__name__)


class QuietRunner(web.AppRunner):
    """An `AppRunner` whose connections answer what no application sees with a problem, too."""

    async def _make_server(self) -> web.Server:
        server = await super()._make_server()
        return _Server(server.request_handler, request_factory=server.request_factory)


class _Server(web.Server):
    def __call__(self) -> web.RequestHandler:
        return Connection(self, loop=self._loop, **CONNECTION)


class Connection(web.RequestHandler):
    """aiohttp's own words about a malformed request repeat it, and with it somebody's token."""

    __slots__ = ()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """The answer to what could not be parsed, or to what failed outside all handlers."""
        del message
        problem: Problem = Internal("Something went wrong on our side.")
        if isinstance(exc, HttpProcessingError):
            problem = Invalid("This is not an HTTP request as it should be.", code="malformed")
            log.info("malformed_request", error=type(exc).__name__)
        else:
            log.error("connection_failed", status=status, exc_info=exc)
        if request.writer.output_size > 0:
            raise ConnectionError("an answer was under way already")
        document: dict[str, Any] = problem.document()
        response = web.Response(
            body=msgspec.json.encode(document), status=problem.status, content_type=PROBLEM_TYPE
        )
        response.force_close()
        return response
