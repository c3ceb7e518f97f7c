"""Files through sessions that are old, lost, or answer nonsense."""

import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from gateway.files import Folder
from gateway.sessions.files import Place
from gateway.sessions.session import SessionDenied, SessionLost, SessionRefused, SessionUnavailable
from gateway.sessions.user import User
from headgate.identity import Identity
from headgate.problems import Conflict, Forbidden, NotFound, Problem, TooLarge, Unavailable

ALICE = User(Identity("https://iam.example.org/", "alice"), "main", "alice")
Answer = Callable[[dict[str, Any]], tuple[dict[str, Any], bytes]]


class Pool:
    """Lends a session of which the test says what it answers."""

    def __init__(self, *answers: Exception | Answer) -> None:
        self.answers = list(answers)
        self.asked: list[dict[str, Any]] = []

    @contextlib.asynccontextmanager
    async def with_token(self, *_: object) -> AsyncIterator[Any]:
        """The session."""
        yield self

    async def request(
        self, header: dict[str, Any], body: bytes = b"", *, expected: int = 0
    ) -> tuple[dict[str, Any], bytes]:
        """The next answer; the last one again and again."""
        del expected
        self.asked.append({**header, "bytes": len(body)})
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer(header)


def folder(pool: Pool) -> Folder:
    """A job's directory behind it."""
    lent: Any = pool
    certify: Any = None
    return Folder(
        pool=lent,
        user=ALICE,
        certify=certify,
        place=Place("row", "/d/row"),
        max_upload_bytes=3 * 1024 * 1024,
    )


def a_file(_: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
    """What is said of a file."""
    status = {"type": "file", "size": 1, "mtime_ns": 1, "mode": 0o600, "inode": "1-1"}
    return {"ok": True, **status}, b""


@pytest.mark.parametrize("code", ["op", "version"])
async def test_an_old_session_program_is_named_as_the_cause(code: str):
    """A gateway that is newer than what is installed on the node says who has to do what."""
    with pytest.raises(Unavailable, match="session program on the login node") as caught:
        await folder(Pool(SessionRefused(code, "unknown operation"))).stat("a")
    assert caught.value.code == "session_program_outdated"


@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        (SessionRefused("no_file", ""), NotFound),
        (SessionRefused("system", "Permission denied"), Conflict),
        (SessionRefused("something new", ""), Unavailable),
        (SessionDenied("held"), Forbidden),
        (SessionUnavailable("away"), Unavailable),
        (SessionLost("gone"), Unavailable),
    ],
)
async def test_what_goes_wrong_is_a_problem_of_its_kind(failure: Exception, kind: type[Problem]):
    """No refusal and no lost connection is a bug."""
    with pytest.raises(kind):
        await folder(Pool(failure)).stat("a")


async def test_a_lost_session_is_replaced_once_for_a_look():
    """Looking twice does no harm; a part of an upload is not sent twice."""
    assert (await folder(Pool(SessionLost("gone"), a_file)).stat("a")).size == 1
    pool = Pool(SessionLost("gone"), a_file)
    with pytest.raises(Unavailable):
        await folder(pool).write("a", parts(b"x"))
    assert len(pool.asked) == 1


@pytest.mark.parametrize(
    "answer",
    [
        ({"ok": True, "type": 7}, b""),
        ({"ok": True}, b"[{]"),
        ({"ok": True}, b'[{"name": "x"}]'),
        ({"ok": True}, b"\xff"),
    ],
)
async def test_nonsense_of_a_users_session_is_no_bug(answer: tuple[dict[str, Any], bytes]):
    """The other side runs as the user: what it says is checked."""
    with pytest.raises(Unavailable):
        await folder(Pool(lambda _: answer)).stat("a")
    with pytest.raises(Unavailable):
        await folder(Pool(lambda _: answer)).page("", after="", limit=10)


async def parts(*given: bytes) -> AsyncIterator[bytes]:
    """A body."""
    for part in given:
        yield part


async def test_an_upload_is_sent_in_parts_and_bounded():
    """Each a megabyte at most, the last one marked; over the limit it ends."""
    megabyte = bytes(1024 * 1024)
    pool = Pool(a_file)
    await folder(pool).write("a", parts(*[megabyte[: 1 << 18]] * 9))
    writes = [(asked["offset"], asked["bytes"], asked["last"]) for asked in pool.asked[:-1]]
    size = 1 << 20
    assert writes == [(0, size, False), (size, size, False), (2 * size, size // 4, True)]
    with pytest.raises(TooLarge):
        await folder(Pool(a_file)).write("a", parts(*[megabyte] * 4))


async def test_a_file_that_becomes_shorter_breaks_off():
    """No caller takes what is left of it for the whole."""
    chunks = folder(Pool(lambda _: ({"ok": True}, b""))).read("a", inode="1-1", offset=0, length=10)
    with pytest.raises(Unavailable, match="shorter"):
        assert [chunk async for chunk in chunks]


async def test_a_large_directory_is_removed_in_several_goes():
    """What is not finished in one time is gone on with."""
    pool = Pool(SessionRefused("unfinished", ""), SessionRefused("unfinished", ""), a_file)
    await folder(pool).delete("a")
    assert len(pool.asked) == 3
