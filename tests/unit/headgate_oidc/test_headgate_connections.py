"""What a client can do to a service before any handler sees a request, over real sockets."""

import asyncio
import contextlib
import json
import zlib
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import msgspec
import pytest
from aiohttp import web

from headgate import connections
from headgate import web as shared_web
from headgate.problems import MAX_FAULTS
from headgate.service import ListenSettings, listening
from headgate.web import create_app, json_body, json_response

SECRET = "eyJhbGciOiJSUzI1NiJ9.somebodys-token.signature"
HEAD = b"Host: x\r\nConnection: close\r\n"


class Body(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A body with a list."""

    words: tuple[str, ...] = ()


async def echo(request: web.Request) -> web.Response:
    """Read the body, say how much it was."""
    return json_response({"words": len((await json_body(request, Body)).words)})


@contextlib.asynccontextmanager
async def serving() -> AsyncIterator[tuple[str, int]]:
    """A service as all of ours are."""
    app = create_app(max_body_bytes=100_000)
    app.router.add_post("/", echo)
    async with listening(app, ListenSettings()) as url:
        yield "127.0.0.1", urlsplit(url).port or 0


async def exchange(sent: bytes) -> bytes:
    """Everything a service answers until it closes the connection."""
    async with serving() as (host, port):
        reader, writer = await asyncio.open_connection(host, port)
        try:
            writer.write(sent)
            async with asyncio.timeout(20):
                return await reader.read()
        finally:
            writer.close()
            await writer.wait_closed()


def post(body: bytes, *headers: bytes) -> bytes:
    """A request with a body."""
    length = f"Content-Length: {len(body)}\r\n".encode()
    return b"POST / HTTP/1.1\r\n" + HEAD + length + b"".join(headers) + b"\r\n" + body


@pytest.mark.parametrize(
    "sent",
    [
        f"GET / HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {SECRET}\x01\r\n\r\n",
        f"GET / HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {SECRET}\0\r\n\r\n",
        f"GET / HTTP/1.1\r\nHost: x\r\nAuthorization : Bearer {SECRET}\r\n\r\n",
        f"GET / HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer\r\n {SECRET}\r\n\r\n",
        f"GET /?token={SECRET} HTTP/9\r\nHost: x\r\n\r\n",
        f"GET / HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {SECRET * 2000}\r\n\r\n",
        f"{SECRET}\r\n\r\n",
    ],
)
async def test_a_malformed_request_is_neither_logged_nor_sent_back(
    sent: str, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
):
    """A token in a request that is not HTTP reaches neither a log nor the answer."""
    answer = await exchange(sent.encode("latin-1"))
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.0 400")
    assert b"Content-Type: application/problem+json" in head
    assert json.loads(body)["code"] == "malformed"
    said = capfd.readouterr()
    assert "somebodys-token" not in answer.decode() + said.out + said.err + caplog.text


@pytest.mark.parametrize(
    "headers",
    [
        b"Content-Length: 6\r\nTransfer-Encoding: chunked\r\n",
        b"Content-Length: 2\r\nContent-Length: 4\r\n",
        b"Content-Length: -1\r\n",
        b"Content-Length: +2\r\n",
        b"Content-Length: 2, 2\r\n",
        b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
        b"Transfer-Encoding: xchunked\r\n",
    ],
)
async def test_a_request_of_two_lengths_is_no_request(headers: bytes):
    """Where a proxy could see other requests than we do (smuggling), the connection ends."""
    smuggled = b"\r\n0\r\n\r\nPOST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"
    answer = await exchange(b"POST / HTTP/1.1\r\nHost: x\r\n" + headers + smuggled)
    assert answer.startswith(b"HTTP/1.0 400")
    assert answer.count(b"HTTP/1.") == 1


@pytest.mark.parametrize("encoding", [b"gzip", b"deflate"])
async def test_a_body_that_is_not_encoded_as_it_says(encoding: bytes):
    """Garbage that claims to be compressed is the caller's fault, not a bug of ours."""
    answer = await exchange(post(b"garbage", b"Content-Encoding: " + encoding + b"\r\n"))
    assert answer.startswith(b"HTTP/1.1 400")


async def test_a_compressed_bomb_is_too_large():
    """What counts is the size after decompression, and it is not read beyond the limit."""
    bomb = zlib.compress(bytes(50_000_000), 9)
    answer = await exchange(post(bomb, b"Content-Encoding: deflate\r\n"))
    assert answer.startswith(b"HTTP/1.1 413")


async def test_a_body_that_trickles_is_not_waited_for(monkeypatch: pytest.MonkeyPatch):
    """A request that never ends is answered 408 and does not hold its handler."""
    monkeypatch.setattr(shared_web, "BODY_SECONDS", 0.1)
    async with serving() as (host, port):
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(b"POST / HTTP/1.1\r\n" + HEAD + b"Content-Length: 50\r\n\r\n{")
        async with asyncio.timeout(20):
            assert (await reader.readline()).startswith(b"HTTP/1.1 408")
        writer.close()
        await writer.wait_closed()


@pytest.mark.parametrize("sent", [b"", b"POST / HTTP/1.1\r\nHost: x\r\nX-Slow: "])
async def test_a_connection_without_a_request_is_closed(
    sent: bytes, monkeypatch: pytest.MonkeyPatch
):
    """Connections that say nothing, or never finish their head, are not kept for an hour."""
    quick = {**shared_web.CONNECTION, "keepalive_timeout": 0.2}
    monkeypatch.setattr(connections, "CONNECTION", quick)
    assert await exchange(sent) == b""


@pytest.mark.parametrize(
    "document",
    [
        {"words": [1] * 40_000},
        {f"f{number}": 1 for number in range(5_000)},
    ],
)
async def test_faults_without_end_are_told_in_part(document: object):
    """A body that is wrong in thousands of places costs neither seconds nor megabytes."""
    answer = await exchange(post(msgspec.json.encode(document)))
    _, _, body = answer.partition(b"\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400")
    assert len(json.loads(body)["errors"]) == MAX_FAULTS


async def test_a_body_nested_without_end():
    """Deep nesting is refused as bad JSON."""
    answer = await exchange(post(b"[" * 90_000))
    assert answer.startswith(b"HTTP/1.1 400")
