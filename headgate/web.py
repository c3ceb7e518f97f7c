"""The HTTP manners all services share: request ids, problems, validated bodies, health."""

import asyncio
import itertools
import re
import secrets
from collections.abc import Awaitable, Callable, Hashable, Mapping
from functools import lru_cache
from typing import Any, TypeVar, cast

import jsonschema
import msgspec
import structlog
from aiohttp import web
from aiohttp.typedefs import Handler

from headgate.problems import (
    MAX_FAULTS,
    Fault,
    Internal,
    Invalid,
    Problem,
    TooLarge,
    TooSlow,
    Unauthenticated,
)

log = structlog.get_logger(__name__)

T = TypeVar("T")

REQUEST_ID = web.RequestKey("request_id", str)
PROBLEM_TYPE = "application/problem+json"
MAX_BODY_BYTES = 2 * 1024 * 1024
BODY_SECONDS = 30.0
MAX_HEADER_BYTES = 64 * 1024
"""Tokens of many groups are longer than aiohttp's 8 KiB."""
IDLE_SECONDS = 75.0
"""A connection without a whole request is closed after that; nginx keeps its own for 60 s."""
CONNECTION: Mapping[str, Any] = {
    "access_log": None,  # _request_ids writes the one line per request
    "max_field_size": MAX_HEADER_BYTES,
    "keepalive_timeout": IDLE_SECONDS,
}
"""How aiohttp shall treat connections."""

Check = Callable[[], Awaitable[str]]
"""A readiness check: an empty string, or a sentence that says what is missing."""


def create_app(*, max_body_bytes: int = MAX_BODY_BYTES) -> web.Application:
    """An application with the shared middlewares; routes are the caller's."""
    return web.Application(
        middlewares=[_request_ids, _problems],
        client_max_size=max_body_bytes,
        handler_args=CONNECTION,
    )


