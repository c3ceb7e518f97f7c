"""A fault campaign: people submit and cancel jobs while parts of a site die, stall and come back.

What holds afterwards is the gateway's promise: a payload starts at most once, no accepted job goes
missing, each ends as its payload did, no key gives two jobs, nothing is left in the cluster.
"""

import asyncio
import random
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from testbed.caller import Answer, Caller

_AGAIN_SECONDS = 0.2
_REQUEST = aiohttp.ClientTimeout(total=20)
_FINAL = frozenset({"completed", "failed", "canceled"})
_ACCEPTED = 201

Fault = Callable[[], Awaitable[None]]
"""Something bad that happens to a site; it has been put right when this returns."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How much happens. Times in seconds; `workers` submit at a time for each user."""

    jobs: int
    seconds: float
    settle_seconds: float
    workers: int = 2
    pause: float = 0.5
    calm: float = 0.5
    payload_seconds: float = 0.4
    cancelled: float = 0.2
    """The part of the jobs whose owner changes their mind."""


@dataclass(slots=True)
class Wish:
    """One thing a user wants once: what they asked for and what became of it."""

    number: int
    user: str
    seconds: float
    code: int
    cancel: bool
    key: str
    rows: set[str] = field(default_factory=set)
    job: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Report:
    """What happened; `broken` is every promise that did not hold, in a sentence."""

    wishes: list[Wish] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def __str__(self) -> str:
        """The figures in a line."""
        ends: dict[str, int] = {}
        for wish in self.wishes:
            end = str(wish.job.get("state"))
            if (kind := _kind(wish.job)) not in {"", "payload", "cancelled_by_user"}:
                end += f"/{kind}"
            ends[end] = ends.get(end, 0) + 1
        shown = ", ".join(f"{count} {end}" for end, count in sorted(ends.items()))
        return (
            f"{len(self.wishes)} jobs ({shown}), {len(self.faults)} faults, {self.seconds:.0f} s, "
            f"{len(self.broken)} promises broken"
        )


