"""Files of jobs over REST: listed, read in parts, taken along, brought, removed, and whose."""

import asyncio
import io
import os
import tarfile
import urllib.parse
import uuid
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from yarl import URL

from testbed.caller import Answer, Caller
from testbed.embedded import EmbeddedSite

MEGABYTE = 1024 * 1024


@pytest.fixture(scope="module")
async def job(alice: Caller) -> dict[str, Any]:
    """A job that has left some files."""
    command = (
        "mkdir -p out/deep; printf 0123456789 > out/digits; : > out/empty; "
        f"head -c {3 * MEGABYTE + 1} /dev/zero | tr '\\0' x > out/large; "
        "echo deep > out/deep/file; ln -s deep/file out/link; "
        "ln -s ../../../../etc/hostname out/away; mkfifo out/pipe; echo hi"
    )
    return await alice.run(command)


def at(job: dict[str, Any], path: str = "") -> str:
    """The address of a file."""
    return f"/v1/jobs/{job['id']}/files/{path}"


async def get(caller: Caller, path: str, **headers: str) -> Answer:
    """A GET with headers; underscores stand for dashes."""
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    return await caller("GET", path, headers=sent)


async def test_a_directory_is_listed_in_pages(alice: Caller, job: dict[str, Any]):
    """In order, with what each entry is, and where; the next page by Link and cursor."""
    answer = await alice("GET", f"/v1/jobs/{job['id']}/files")
    assert [entry["name"] for entry in answer.json["entries"]] == ["out", "stderr", "stdout"]
    assert answer.json["entries"][0]["href"] == at(job, "out")
    found = []
    path = at(job, "out") + "?limit=3"
    while path:
        answer = await alice("GET", path)
        assert answer.status == 200
        found += answer.json["entries"]
        link = answer.headers.get("Link", "")
        path = link[1 : link.index(">")] if link else ""
    kinds = {entry["name"]: entry["type"] for entry in found}
    assert list(kinds) == sorted(kinds)
    assert kinds == {
        "away": "link",
        "deep": "directory",
        "digits": "file",
        "empty": "file",
        "large": "file",
        "link": "link",
        "pipe": "other",
    }
    (digits,) = [entry for entry in found if entry["name"] == "digits"]
    assert (digits["size"], digits["path"]) == (10, "out/digits")


async def test_a_file_comes_whole_with_a_strong_validator(alice: Caller, job: dict[str, Any]):
    """Length, no sniffing, an attachment; 304 for who has it already."""
    answer = await get(alice, at(job, "out/large"))
    assert answer.status == 200
    assert answer.body == b"x" * (3 * MEGABYTE + 1)
    assert answer.headers["Content-Type"] == "application/octet-stream"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert "attachment" in answer.headers["Content-Disposition"]
    again = await get(alice, at(job, "out/large"), If_None_Match=answer.headers["ETag"])
    assert (again.status, again.body) == (304, b"")
    empty = await get(alice, at(job, "out/empty"))
    assert (empty.status, empty.body) == (200, b"")
    head = await alice("HEAD", at(job, "out/large"))
    assert (head.status, head.headers["Content-Length"]) == (200, str(3 * MEGABYTE + 1))


@pytest.mark.parametrize(
    ("asked", "answered"),
    [
        ("bytes=0-3", (206, b"0123", "bytes 0-3/10")),
        ("bytes=4-", (206, b"456789", "bytes 4-9/10")),
        ("bytes=-3", (206, b"789", "bytes 7-9/10")),
        ("bytes=-30", (206, b"0123456789", "bytes 0-9/10")),
        ("bytes=8-100", (206, b"89", "bytes 8-9/10")),
        ("bytes=10-", (416, None, "bytes */10")),
        ("bytes=-0", (416, None, "bytes */10")),
        ("bytes=5-2", (200, b"0123456789", None)),
        ("bytes=0-1,4-5", (200, b"0123456789", None)),
        ("lines=1-2", (200, b"0123456789", None)),
        ("bytes=-", (200, b"0123456789", None)),
    ],
)
async def test_ranges(alice: Caller, job: dict[str, Any], asked: str, answered: Any):
    """RFC 9110, section 14: one range is a part, none of it is 416, nonsense is ignored."""
    status, body, where = answered
    answer = await get(alice, at(job, "out/digits"), Range=asked)
    assert answer.status == status
    assert answer.headers.get("Content-Range") == where
    assert body is None or answer.body == body


