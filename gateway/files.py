"""What users may do with the files of their jobs: list, read, take along, bring, remove."""

import asyncio
import contextlib
import uuid
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import TypeVar

import structlog

from gateway import archive
from gateway.asking import ask
from gateway.registry import Registry
from gateway.removals import require_files
from gateway.sessions import files
from gateway.sessions.credentials import Certify
from gateway.sessions.files import PAGE, Entry, Place, Status
from gateway.sessions.pool import SessionPool
from gateway.sessions.session import (
    PART,
    SessionRefused,
    UserSession,
)
from gateway.sessions.user import User
from gateway.submission import Jobs
from gateway.translator import Translator
from headgate.identity import Principal
from headgate.problems import (
    Conflict,
    Invalid,
    NotFound,
    Problem,
    TooLarge,
    Unavailable,
    Unprocessable,
)

T = TypeVar("T")

log = structlog.get_logger(__name__)

AHEAD = 8
"""Small files that are asked for while an archive's reader takes the one before."""
_OUTDATED = frozenset({"op", "version"})


class Files:
    """Opens the directories of callers' jobs; `max_upload_bytes` bounds one file."""

    def __init__(
        self,
        *,
        jobs: Jobs,
        registry: Registry,
        translator: Translator,
        pool: SessionPool,
        max_upload_bytes: int,
    ) -> None:
        self._jobs = jobs
        self._registry = registry
        self._translator = translator
        self._pool = pool
        self._max_upload_bytes = max_upload_bytes

    async def open(self, principal: Principal, token: str, row: str) -> "Folder":
        """The directory of one of the caller's jobs; anybody else's does not exist for them."""
        job = await self._jobs.job(principal, row)
        require_files(job)
        # A block must be felt here too: a kept session alone is no right to read.
        await self._registry.active_account(principal.identity, job.realm)
        return Folder(
            pool=self._pool,
            user=User(job.owner, job.cluster, job.account),
            certify=self._translator.with_token(token, job.realm),
            place=Place(job.id, job.directory),
            max_upload_bytes=self._max_upload_bytes,
        )