class Campaign:
    """One campaign. `counts` is a folder that every payload may write to.

    Each of `lanes` is a set of faults that happen one after the other; lanes go on side by side.
    `seed` makes wishes and faults the same each time (what the faults hit is a matter of timing).
    `may_lose`: a job may end as `lost`, `node` or `cancelled_by_site`, where a controller forgets
    what it acknowledged: back from an older state, it has its nodes kill what it does not know.
    """

    def __init__(
        self,
        callers: Mapping[str, Caller],
        counts: Path,
        lanes: Sequence[Mapping[str, Fault]],
        seed: int,
        *,
        may_lose: bool = False,
    ) -> None:
        self._callers = callers
        self._counts = counts
        self._lanes = lanes
        self._chance = random.Random(seed)  # noqa: S311 - a campaign, no secret
        self._may_lose = may_lose
        self._over = 0.0
        self.report = Report()

    async def run(self, pace: Pace) -> Report:
        """Let it happen; then wait until all jobs have ended, and judge."""
        began = time.monotonic()
        self._over = began + 2 * pace.seconds + pace.settle_seconds
        report = self.report
        report.wishes = [self._wish(number, pace) for number in range(pace.jobs)]
        lines = [self._lines(user) for user in self._callers]
        async with asyncio.TaskGroup() as group:
            for lane in self._lanes:
                group.create_task(self._disturb(lane, pace))
            for line in lines:
                for _ in range(pace.workers):
                    group.create_task(self._work(line, pace))
        endings = [asyncio.create_task(self._ended(wish)) for wish in report.wishes]
        _, late = await asyncio.wait(endings, timeout=pace.settle_seconds)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)
        if late:
            report.broken.append(f"{len(late)} jobs have not ended")
        for wish in report.wishes:
            report.broken += self._judge(wish)
        report.seconds = time.monotonic() - began
        return report

    def rows(self) -> set[str]:
        """The ids of all jobs that were accepted."""
        return {row for wish in self.report.wishes for row in wish.rows}

    def _wish(self, number: int, pace: Pace) -> Wish:
        cancel = self._chance.random() < pace.cancelled
        return Wish(
            number=number,
            user=self._chance.choice(list(self._callers)),
            seconds=600.0 if cancel else self._chance.uniform(0, 2 * pace.payload_seconds),
            code=self._chance.choice((0, 0, 1, 7, 143, 255)),
            cancel=cancel,
            key=str(uuid.uuid4()),
        )

    def _lines(self, user: str) -> list[Wish]:
        return [wish for wish in self.report.wishes if wish.user == user][::-1]

    async def _disturb(self, lane: Mapping[str, Fault], pace: Pace) -> None:
        chance = random.Random(self._chance.random())  # noqa: S311 - a campaign, no secret
        until = time.monotonic() + pace.seconds
        names = list(lane)
        while time.monotonic() < until:
            await asyncio.sleep(chance.uniform(0, pace.calm))
            name = chance.choice(names)
            self.report.faults.append(name)
            await lane[name]()

    async def _work(self, line: list[Wish], pace: Pace) -> None:
        while line:
            wish = line.pop()
            await self._submit(wish)
            if wish.cancel:
                await asyncio.sleep(self._chance.uniform(0, 2 * pace.pause))
                for row in wish.rows:
                    await self._said(wish, "DELETE", f"/v1/jobs/{row}", {202})
            await asyncio.sleep(self._chance.uniform(0, 2 * pace.pause))

    async def _submit(self, wish: Wish) -> None:
        """Post until it is accepted, sometimes twice at a time, always under the same key."""
        file = self._counts / str(wish.number)
        script = f'echo "$SLURM_JOB_ID" >> {file}; sleep {wish.seconds:.2f}; exit {wish.code}'
        body = {"executable": "/bin/sh", "arguments": ["-c", script]}
        asked = self._chance.choice((1, 1, 2))
        answers = await asyncio.gather(
            *(
                self._said(
                    wish,
                    "POST",
                    "/v1/jobs",
                    {_ACCEPTED},
                    json=body,
                    headers={"Idempotency-Key": wish.key},
                )
                for _ in range(asked)
            )
        )
        wish.rows |= {answer.json["id"] for answer in answers}

    async def _said(
        self,
        wish: Wish,
        method: str,
        path: str,
        wanted: set[int],
        **options: Any,  # noqa: ANN401 - aiohttp's own
    ) -> Answer:
        """Ask until the answer is one of these; 503 and no answer are reasons to ask again."""
        told: set[int] = set()
        while time.monotonic() < self._over:
            try:
                answer = await self._callers[wish.user](method, path, timeout=_REQUEST, **options)
            except (aiohttp.ClientError, TimeoutError):
                await asyncio.sleep(_AGAIN_SECONDS)
                continue
            if answer.status in wanted:
                return answer
            acceptable = answer.status == 503 and "Retry-After" in answer.headers  # noqa: PLR2004 - HTTP's own
            if not acceptable and answer.status not in told:
                told.add(answer.status)
                words = f"{method} was answered {answer.status}: {answer.body[:300]!r}"
                self.report.broken.append(words)
            await asyncio.sleep(_AGAIN_SECONDS)
        raise TimeoutError(f"{method} {path} was never answered; it heard {told or 'nothing'}")

    async def _ended(self, wish: Wish) -> None:
        for row in wish.rows:
            while wish.job.get("state") not in _FINAL:
                wish.job = (await self._said(wish, "GET", f"/v1/jobs/{row}", {200})).json
                await asyncio.sleep(_AGAIN_SECONDS)

    def _judge(self, wish: Wish) -> Sequence[str]:
        """What went wrong with one wish."""
        file = self._counts / str(wish.number)
        starts = len(file.read_text().splitlines()) if file.exists() else 0
        job = wish.job
        state, code, kind = job.get("state"), job.get("exit_code"), _kind(job)
        at = f"job {wish.number} of {wish.user} ({job.get('id')})"
        found = []
        if len(wish.rows) != 1:
            found.append(f"{at}: its key gave the jobs {wish.rows}")
        if starts > 1:
            found.append(f"{at}: its payload started {starts} times")
        as_asked = (state, code) == (("completed" if wish.code == 0 else "failed"), wish.code)
        if kind in {"lost", "node", "cancelled_by_site"}:
            right = self._may_lose
        elif wish.cancel:
            right = (state, kind) == ("canceled", "cancelled_by_user")
        else:
            right = as_asked and starts == 1 and kind in {"", "payload"}
        if not right:
            words = f"{state}, {code}, {job.get('failure')}, {job.get('status_message')}"
            found.append(f"{at}: asked for {wish.code}, started {starts} times, ended {words}")
        return found


def _kind(job: Mapping[str, Any]) -> str:
    return str((job.get("failure") or {}).get("kind", ""))
