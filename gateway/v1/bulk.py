"""Many jobs in one request: submitted, looked at, cancelled; each with a result of its own."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import msgspec
from aiohttp import web

from gateway.jobs import Job, JobSpec, Labels, State
from gateway.selection import Selection
from gateway.submission import Jobs
from gateway.v1.documents import job_document, state_document
from gateway.v1.parameters import MAX_KEY
from gateway.v1.problem_pages import ProblemPages
from headgate.identity import Principal
from headgate.problems import Invalid, Problem
from headgate.web import REQUEST_ID, convert, json_body, json_response

MAX_BATCH = 1000
AT_ONCE = 16
"""Items of one request under way at a time: others' requests come in between."""

Authenticate = Callable[[web.Request], Awaitable[tuple[Principal, str]]]
Ids = Annotated[
    tuple[Annotated[str, msgspec.Meta(pattern=r"^[!-~]{1,64}\Z")], ...],
    msgspec.Meta(min_length=1, max_length=MAX_BATCH),
]


class BatchItem(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One job of a batch: its specification, and its key as `Idempotency-Key` has it."""

    spec: dict[str, Any]
    idempotency_key: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_KEY)] | None = None


class Batch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Jobs to be submitted, at most a thousand."""

    jobs: Annotated[tuple[BatchItem, ...], msgspec.Meta(min_length=1, max_length=MAX_BATCH)]


class Asked(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Jobs by their ids."""

    ids: Ids


class Cancelled(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Jobs by their ids, or all that go on and carry these labels."""

    ids: Ids | None = None
    labels: Annotated[Labels, msgspec.Meta(min_length=1)] | None = None


class _RawItem(msgspec.Struct, frozen=True):
    spec: msgspec.Raw


class _RawBatch(msgspec.Struct, frozen=True):
    jobs: tuple[_RawItem, ...]


@dataclass(frozen=True, slots=True)
class BulkRoutes:
    """The handlers; `authenticate` makes a request's principal and token."""

    jobs: Jobs
    authenticate: Authenticate
    pages: ProblemPages

    def add_to(self, app: web.Application) -> None:
        """Register them."""
        app.router.add_post("/v1/jobs/batch", self.submit)
        app.router.add_post("/v1/jobs/status", self.status)
        app.router.add_post("/v1/jobs/cancel", self.cancel)

    async def submit(self, request: web.Request) -> web.Response:
        """Admit each: its status and job, or its status and problem, in the order they came."""
        principal, token = await self.authenticate(request)
        batch = await json_body(request, Batch)
        # A key stands for the bytes of its specification, as it does for a request of its own.
        raw = msgspec.json.decode(await request.read(), type=_RawBatch).jobs

        async def one(item: BatchItem, spec: bytes) -> dict[str, Any]:
            try:
                key = item.idempotency_key or ""
                if not key.isprintable():
                    raise Invalid("An idempotency_key has printable characters only.")
                job, _ = await self.jobs.submit(
                    principal, token, convert(item.spec, JobSpec), key, spec
                )
            except Problem as problem:
                document = self.pages.linked(problem.document(request[REQUEST_ID]))
                return {"status": problem.status.value, "problem": document}
            return {"status": 201, "job": job_document(job)}

        items = zip(batch.jobs, raw, strict=True)
        results = await _each([partial(one, item, bytes(found.spec)) for item, found in items])
        return json_response({"results": results})

    async def status(self, request: web.Request) -> web.Response:
        """State and end of each, and which are not the caller's, or of nobody."""
        principal, _ = await self.authenticate(request)
        asked = await json_body(request, Asked)
        found = await self._found(principal, asked.ids)
        return json_response(_document(asked.ids, found))

    async def cancel(self, request: web.Request) -> web.Response:
        """Ask for the end of each; `more`: there were more than one request takes."""
        principal, _ = await self.authenticate(request)
        asked = await json_body(request, Cancelled)
        if (asked.ids is None) == (asked.labels is None):
            raise Invalid("Say which jobs: either ids or labels.", code="invalid_body")
        more = False
        if asked.ids is not None:
            found = await self._found(principal, asked.ids)
        else:
            labels = tuple((asked.labels or {}).items())
            going_on = tuple(state for state in State if not state.final)
            selection = Selection(states=going_on, labels=labels, cancel_requested=False)
            jobs, cursor = await self.jobs.page(principal, selection, limit=MAX_BATCH, cursor="")
            found, more = {job.id: job for job in jobs}, bool(cursor)
        ended = await _each([partial(self.jobs.cancel, principal, row) for row in found])
        document = _document(asked.ids or tuple(found), {job.id: job for job in ended})
        return json_response({**document, "more": more}, status=202)

    async def _found(self, principal: Principal, ids: Sequence[str]) -> dict[str, Job]:
        selection = Selection(ids=tuple(dict.fromkeys(ids)))
        jobs, _ = await self.jobs.page(principal, selection, limit=MAX_BATCH, cursor="")
        return {job.id: job for job in jobs}


def _document(ids: Sequence[str], found: dict[str, Job]) -> dict[str, Any]:
    rows = list(dict.fromkeys(ids))
    return {
        "jobs": [state_document(found[row]) for row in rows if row in found],
        "unknown": [row for row in rows if row not in found],
    }


async def _each(works: Sequence[Callable[[], Awaitable[Any]]]) -> list[Any]:
    """What each comes to, in their order."""
    room = asyncio.Semaphore(AT_ONCE)

    async def one(work: Callable[[], Awaitable[Any]]) -> Any:  # noqa: ANN401 - whatever the work gives
        async with room:
            return await work()

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(work)) for work in works]
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from failed
    return [task.result() for task in tasks]
