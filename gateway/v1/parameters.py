"""Query parameters and headers of `/v1` as values; what is not known is refused, not ignored."""

import hashlib
import re
from collections.abc import Collection, Mapping
from datetime import datetime

import msgspec
from aiohttp import web

from gateway.jobs import State
from gateway.selection import Selection
from headgate.problems import Fault, Invalid

MAX_KEY = 255
MAX_PAGE = 1000
MAX_LABELS = 16
"""That a job may have, and that may be asked for at a time."""
SELECTION = ("state", "cluster", "queue", "label", "created_after", "created_before")
MAX_WAIT = 60
"""Seconds that a `Prefer: wait` is kept at the most: proxies give up soon after."""
_WAIT = re.compile(r"wait\s*=\s*\"?(\d{1,9})\"?", re.IGNORECASE)


def check_names(request: web.Request, known: Collection[str]) -> None:
    """Refuse parameters that this route does not have: a misspelt filter would show everything.

    Raises:
        Invalid: naming each.
    """
    faults = [
        Fault(f"/{name[:64]}", "There is no such parameter.")
        for name in dict.fromkeys(request.query)
        if name not in known
    ]
    if faults:
        words = ", ".join(known) or "none"
        sentence = f"There is a query parameter that is not known here; there are: {words}."
        raise Invalid(sentence, code="unknown_parameter", faults=faults)
    for name, value in request.query.items():
        if "\0" in value:
            raise _invalid(name, f"{name} has a character that nothing here has.")


def selection(request: web.Request) -> Selection:
    """The jobs that the parameters of `SELECTION` mean."""
    query = request.query
    return Selection(
        states=tuple({_state(word): None for word in query.getall("state", [])}),
        cluster=query.get("cluster"),
        queue=query.get("queue"),
        labels=tuple(_label(word) for word in _at_most(query.getall("label", []), MAX_LABELS)),
        created_after=_moment(request, "created_after"),
        created_before=_moment(request, "created_before"),
    )


def number(request: web.Request, name: str, default: int, low: int, high: int) -> int:
    """A whole number within bounds."""
    text = request.query.get(name)
    if text is None:
        return default
    if not text.isascii() or not text.isdigit() or not low <= int(text[:20]) <= high:
        raise _invalid(name, f"{name} must be a number from {low} to {high}.")
    return int(text)


def idempotency_key(request: web.Request) -> str:
    """The caller's key; empty: none."""
    key = request.headers.get("Idempotency-Key", "")
    if not key and "Idempotency-Key" not in request.headers:
        return ""
    if not 1 <= len(key) <= MAX_KEY or not key.isprintable():
        raise Invalid(f"An Idempotency-Key has 1 to {MAX_KEY} printable characters.")
    return key


def wait_seconds(request: web.Request) -> int:
    """For how long the caller would rather wait than ask again (RFC 7240, section 4.3)."""
    found = _WAIT.search(", ".join(request.headers.getall("Prefer", [])))
    return min(int(found[1]), MAX_WAIT) if found else 0


def tagged(
    request: web.Request,
    document: object,
    *,
    etag: str = "",
    headers: Mapping[str, str] | None = None,
) -> web.Response:
    """A document with a strong ETag; 304 where the caller has it (RFC 9110, section 13.1.2)."""
    body = msgspec.json.encode(document)
    etag = etag or f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    given = {tag.strip() for tag in request.headers.get("If-None-Match", "").split(",")}
    together = {**(headers or {}), "ETag": etag, "Cache-Control": "private, no-cache"}
    if given & {etag, f"W/{etag}", "*"}:
        return web.Response(status=304, headers=together)
    return web.Response(body=body, content_type="application/json", headers=together)


def _state(word: str) -> State:
    if word not in set(State):
        raise _invalid("state", f"There are these states: {', '.join(State)}.")
    return State(word)


def _at_most(words: list[str], most: int) -> list[str]:
    if len(words) > most:
        raise _invalid("label", f"At most {most} labels can be asked for at a time.")
    return words


def _label(word: str) -> tuple[str, str | None]:
    name, equals, value = word.partition("=")
    if not name:
        raise _invalid("label", "A label is asked for as name or name=value.")
    return name, value if equals else None


def _moment(request: web.Request, name: str) -> datetime | None:
    text = request.query.get(name)
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise _invalid(name, f"{name} must be a time such as 2026-11-21T13:14:54Z (RFC 3339).")
    return moment


def _invalid(name: str, sentence: str) -> Invalid:
    return Invalid(sentence, code="invalid_parameter", faults=[Fault(f"/{name}", sentence)])
