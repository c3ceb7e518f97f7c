"""The client: one object per gateway, one coroutine per verb of its interface."""

import re
import uuid
from collections.abc import AsyncIterator, Sequence

import msgspec

from headgate.client.errors import (
    HeadgateError,
    NotFoundError,
    UnexpectedAnswerError,
    WaitTimeoutError,
)
from headgate.client.retry import retry_after
from headgate.client.service import ServiceClient, decode
from headgate.client.transport import Request
from headgate.client.values import Cluster, Job, JobSpec, JobState, Me, Site

OUTPUT_PAGE_BYTES = 1024 * 1024
OUTPUT_LIMIT_BYTES = 64 * 1024 * 1024
NO_OUTPUT = "no_output"
"""The code of a problem: the job is known, and has printed nothing yet."""
FIRST_POLL_SECONDS = 1.0
LONGEST_POLL_SECONDS = 5.0
OUTAGE_SECONDS = 600.0
"""How long a wait bears with a gateway that does not answer."""


class _Jobs(msgspec.Struct, frozen=True):
    """One page of `GET /v1/jobs`."""

    jobs: Sequence[Job]
    next: str | None = None


class _Clusters(msgspec.Struct, frozen=True):
    """The answer of `GET /v1/clusters`."""

    clusters: Sequence[Cluster]