def add_health(app: web.Application, checks: Mapping[str, Check]) -> None:
    """`/livez` says the process answers; `/readyz[?verbose]` asks what it depends on."""

    async def livez(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(request: web.Request) -> web.Response:
        faults = {name: await check() for name, check in checks.items()}
        lines = [f"{name}: {fault or 'ok'}" for name, fault in faults.items()]
        ready = not any(faults.values())
        text = "\n".join(lines) if "verbose" in request.query else ("ok" if ready else "not ready")
        return web.Response(text=text + "\n", status=200 if ready else 503)

    app.router.add_get("/livez", livez)
    app.router.add_get("/readyz", readyz)


@web.middleware
async def _request_ids(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Give each request an id (the caller's if it is a sane one) and the log one line."""
    given = request.headers.get("X-Request-Id", "")
    sane = re.fullmatch(r"[A-Za-z0-9._-]{1,64}", given)
    request_id = given if sane else secrets.token_hex(8)
    request[REQUEST_ID] = request_id
    with structlog.contextvars.bound_contextvars(request_id=request_id):
        response = await handler(request)
        log.info("request", method=request.method, path=request.path, status=response.status)
    if not response.prepared:
        response.headers["X-Request-Id"] = request_id
    return response


@web.middleware
async def _problems(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Render every failure as an RFC 9457 document; what is not expected is a bug, and says so."""
    try:
        return await handler(request)
    except Problem as problem:
        if problem.__cause__ is not None:
            log.info("refused", code=problem.stable_code, cause=repr(problem.__cause__))
        return _render(request, problem)
    except web.HTTPException as error:
        return _render_http(request, error)
    except Exception:
        log.exception("bug", method=request.method, path=request.path)
        return _render(request, Internal("Something went wrong on our side."))


def _render(request: web.Request, problem: Problem) -> web.Response:
    headers = problem.response_headers()
    if isinstance(problem, Unauthenticated):
        headers = {"WWW-Authenticate": 'Bearer error="invalid_token"', **headers}
    return web.Response(
        body=msgspec.json.encode(problem.document(request[REQUEST_ID])),
        status=problem.status,
        content_type=PROBLEM_TYPE,
        headers=headers,
    )


def _render_http(request: web.Request, error: web.HTTPException) -> web.Response:
    """What aiohttp itself refuses (no route, wrong method, body too large), as a problem."""
    document = {
        "type": "about:blank",
        "title": error.reason,
        "status": error.status,
        "detail": f"{request.method} {request.path}: {error.reason}.",
        "code": re.sub(r"[^a-z]+", "_", error.reason.lower()).strip("_"),
        "retryable": False,
        "request_id": request[REQUEST_ID],
    }
    headers = {"Allow": error.headers["Allow"]} if "Allow" in error.headers else {}
    return web.Response(
        body=msgspec.json.encode(document),
        status=error.status,
        content_type=PROBLEM_TYPE,
        headers=headers,
    )


def bearer_token(request: web.Request) -> str:
    """The token of `Authorization: Bearer` (RFC 6750, section 2.1); nowhere else is looked.

    Raises:
        Unauthenticated: there is none.
    """
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise Unauthenticated(
            "A bearer token is needed: send it in the Authorization header.",
            code="missing_token",
            headers={"WWW-Authenticate": "Bearer"},
        )
    return token.strip()


async def json_body(request: web.Request, kind: type[T]) -> T:
    """The request's JSON body as `kind`, a msgspec Struct that forbids unknown fields.

    All faults are reported at once, each with its JSON pointer: the JSON Schema (2020-12) derived
    from the type finds them, the type converts.

    Raises:
        Invalid: not JSON, or not what the type asks for. TooLarge: over the application's limit.
        TooSlow: it does not come within `BODY_SECONDS`.
    """
    try:
        async with asyncio.timeout(BODY_SECONDS):
            body = await request.read()
    except web.HTTPRequestEntityTooLarge as error:
        raise TooLarge("The body is larger than this interface reads.") from error
    except TimeoutError as error:
        raise TooSlow(f"The body did not come within {BODY_SECONDS:g} s.") from error
    except (web.RequestPayloadError, ConnectionError):
        # Without the cause: it repeats what was sent.
        raise Invalid("The body is cut short or not encoded as it says.", code="body") from None
    try:
        document = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Invalid(f"The body is not JSON: {error}.", code="not_json") from error
    return convert(document, kind)


def convert(document: object, kind: type[T]) -> T:
    """A decoded JSON document as `kind`; raises `Invalid` with every fault in it."""
    found = (
        Fault(pointer, sentence)
        for error in _validator(cast("Hashable", kind)).iter_errors(document)
        for pointer, sentence in _explain(error)
    )
    faults = sorted(set(itertools.islice(found, MAX_FAULTS)), key=lambda fault: fault.pointer)
    if faults:
        raise Invalid(_summary(faults), code="invalid_body", faults=faults)
    try:
        return msgspec.convert(document, kind)
    except msgspec.ValidationError as error:
        raise Invalid(f"The body is not valid: {error}.", code="invalid_body") from error


def _summary(faults: list[Fault]) -> str:
    first = faults[0]
    more = f" ({len(faults) - 1} more in errors)" if len(faults) > 1 else ""
    return f"{first.pointer or 'The body'}: {first.detail}{more}"


@lru_cache(maxsize=64)
def _validator(kind: Hashable) -> jsonschema.Draft202012Validator:
    # Through JSON once: the derived schema holds tuples where jsonschema expects arrays.
    schema = msgspec.json.decode(msgspec.json.encode(msgspec.json.schema(kind)))
    return jsonschema.Draft202012Validator(schema)


def _explain(error: jsonschema.ValidationError) -> list[tuple[str, str]]:
    """Pointers and sentences for one schema violation, in the caller's terms, input not echoed."""
    here = "".join(f"/{_escape(part)}" for part in error.absolute_path)
    if error.validator == "additionalProperties" and isinstance(error.instance, dict):
        known = error.schema.get("properties", {}) if isinstance(error.schema, dict) else {}
        return [
            (f"{here}/{_escape(name)}", "There is no such field.")
            for name in error.instance
            if name not in known
        ]
    value: Any = error.validator_value
    if error.validator == "required" and isinstance(error.instance, dict):
        return [
            (f"{here}/{_escape(name)}", "This field is required.")
            for name in value
            if name not in error.instance
        ]
    if error.validator == "anyOf" and error.context:
        # An optional value: what is wrong with it is what its own type says.
        inner = [e for e in error.context if e.validator != "type" or e.validator_value != "null"]
        return [explained for e in inner[:1] for explained in _explain(e)]
    return [(here, _SENTENCES.get(str(error.validator), _other)(error))]


def _escape(part: object) -> str:
    return str(part).replace("~", "~0").replace("/", "~1")


def _other(error: jsonschema.ValidationError) -> str:
    return f"This breaks the rule {error.validator}: {error.validator_value}."


_SENTENCES: Mapping[str, Callable[[jsonschema.ValidationError], str]] = {
    "type": lambda e: f"This must be of type {e.validator_value}.",
    "enum": lambda e: f"This must be one of {e.validator_value}.",
    "minimum": lambda e: f"This must be at least {e.validator_value}.",
    "maximum": lambda e: f"This must be at most {e.validator_value}.",
    "minLength": lambda e: f"This must have at least {e.validator_value} characters.",
    "maxLength": lambda e: f"This must have at most {e.validator_value} characters.",
    "pattern": lambda e: f"This must match {e.validator_value}.",
    "maxItems": lambda e: f"This must have at most {e.validator_value} items.",
}


def json_response(
    value: object, *, status: int = 200, headers: Mapping[str, str] | None = None
) -> web.Response:
    """A value msgspec can encode, as `application/json`."""
    return web.Response(
        body=msgspec.json.encode(value),
        status=status,
        content_type="application/json",
        headers=headers,
    )