async def test_a_range_of_another_file_is_the_whole_of_this_one(alice: Caller, job: dict[str, Any]):
    """If-Range with the validator of what was, and of what is."""
    etag = (await get(alice, at(job, "out/digits"))).headers["ETag"]
    part = await get(alice, at(job, "out/digits"), Range="bytes=0-1", If_Range=etag)
    whole = await get(alice, at(job, "out/digits"), Range="bytes=0-1", If_Range='"other"')
    assert (part.body, whole.body) == (b"01", b"0123456789")


async def test_a_directory_is_taken_along_as_one_archive(alice: Caller, job: dict[str, Any]):
    """Files, directories and links that stay inside; none that leads out, no pipe."""
    answer = await get(alice, at(job, "out"), Accept="application/x-tar")
    assert (answer.status, answer.headers["Content-Type"]) == (200, "application/x-tar")
    with tarfile.open(fileobj=io.BytesIO(answer.body)) as archive:
        members = {member.name: member for member in archive}
        assert set(members) == {"deep", "deep/file", "digits", "empty", "large", "link"}
        assert members["link"].linkname == "deep/file"
        read = archive.extractfile("large")
        assert read is not None
        assert read.read() == b"x" * (3 * MEGABYTE + 1)


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("out/none", 404, "file_unknown"),
        ("out/link", 409, "not_a_file"),
        ("out/away", 409, "not_a_file"),
        ("out/pipe", 409, "not_a_file"),
        ("out/digits/x", 409, "not_a_directory"),
        ("out/%2e%2e/x", 400, "invalid_path"),
        ("out/a%2Fb", 400, "invalid_path"),
        (".headgate/attempt", 404, "file_unknown"),
        (".headgate", 404, "file_unknown"),
    ],
)
async def test_what_is_not_to_be_had_is_said(
    alice: Caller, job: dict[str, Any], path: str, status: int, code: str
):
    """Links, pipes, paths that lead up, the job's own files: each with its code, none hangs."""
    address = alice._url + at(job, path)
    async with alice._session.get(
        _as_is(address), headers={"Authorization": f"Bearer {alice.token}"}
    ) as answer:
        assert (answer.status, (await answer.json(content_type=None))["code"]) == (status, code)


def _as_is(address: str) -> Any:
    return URL(address, encoded=True)


async def test_files_are_brought_changed_and_removed(alice: Caller, job: dict[str, Any]):
    """201 and 204, the content byte for byte, conditions kept, 404 after it was removed."""
    path = at(job, "in/new/a%20b")
    body = os.urandom(2 * MEGABYTE + 7)
    made = await alice("PUT", path, data=io.BytesIO(body))
    assert made.status == 201
    got = await get(alice, path)
    assert (got.body, got.headers["ETag"]) == (body, made.headers["ETag"])
    assert (Path(job["directory"]) / "in/new/a b").read_bytes() == body
    again = await alice("PUT", path, data=b"short", headers={"If-Match": made.headers["ETag"]})
    assert again.status == 204
    stale = await alice("PUT", path, data=b"x", headers={"If-Match": made.headers["ETag"]})
    there = await alice("PUT", path, data=b"x", headers={"If-None-Match": "*"})
    assert (stale.status, there.status) == (412, 412)
    assert (await get(alice, path)).body == b"short"
    assert (await alice("DELETE", at(job, "in"))).status == 204
    assert (await alice("DELETE", at(job, "in"))).status == 404
    assert (await alice("PUT", at(job, "out"), data=b"x")).json["code"] == "not_a_file"


