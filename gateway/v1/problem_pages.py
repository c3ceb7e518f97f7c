"""Where problem types lead: a page for each code, and the page of them all for the docs.

`python -m gateway.v1.problem_pages > docs/integrators/problems.md` writes the latter.
"""

import html
import sys
from dataclasses import dataclass
from typing import Any

import msgspec
import structlog
from aiohttp import web
from aiohttp.typedefs import Handler

from gateway.codes import CODES, Code
from headgate.problems import NotFound
from headgate.web import PROBLEM_TYPE

log = structlog.get_logger(__name__)

PATH = "/problems"


@dataclass(frozen=True, slots=True)
class ProblemPages:
    """The pages of one gateway; `url` is its address as people know it."""

    url: str

    def add_to(self, app: web.Application) -> None:
        """Register the pages, and make the types of all problems lead to them."""
        app.router.add_get(PATH, self._show_all)
        app.router.add_get(PATH + "/{code}", self._show)
        # Behind the request's id, before what renders problems.
        app.middlewares.insert(1, self._link)

    def linked(self, document: dict[str, Any]) -> dict[str, Any]:
        """A problem whose type leads to its page, under the code's own title."""
        code = CODES.get(str(document.get("code")))
        if code is None:
            log.error("problem_without_page", code=document.get("code"))
            return document
        address = f"{self.url.rstrip('/')}{PATH}/{code.code}"
        return {**document, "type": address, "title": code.title}

    @property
    def _link(self) -> Any:  # noqa: ANN401 - aiohttp's own type of what `middleware` returns
        @web.middleware
        async def link(request: web.Request, handler: Handler) -> web.StreamResponse:
            response = await handler(request)
            if isinstance(response, web.Response) and response.content_type == PROBLEM_TYPE:
                document = msgspec.json.decode(response.text or "{}")
                response.body = msgspec.json.encode(self.linked(document))
                response.content_type = PROBLEM_TYPE
            return response

        return link

    async def _show_all(self, _: web.Request) -> web.Response:
        rows = "".join(_section(code) for code in CODES.values())
        return _page("Problems", f"<h1>Problems</h1>{rows}")

    async def _show(self, request: web.Request) -> web.Response:
        code = CODES.get(request.match_info["code"])
        if code is None:
            raise NotFound("There is no such problem.")
        return _page(code.title, _section(code) + f'<p><a href="{PATH}">All problems</a></p>')


def markdown() -> str:
    """All codes as a page of the docs."""
    lines = [
        "# Problems",
        "",
        "Every refusal is `application/problem+json` (RFC 9457). `code` is stable; `type` is the",
        "address of a page with what is below; `retryable` says whether the same request may",
        "succeed later. This page is made from `gateway/codes.py`; do not edit it by hand:",
        "`python -m gateway.v1.problem_pages > docs/integrators/problems.md`.",
        "",
        "| status | `code` | meaning | what to do | `retryable` |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| {code.status} | `{code.code}` | {code.meaning} | {code.remedy} | "
        f"{'yes' if code.retryable else 'no'} |"
        for code in CODES.values()
    ]
    return "\n".join(lines) + "\n"


def _section(code: Code) -> str:
    again = "It may succeed later." if code.retryable else "The same request will not succeed."
    return (
        f"<h2>{html.escape(code.title)}</h2><p><code>{code.code}</code>, status {code.status}</p>"
        f"<p>{html.escape(code.meaning)}</p><p>{html.escape(code.remedy)} {again}</p>"
    )


def _page(title: str, content: str) -> web.Response:
    return html_page(
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        f"<title>{html.escape(title)}</title>{content}</html>\n"
    )


def html_page(text: str) -> web.Response:
    """A page that may load and run nothing."""
    headers = {
        "Content-Security-Policy": "default-src 'none'",
        "X-Content-Type-Options": "nosniff",
    }
    return web.Response(text=text, content_type="text/html", headers=headers)


if __name__ == "__main__":
    sys.stdout.write(markdown())
