"""Following a job to its end: its states as they change, its output as it comes."""

import asyncio
import contextlib

from headgate.cli import describe
from headgate.cli.screen import SHORT_ID, Screen
from headgate.client import (
    Client,
    HeadgateError,
    Job,
    JobState,
    UnexpectedAnswerError,
)
from headgate.clock import Clock

FIRST_READ_SECONDS = 1.0
LONGEST_READ_SECONDS = 10.0


class Follower:
    """Follows one job. `quiet`: nothing is said and no output shown, only the end awaited."""

    def __init__(
        self, client: Client, job_id: str, *, screen: Screen, clock: Clock, quiet: bool
    ) -> None:
        self._client = client
        self._id = job_id
        self._screen = screen
        self._clock = clock
        self._quiet = quiet
        self._job: Job | None = None
        self._moved = asyncio.Event()
        self._offset = 0

    async def to_the_end(self) -> Job:
        """The job once it has ended, its whole output shown.

        Raises:
            ExceptionGroup: of the one thing for which the job cannot be followed; output alone
                that cannot be read is said, and is no error.
        """
        async with asyncio.TaskGroup() as group:
            if not self._quiet:
                group.create_task(self._read())
            async for job in self._client.watch(self._id):
                self._tell(job)
        if self._job is None:
            raise UnexpectedAnswerError(f"The gateway said nothing about the job {self._id}.")
        if not self._quiet:
            await self._complain()
            self._say(self._job)
        return self._job

    async def _complain(self) -> None:
        """Show what the job wrote to standard error, all at once at its end."""
        try:
            async for chunk in self._client.stderr_chunks(self._id):
                self._screen.complaint(chunk)
        except HeadgateError as error:
            self._screen.note(f"Its standard error cannot be read now ({error})")

    def _tell(self, job: Job) -> None:
        if not self._quiet and not job.state.final:
            self._say(job)
        self._job = job
        self._moved.set()

    def _say(self, job: Job) -> None:
        words = describe.sentence(job, self._clock.now())
        self._screen.note((f"{job.id[:SHORT_ID]} ", "bright_black"), describe.coloured(job, words))

    async def _read(self) -> None:
        pause = FIRST_READ_SECONDS
        while True:
            job = self._job
            ended = job is not None and job.state.final
            if job is not None and job.state not in {JobState.NEW, JobState.QUEUED, JobState.HELD}:
                came = await self._copy(last=ended)
                pause = FIRST_READ_SECONDS if came else min(pause * 1.5, LONGEST_READ_SECONDS)
            if ended:
                return
            self._moved.clear()
            if self._job is not job:
                continue  # it changed while we were reading
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._moved.wait()

    async def _copy(self, *, last: bool) -> bool:
        """Show what has come since the last time; whether anything has."""
        before = self._offset
        try:
            async for chunk in self._client.stdout_chunks(self._id, offset=self._offset):
                self._screen.output(chunk)
                self._offset += len(chunk)
        except HeadgateError as error:
            if last:
                self._screen.note(f"The output cannot be read now ({error})")
                self._screen.note(f"Run later: headgate job logs {self._id[:SHORT_ID]}")
        return self._offset > before