class Folder:
    """A job's directory, for its owner. Paths are percent-encoded, relative, without dots.

    Each method raises Problems: NotFound, Conflict (it is no file, no directory), Unavailable.
    No session is held while a caller takes their time.
    """

    def __init__(
        self,
        *,
        pool: SessionPool,
        user: User,
        certify: Certify,
        place: Place,
        max_upload_bytes: int,
    ) -> None:
        self._pool = pool
        self._user = user
        self._certify = certify
        self._place = place
        self.max_upload_bytes = max_upload_bytes

    async def stat(self, path: str) -> Status:
        """What is at a path."""
        return await self._ask(lambda session: files.stat(session, self._place, path))

    async def page(self, path: str, *, after: str, limit: int) -> tuple[list[Entry], str]:
        """A page of a directory, and the name to go on after."""
        return await self._ask(
            lambda session: files.page(session, self._place, path, after=after, limit=limit)
        )

    async def read(
        self, path: str, *, inode: str, offset: int, length: int
    ) -> AsyncGenerator[bytes]:
        """Exactly so many bytes of that very file; Unavailable where it has become shorter."""
        end = offset + length
        while offset < end:
            part = await self._fetch(path, inode, offset, min(PART, end - offset))
            if not part:
                raise Unavailable("The file became shorter while it was read.", code="file_changed")
            yield part
            offset += len(part)

    async def archive(self, path: str) -> AsyncGenerator[bytes]:
        """A directory with all that is in it as a tar archive, in the order of the names."""
        async with contextlib.aclosing(self._members(path, "")) as members:
            async for data in members:
                yield data
        yield archive.END

    async def write(self, path: str, parts: AsyncIterator[bytes]) -> Status:
        """Bring a file; it takes the place of what was there once it is whole.

        Raises:
            TooLarge: over the limit; nothing is left of it.
        """
        upload, offset, waiting = str(uuid.uuid4()), 0, b""
        async for part in parts:
            if offset + len(waiting) + len(part) > self.max_upload_bytes:
                raise TooLarge(f"A file may have {self.max_upload_bytes} bytes here.")
            waiting += part
            if len(waiting) >= PART:
                await self._write(path, waiting, upload, offset, last=False)
                offset, waiting = offset + len(waiting), b""
        await self._write(path, waiting, upload, offset, last=True)
        return await self.stat(path)

    async def delete(self, path: str) -> None:
        """Remove a file, a link itself, or a directory with all that is in it."""
        while not await self._ask(lambda session: _finished(session, self._place, path)):
            log.info("delete_goes_on", job=self._place.row)

    async def _write(self, path: str, part: bytes, upload: str, offset: int, *, last: bool) -> None:
        await self._ask(
            lambda session: files.write(
                session, self._place, path, part, upload=upload, offset=offset, last=last
            ),
            again=False,
        )

    async def _fetch(self, path: str, inode: str, offset: int, limit: int) -> bytes:
        return await self._ask(
            lambda session: files.fetch(
                session, self._place, path, offset=offset, limit=limit, inode=inode
            )
        )

    async def _members(self, path: str, prefix: str) -> AsyncGenerator[bytes]:
        after, more = "", True
        while more:
            entries, after = await self.page(path, after=after, limit=PAGE)
            more = bool(after)
            async with contextlib.aclosing(self._with_data(path, entries)) as fetched:
                async for entry, data in fetched:
                    name, here = _below(prefix, entry.name), _below(path, entry.name)
                    if data is not None:
                        yield archive.header(name, entry, len(data)) + data
                        yield archive.padding(len(data))
                        continue
                    if not (header := archive.header(name, entry, entry.size)):
                        continue
                    yield header
                    if entry.type == "file":
                        whole = self.read(here, inode=entry.inode, offset=0, length=entry.size)
                        async with contextlib.aclosing(whole) as parts:
                            async for part in parts:
                                yield part
                        yield archive.padding(entry.size)
                    if entry.type == "directory":
                        async with contextlib.aclosing(self._members(here, name)) as inner:
                            async for part in inner:
                                yield part

    async def _with_data(
        self, path: str, entries: list[Entry]
    ) -> AsyncGenerator[tuple[Entry, bytes | None]]:
        """Entries in their order, small files with what is in them, asked for ahead."""
        asked: deque[tuple[Entry, asyncio.Task[bytes] | None]] = deque()
        left = iter(entries)
        try:
            while True:
                while len(asked) < AHEAD and (entry := next(left, None)) is not None:
                    small = entry.type == "file" and 0 < entry.size <= PART
                    where = _below(path, entry.name)
                    look = self._fetch(where, entry.inode, 0, entry.size) if small else None
                    asked.append((entry, asyncio.create_task(look) if look else None))
                if not asked:
                    return
                entry, task = asked.popleft()
                try:
                    data = await task if task else None
                except NotFound:
                    continue  # removed meanwhile
                yield entry, data
        finally:
            tasks = [task for _, task in asked if task is not None]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _ask(
        self, question: Callable[[UserSession], Awaitable[T]], *, again: bool = True
    ) -> T:
        """One question; a session that is lost meanwhile is replaced once."""
        try:
            return await ask(self._pool, self._user, self._certify, question, again=again)
        except SessionRefused as refusal:
            raise _problem(refusal) from refusal


async def _finished(session: UserSession, place: Place, path: str) -> bool:
    try:
        await files.delete(session, place, path)
    except SessionRefused as refusal:
        if refusal.code != "unfinished":
            raise
        return False
    return True


def _below(path: str, name: str) -> str:
    return f"{path}/{name}" if path else name


def _problem(refusal: SessionRefused) -> Problem:
    """What a refusal of the session program is for a caller."""
    if refusal.code in _OUTDATED:
        log.error("session_program_outdated", words=refusal.words)
        return Unavailable(
            "The session program on the login node is of an older release than this gateway, and "
            "cannot do this. The site's administrators have to install the one of this release.",
            code="session_program_outdated",
            retry_after=3600,
        )
    if refusal.code in _ANSWERS:
        kind, code, words = _ANSWERS[refusal.code]
        return kind(words, code=code)
    if refusal.code in {"directory", "system"}:
        return Conflict(f"The cluster refuses this: {refusal.words}", code="refused_by_cluster")
    return Unavailable("The file cannot be reached now.", retry_after=5)


def not_a_file() -> Problem:
    """What is there is neither a file nor a directory."""
    kind, code, words = _ANSWERS["not_a_file"]
    return kind(words, code=code)


_ANSWERS: dict[str, tuple[type[Problem], str, str]] = {
    "no_file": (NotFound, "file_unknown", "There is no such file."),
    "path": (Invalid, "invalid_path", "This is no path below a job's directory."),
    "not_a_file": (
        Conflict,
        "not_a_file",
        "This is no regular file: links and special files are not followed or opened.",
    ),
    "not_a_directory": (
        Conflict,
        "not_a_directory",
        "A part of this path is no directory, or a link: links are not followed.",
    ),
    "changed": (Unavailable, "file_changed", "There is another file now."),
    "quota": (Unprocessable, "quota", "There is no room left on the cluster for you."),
}
