"""`headgate-krl-fetch` and a translator whose words, not only its lists, are wrong."""

import json
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.service.token_translator.krl_node import Node, Translator, served


@pytest.fixture
async def translator() -> AsyncIterator[Translator]:
    """A translator that is up."""
    async with served() as one:
        yield one


@pytest.fixture
def node(tmp_path: Path) -> Node:
    """A node without a list."""
    folder = tmp_path / "node"
    folder.mkdir()
    return Node(folder)


def listed(node: Node, version: int) -> bytes:
    """An empty list of that version, made by ssh-keygen."""
    made = node.folder.parent / "made"
    argv = ("ssh-keygen", "-q", "-k", "-f", made, "-z", str(version), "/dev/null")
    subprocess.run(argv, check=True)
    return made.read_bytes()


@pytest.mark.parametrize("version", [2**32 + 4, 2**62 + 1, 2**64 - 1])
async def test_krl_fetch_refuses_a_version_that_nothing_could_follow(
    node: Node, translator: Translator, version: int
) -> None:
    """A version far above the last one is refused, so that the true ones after it are taken."""
    translator.serves(listed(node, 3))
    await node.fetch(translator.url)
    translator.serves(listed(node, version))
    assert (await node.fetch(translator.url)).status == 1
    body = listed(node, 4)
    translator.serves(body)
    assert (await node.fetch(translator.url)).status == 0
    assert node.file.read_bytes() == body


async def test_krl_fetch_gets_over_a_version_that_was_once_taken(
    node: Node, translator: Translator
) -> None:
    """A list with such a version, from before it was refused, does not stay for ever."""
    node.file.write_bytes(listed(node, 2**64 - 1))
    body = listed(node, 4)
    translator.serves(body)
    assert (await node.fetch(translator.url)).status == 0
    assert node.file.read_bytes() == body


@pytest.mark.parametrize(
    "etag",
    [
        "one",
        '""',
        '"a b"',
        '"a"b"',
        '"\u00e9"',
        '"' + "x" * 129 + '"',
        '"' + "\u00e9" * 12_000 + '"',
    ],
    ids=range(7),
)
async def test_krl_fetch_keeps_no_etag_that_is_none(
    node: Node, translator: Translator, etag: str
) -> None:
    """What is no short ETag of RFC 9110 is neither kept nor sent back."""
    translator.serves(listed(node, 3), etag)
    for _ in range(2):
        assert (await node.fetch(translator.url)).status == 0
    assert node.status()["etag"] == ""
    assert b"If-None-Match" not in translator.asked[1]


@pytest.mark.parametrize("etag", ["x" * 9_000, '"a"\r\nX-More: 1'])
async def test_krl_fetch_sends_no_etag_of_a_status_that_is_none(
    node: Node, translator: Translator, etag: str
) -> None:
    """An ETag that an earlier release kept, or somebody wrote, is not sent either."""
    translator.serves(listed(node, 3), 'W/"one"')
    await node.fetch(translator.url)
    assert node.status()["etag"] == 'W/"one"'
    (node.folder / "krl.status").write_text(json.dumps({**node.status(), "etag": etag}))
    assert (await node.fetch(translator.url)).status == 0
    assert b"If-None-Match" not in translator.asked[1]


@pytest.mark.parametrize(
    ("status", "asked"),
    [(400, 3), (412, 3), (431, 3), (401, 2), (403, 2), (404, 2), (429, 2), (500, 2)],
)
async def test_krl_fetch_asks_once_more_without_its_etag(
    node: Node, translator: Translator, status: int, asked: int
) -> None:
    """A question that is refused as such is asked again without the ETag, and only once."""
    translator.serves(listed(node, 3))
    await node.fetch(translator.url)
    translator.says = b"HTTP/1.1 %d No\r\nContent-Length: 0\r\n\r\n" % status
    assert (await node.fetch(translator.url)).status == 1
    assert [b"If-None-Match" in one for one in translator.asked] == [False, True, False][:asked]


@pytest.mark.parametrize(
    "says",
    [
        b"HTTP/1.1 500 \x1b]0;x\x07\x1b[31m\x00\x9b1mBOO\r\nContent-Length: 0\r\n\r\n",
        b"\x1b[31m\x00" + b"\xe9" * 60_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: \x1b[31m" + b"\xe9" * 60_000 + b"\r\n\r\nx",
    ],
    ids=["reason", "no HTTP", "length"],
)
async def test_krl_fetch_prints_what_a_server_said_as_text(
    node: Node, translator: Translator, says: bytes
) -> None:
    """A server's words reach a terminal and the status escaped, and only their beginning does."""
    translator.serves(listed(node, 3))
    await node.fetch(translator.url)
    translator.says = says
    done = await node.fetch(translator.url)
    assert (done.status, len(done.stderr) < 600) == (1, True)
    assert done.stderr.decode("ascii").rstrip("\n").isprintable()
    assert (node.folder / "krl.status").stat().st_size < 2_000