class Client(ServiceClient):
    """A headgate gateway, as the holder of one token sees it.

    Use it as an asynchronous context manager:

        async with Client("https://gateway.example.org", token=read_token) as client:
            job = await client.submit(JobSpec(executable="hostname"))
            job = await client.wait(job.id, timeout=3600)
            print((await client.stdout(job.id)).decode())

    Every call is repeated when no answer came or the service said "not now" (`Retry-After` is
    kept), until the policy's deadline is over. Repeating is safe: `submit` sends the same
    Idempotency-Key each time, so that a lost answer never makes a second job.

    Every method raises:
        ProblemError: the service refused; its subclasses are by HTTP status.
        UnreachableError: no answer within the deadline (seconds, `RetryPolicy.deadline`).
        UnexpectedAnswerError: the answer is not one of this interface.
    """

    async def site(self) -> Site:
        """What the gateway tells anybody about its site; needs no token."""
        return decode(await self._send(Request("GET", "/v1", anonymous=True)), Site)

    async def me(self) -> Me:
        """Who the gateway takes the caller for, and the account, if there is one."""
        return decode(await self._send(Request("GET", "/v1/me")), Me)

    async def clusters(self) -> Sequence[Cluster]:
        """The clusters behind the gateway, and their queues."""
        return decode(await self._send(Request("GET", "/v1/clusters")), _Clusters).clusters

    async def submit(self, spec: JobSpec, *, idempotency_key: str | None = None) -> Job:
        """Hand in a job; it comes back in state `new`, and is then the gateway's to run.

        `idempotency_key` (default: a new UUID per call) makes two calls one: give the same key to
        a call that repeats an earlier one, say after a restart of your own program.

        Raises:
            InvalidRequestError: the spec makes no sense; `problem.errors` has each fault.
            UnprocessableError: this site cannot run it, or (code `idempotency_key_reused`) the
                key was used for another spec.
        """
        request = Request(
            "POST",
            "/v1/jobs",
            body=msgspec.json.encode(spec),
            headers={
                "Content-Type": "application/json",
                "Idempotency-Key": idempotency_key or str(uuid.uuid4()),
            },
        )
        return decode(await self._send(request), Job)

    async def job(self, job_id: str) -> Job:
        """One job of the caller's. Raises `NotFoundError` for anybody else's."""
        return decode(await self._send(Request("GET", _job_path(job_id))), Job)

    async def jobs(
        self, *, state: JobState | None = None, page_size: int = 100
    ) -> AsyncIterator[Job]:
        """The caller's jobs, newest first, fetched page by page as they are asked for."""
        query = {"limit": str(page_size), **({"state": state.value} if state else {})}
        cursor: str | None = None
        while True:
            page_query = query if cursor is None else {**query, "cursor": cursor}
            page = decode(await self._send(Request("GET", "/v1/jobs", query=page_query)), _Jobs)
            for job in page.jobs:
                yield job
            if not page.next:
                return
            if page.next == cursor:
                raise UnexpectedAnswerError("The gateway's list of jobs does not come to an end.")
            cursor = page.next

    async def cancel(self, job_id: str) -> Job:
        """Ask for a job's end. It may still be running in the answer; `wait` sees the end.

        Cancelling a job that has ended changes nothing.
        """
        return decode(await self._send(Request("DELETE", _job_path(job_id))), Job)

    async def stdout(self, job_id: str, *, limit: int = OUTPUT_LIMIT_BYTES) -> bytes:
        """What the job has printed so far; empty before its first output.

        Raises:
            HeadgateError: it is more than `limit` bytes; read it with `stdout_chunks`.
        """
        return await _whole(self.stdout_chunks(job_id), limit)

    async def stderr(self, job_id: str, *, limit: int = OUTPUT_LIMIT_BYTES) -> bytes:
        """What the job has written to standard error so far; otherwise as `stdout`.

        Raises:
            HeadgateError: it is more than `limit` bytes; read it with `stderr_chunks`.
        """
        return await _whole(self.stderr_chunks(job_id), limit)

    def stdout_chunks(self, job_id: str, *, offset: int = 0) -> AsyncIterator[bytes]:
        """What the job has printed from byte `offset` to its present end, at most 1 MiB at a time.

        An interrupted chunk is fetched again where it began, so nothing is lost or doubled.
        """
        return self._chunks(job_id, "stdout", offset)

    def stderr_chunks(self, job_id: str, *, offset: int = 0) -> AsyncIterator[bytes]:
        """The same of standard error."""
        return self._chunks(job_id, "stderr", offset)

    async def _chunks(self, job_id: str, file: str, offset: int) -> AsyncIterator[bytes]:
        while True:
            query = {"offset": str(offset), "limit": str(OUTPUT_PAGE_BYTES)}
            request = Request("GET", f"{_job_path(job_id)}/{file}", query=query)
            try:
                answer = await self._send(request)
            except NotFoundError as error:
                if error.code != NO_OUTPUT:
                    raise
                return
            if not answer.body:
                return
            yield answer.body
            offset += len(answer.body)

    async def watch(
        self,
        job_id: str,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - the caller's own measure, in the job's terms
    ) -> AsyncIterator[Job]:
        """The job now, then after each change, and last when it has ended.

        It asks with the last ETag at the pace the gateway wishes (`Retry-After`), else every 1 to 5
        seconds, sooner after a change. An outage of up to 10 minutes is waited out.

        Raises:
            WaitTimeoutError: the job had not ended after `timeout` seconds.
        """
        ends = None if timeout is None else self._clock.monotonic() + timeout
        etag, last, pause = "", None, FIRST_POLL_SECONDS
        while True:
            left = None if ends is None else ends - self._clock.monotonic()
            answer = await self._send(
                Request("GET", _job_path(job_id), headers={"If-None-Match": etag} if etag else {}),
                deadline=OUTAGE_SECONDS if left is None else min(max(left, 1.0), OUTAGE_SECONDS),
            )
            job = decode(answer, Job) if answer.body else last
            if job is not None and job != last:
                yield job
                if job.state.final:
                    return
                last, pause = job, FIRST_POLL_SECONDS
            etag = answer.headers.get("ETag", etag)
            wish = retry_after(answer.headers, self._clock.now())
            step = pause if wish is None else max(wish, 0.1)
            left = None if ends is None else ends - self._clock.monotonic()
            if left is not None and left <= 0:
                raise WaitTimeoutError(f"The job {job_id} had not ended after {timeout:g} seconds.")
            await self._clock.sleep(step if left is None else min(step, left))
            pause = min(pause * 1.5, LONGEST_POLL_SECONDS)

    async def wait(
        self,
        job_id: str,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - the caller's own measure, in the job's terms
    ) -> Job:
        """The job once it has ended, however it ended; see `watch` for pace and errors."""
        ended: Job | None = None
        async for job in self.watch(job_id, timeout=timeout):
            ended = job
        if ended is None:
            raise UnexpectedAnswerError(f"The gateway said nothing about the job {job_id}.")
        return ended


async def _whole(chunks: AsyncIterator[bytes], limit: int) -> bytes:
    output = bytearray()
    async for chunk in chunks:
        output += chunk
        if len(output) > limit:
            raise HeadgateError(f"The job has printed more than {limit} bytes; read it in chunks.")
    return bytes(output)


def _job_path(job_id: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", job_id):
        raise ValueError(f"{job_id!r} is not a job id.")
    return f"/v1/jobs/{job_id}"
