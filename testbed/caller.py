"""A plain caller of the gateway: requests with one token, answers read to their end."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp

_POLL_SECONDS = 0.1
_FINAL = frozenset({"completed", "failed", "canceled"})


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP answer; `json` is None where it has none."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    json: Any


class Caller:
    """Requests to the gateway with one token; an empty token is not sent."""

    def __init__(self, session: aiohttp.ClientSession, url: str, token: str) -> None:
        self._session = session
        self._url = url
        self.token = token

    async def __call__(self, method: str, path: str, **options: Any) -> Answer:  # noqa: ANN401 - aiohttp's own
        """One request, its answer read to the end."""
        headers = {**options.pop("headers", {})}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        async with self._session.request(
            method, self._url + path, headers=headers, **options
        ) as response:
            body = await response.read()
            is_json = body and "json" in response.content_type
            parsed = await response.json(content_type=None) if is_json else None
            return Answer(response.status, response.headers, body, parsed)

    async def submit(self, command: str, **spec: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
        """Submit a shell command; the job as 201 shows it."""
        body = {"executable": "/bin/sh", "arguments": ["-c", command], **spec}
        answer = await self("POST", "/v1/jobs", json=body)
        if answer.status != 201:  # noqa: PLR2004 - HTTP's own number
            raise RuntimeError(f"{answer.status}: {answer.body.decode(errors='replace')}")
        job: dict[str, Any] = answer.json
        return job

    async def until(self, row: str, *states: str) -> dict[str, Any]:
        """The job once it is in one of these states, or has ended; the caller bounds the wait."""
        while True:
            job: dict[str, Any] = (await self("GET", f"/v1/jobs/{row}")).json
            if job["state"] in _FINAL | set(states):
                return job
            await asyncio.sleep(_POLL_SECONDS)

    async def told(self, row: str) -> dict[str, Any]:
        """The job once it says something about itself; the caller bounds the wait."""
        while True:
            job: dict[str, Any] = (await self("GET", f"/v1/jobs/{row}")).json
            if job.get("status_message"):
                return job
            await asyncio.sleep(_POLL_SECONDS)

    async def run(self, command: str, **spec: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
        """Submit a shell command and wait for its end."""
        return await self.until((await self.submit(command, **spec))["id"])

    async def output(self, job: Mapping[str, Any]) -> str:
        """What a job printed."""
        return (await self("GET", f"/v1/jobs/{job['id']}/stdout")).body.decode()