async def test_names_that_are_no_text_are_found_by_what_is_listed(
    alice: Caller, job: dict[str, Any]
):
    """A listing's href leads to the file, whatever bytes are in its name."""
    name = urllib.parse.quote(b"\xff \n%\xc3\xbc")
    sent = await alice._session.put(
        _as_is(alice._url + at(job, f"odd/{name}")),
        data=b"odd",
        headers={"Authorization": f"Bearer {alice.token}"},
    )
    sent.release()
    assert sent.status == 201
    (entry,) = (await alice("GET", at(job, "odd"))).json["entries"]
    async with alice._session.get(
        _as_is(alice._url + entry["href"]), headers={"Authorization": f"Bearer {alice.token}"}
    ) as answer:
        assert await answer.read() == b"odd"
    archive = await get(alice, at(job, "odd"), Accept="application/x-tar")
    with tarfile.open(fileobj=io.BytesIO(archive.body)) as opened:
        assert opened.getnames()[0].encode("utf-8", "surrogateescape") == b"\xff \n%\xc3\xbc"


async def test_an_upload_over_the_limit_is_refused(site: EmbeddedSite, alice: Caller, job: Any):
    """By its length at once; nothing of it is left."""
    path = at(job, "huge")
    headers = {"Authorization": f"Bearer {alice.token}", "Content-Length": str(1 << 40)}
    url = site.addresses.gateway + path

    async def body() -> Any:
        yield b"x"

    async with aiohttp.ClientSession() as session:
        try:
            async with session.put(url, data=body(), headers=headers) as answer:
                assert answer.status == 413
        except aiohttp.ClientError as error:
            pytest.fail(f"no answer: {error}")
    assert (await get(alice, path)).status == 404


async def test_files_of_others_do_not_exist(alice: Caller, bob: Caller, job: dict[str, Any]):
    """Another's job, or none: 404 for every method."""
    for row in (job["id"], str(uuid.uuid4())):
        for method in ("GET", "PUT", "DELETE"):
            answer = await bob(method, f"/v1/jobs/{row}/files/out/digits")
            assert (answer.status, answer.json["code"]) == (404, "job_unknown")
    assert (await get(alice, at(job, "out/digits"))).body == b"0123456789"


async def test_output_is_followed_until_the_job_ends(alice: Caller):
    """Asked for before there is any; each line comes while the job runs, the last one too."""
    job = await alice.submit("for i in 1 2 3; do echo $i; sleep 0.3; done; echo end")
    answer = await alice("GET", f"/v1/jobs/{job['id']}/stdout?follow=1")
    assert (answer.status, answer.body) == (200, b"1\n2\n3\nend\n")
    assert (await alice.until(job["id"]))["state"] == "completed"


async def test_what_is_followed_comes_while_it_is_printed(site: EmbeddedSite, alice: Caller):
    """The first line is there before the job is told to end."""
    job = await alice.submit("echo first; while [ ! -e stop ]; do sleep 0.05; done; echo last")
    url = f"{site.addresses.gateway}/v1/jobs/{job['id']}/stdout?follow=1"
    async with (
        asyncio.timeout(30),
        aiohttp.ClientSession(headers={"Authorization": f"Bearer {alice.token}"}) as session,
        session.get(url) as answer,
    ):
        assert await answer.content.readline() == b"first\n"
        assert (await alice("PUT", at(job, "stop"), data=b"")).status == 201
        assert await answer.content.read() == b"last\n"


async def test_who_leaves_is_followed_no_longer(site: EmbeddedSite, alice: Caller):
    """A silent job is not looked at for somebody who has hung up."""
    job = await alice.submit("while [ ! -e stop ]; do sleep 0.05; done")
    await alice.until(job["id"], "active")
    url = f"{site.addresses.gateway}/v1/jobs/{job['id']}/stdout?follow=1"
    headers = {"Authorization": f"Bearer {alice.token}"}
    async with aiohttp.ClientSession(headers=headers) as session, session.get(url) as answer:
        assert answer.status == 200
    log = site.path("log", "gateway.log")
    async with asyncio.timeout(10):
        while f"/{job['id']}/stdout" not in log.read_text():  # noqa: ASYNC110 - a file's growth
            await asyncio.sleep(0.1)
    assert (await alice("PUT", at(job, "stop"), data=b"")).status == 201
    await alice.until(job["id"])
