"""`headgate-krl-fetch` as a node runs it: the file alone, the system's interpreter, real lists."""

import ast
import asyncio
import fcntl
import json
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from headgate.command import run
from tests.service.token_translator.krl_node import (
    PROGRAM,
    Node,
    Translator,
    certificate,
    served,
)


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


MakeList = Callable[..., bytes]


@pytest.fixture
def make_list(tmp_path: Path) -> MakeList:
    """Makes revocation lists with ssh-keygen."""
    authority = tmp_path / "ca"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", authority], check=True)

    def make(version: int, *serials: int) -> bytes:
        (tmp_path / "spec").write_text("".join(f"serial: {serial}\n" for serial in serials))
        made = tmp_path / "made"
        subprocess.run(
            ["ssh-keygen", "-q", "-k", "-f", made, "-z", str(version), "-s", f"{authority}.pub",
             tmp_path / "spec"], check=True,
        )  # fmt: skip
        return made.read_bytes()

    return make


async def test_krl_fetch_installs_what_sshd_can_read(
    node: Node, translator: Translator, make_list: MakeList
) -> None:
    """The first turn puts the list there, readable by all, with its version in the status."""
    body = make_list(3, 7)
    translator.serves(body)
    done = await node.fetch(translator.url)
    assert (done.status, done.stderr) == (0, b"")
    assert node.file.read_bytes() == body
    assert node.file.stat().st_mode & 0o777 == 0o644
    assert {"version": 3, "etag": '"one"', "result": "confirmed"}.items() <= node.status().items()
    assert sorted(path.name for path in node.folder.iterdir()) == [
        ".krl.lock", "krl", "krl.status",
    ]  # fmt: skip


async def test_krl_fetch_asks_with_the_etag_and_confirms(
    node: Node, translator: Translator, make_list: MakeList
) -> None:
    """An unchanged list is not sent again; that it was confirmed is written down."""
    translator.serves(make_list(3))
    await node.fetch(translator.url)
    before, inode = node.status(), node.file.stat().st_ino
    translator.says = b"HTTP/1.1 304 Not Modified\r\n\r\n"
    assert (await node.fetch(translator.url)).status == 0
    assert b'If-None-Match: "one"' in translator.asked[1]
    assert node.file.stat().st_ino == inode
    assert float(str(node.status()["confirmed_at"])) > float(str(before["confirmed_at"]))


async def test_krl_fetch_asks_anew_for_a_list_that_was_altered(
    node: Node, translator: Translator, make_list: MakeList
) -> None:
    """A list changed by hand is not what the ETag is of: it is fetched and replaced."""
    body = make_list(3, 7)
    translator.serves(body)
    await node.fetch(translator.url)
    node.file.write_bytes(make_list(3))
    assert (await node.fetch(translator.url)).status == 0
    assert b"If-None-Match" not in translator.asked[1]
    assert node.file.read_bytes() == body


async def test_krl_fetch_refuses_a_rollback(
    node: Node, translator: Translator, make_list: MakeList
) -> None:
    """A lower version is refused, also when the file is gone, unless the administrator says so."""
    new, old = make_list(9, 7), make_list(8)
    translator.serves(new)
    await node.fetch(translator.url)
    translator.serves(old, '"two"')
    done = await node.fetch(translator.url)
    assert done.status == 1
    assert b"version 8 is older than 9" in done.stderr
    assert node.file.read_bytes() == new
    assert (await node.fetch(translator.url, "--accept-rollback")).status == 0
    assert node.file.read_bytes() == old
    translator.serves(new)
    await node.fetch(translator.url)
    node.file.unlink()
    translator.serves(old)
    assert (await node.fetch(translator.url)).status == 2
    assert not node.file.exists()


def _bad_answers(body: bytes) -> dict[str, bytes]:
    ok = b"HTTP/1.1 200 OK\r\n"
    sized = ok + b"Content-Length: %d\r\n\r\n"
    broken = body[:-10] + b"\xff" * 10
    return {
        "a page": sized % 6 + b"<html>",
        "nothing": sized % 0,
        "a header alone": sized % 12 + body[:12],
        "half a list": sized % (len(body) // 2) + body[: len(body) // 2],
        "fewer bytes than said": sized % (len(body) + 1) + body,
        "no length": ok + b"\r\n" + body,
        "garbage at its end": sized % len(broken) + broken,
        "a failure": b"HTTP/1.1 500 Oh\r\nContent-Length: %d\r\n\r\n" % len(body) + body,
        "not modified, unasked": b"HTTP/1.1 304 Not Modified\r\n\r\n",
        "no HTTP": b"SSH-2.0-OpenSSH_9.2\r\n",
        "silence": b"",
        "a chunk cut short": ok + b"Transfer-Encoding: chunked\r\n\r\nfff\r\n" + body,
    }


@pytest.mark.parametrize("name", sorted(_bad_answers(b"x" * 64)))
async def test_krl_fetch_keeps_the_last_good_list(
    node: Node, translator: Translator, make_list: MakeList, name: str
) -> None:
    """Whatever the answer, the list that is there stays, and the exit status says that it did."""
    good = make_list(3, 7)
    translator.serves(good, "")
    await node.fetch(translator.url)
    translator.says = _bad_answers(make_list(4, *range(100, 160, 2)))[name]
    done = await node.fetch(translator.url)
    assert (done.status, node.file.read_bytes()) == (1, good), name
    assert b"stays" in done.stderr
    assert node.status()["result"] == "failed"
    assert not [path for path in node.folder.iterdir() if path.name.startswith(".krl.")][1:]


async def test_krl_fetch_makes_no_list_of_its_own(node: Node, translator: Translator) -> None:
    """Without a list and without an answer there is an alarm, and still no list: fail closed."""
    done = await node.fetch(translator.url)
    assert (done.status, node.file.exists()) == (2, False)
    assert b"ALARM" in done.stderr
    checked = await node.fetch(translator.url, "--check")
    assert checked.status == 2
    assert checked.stderr.endswith(b"ALARM: there is no list\n")


async def test_krl_fetch_follows_no_redirect(
    node: Node, translator: Translator, make_list: MakeList
) -> None:
    """A redirect is refused, and where it points to is never asked."""
    async with served() as elsewhere:
        elsewhere.serves(make_list(5))
        translator.says = (
            f"HTTP/1.1 302 Found\r\nLocation: {elsewhere.url}\r\nContent-Length: 0\r\n\r\n".encode()
        )
        assert (await node.fetch(translator.url)).status == 2
        assert (len(translator.asked), elsewhere.asked) == (1, [])


async def test_krl_fetch_has_a_size_limit(
    node: Node, translator: Translator, make_list: MakeList
) -> None:
    """A list beyond the limit is refused without being read to its end."""
    translator.serves(make_list(5, *range(1, 2000, 2)))
    done = await node.fetch(translator.url, "--max-bytes", "100")
    assert done.status == 2
    assert b"larger than 100 bytes" in done.stderr


async def test_krl_fetch_has_one_deadline_for_all_of_it(
    node: Node, translator: Translator, make_list: MakeList
) -> None:
    """An answer that comes byte by byte ends the turn at the deadline, not at each byte's."""
    translator.serves(make_list(5))
    translator.pause = 0.2
    done = await node.fetch(translator.url, "--timeout", "1")
    assert done.status == 2
    assert b"did not end within 1 s" in done.stderr


async def test_krl_fetch_alarms_on_age(
    node: Node, translator: Translator, make_list: MakeList
) -> None:
    """A list that nobody confirmed for too long is an alarm, with and without a fetch."""
    translator.serves(make_list(5))
    await node.fetch(translator.url)
    assert (await node.fetch(translator.url, "--check")).status == 0
    status = node.status()
    aged = float(str(status["confirmed_at"])) - 7200
    (node.folder / "krl.status").write_text(json.dumps({**status, "confirmed_at": aged}))
    asked = len(translator.asked)
    done = await node.fetch(translator.url, "--check")
    assert (done.status, len(translator.asked)) == (2, asked)
    assert b"ALARM: the list is too old: of 72" in done.stderr
    translator.says = b""
    done = await node.fetch(translator.url)
    assert (done.status, node.file.exists()) == (2, True)
    assert b"ALARM" in done.stderr


@pytest.mark.parametrize(
    "status",
    [
        "{",
        "[]",
        '{"confirmed_at": NaN, "version": 1}',
        '{"confirmed_at": 1, "version": Infinity}',
        '{"confirmed_at": 1, "version": 18446744073709551615}',
        "\udcff",
        "[" * 60_000,
        "x" * 100_000,
    ],
    ids=range(8),
)
async def test_krl_fetch_trusts_no_broken_status(
    node: Node, translator: Translator, make_list: MakeList, status: str
) -> None:
    """A status that cannot be read proves nothing: the look alarms, the next fetch mends it."""
    translator.serves(make_list(5))
    await node.fetch(translator.url)
    (node.folder / "krl.status").write_bytes(status.encode(errors="surrogateescape"))
    assert (await node.fetch(translator.url, "--check")).status == 2
    assert (await node.fetch(translator.url)).status == 0


async def test_krl_fetch_in_the_future_is_no_proof(
    node: Node, translator: Translator, make_list: MakeList
) -> None:
    """After a clock was set back, an old confirmation does not look fresh for years."""
    translator.serves(make_list(5))
    await node.fetch(translator.url)
    later = {**node.status(), "confirmed_at": 4e9}
    (node.folder / "krl.status").write_text(json.dumps(later))
    assert (await node.fetch(translator.url, "--check")).status == 2


async def test_krl_fetch_runs_once_at_a_time(
    node: Node, translator: Translator, make_list: MakeList
) -> None:
    """While one run holds the lock, another leaves at once and asks nothing."""
    translator.serves(make_list(5))
    with (node.folder / ".krl.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert (await node.fetch(translator.url)).status == 75
    assert translator.asked == []
    assert (await node.fetch(translator.url)).status == 0


async def test_krl_fetch_writes_through_no_link(
    node: Node, translator: Translator, make_list: MakeList, tmp_path: Path
) -> None:
    """A link is not followed and what it points to stays as it is; a status takes its place."""
    victim = tmp_path / "victim"
    victim.write_text("mine")
    for name, status in (("krl", 2), (".krl.lock", 2), ("krl.status", 0)):
        (node.folder / name).unlink(missing_ok=True)
        (node.folder / name).symlink_to(victim)
        translator.serves(make_list(5))
        assert (await node.fetch(translator.url)).status == status
        assert victim.read_text() == "mine"
        (node.folder / name).unlink(missing_ok=True)


@pytest.mark.parametrize(
    "url",
    [
        "http://tokens.example.org/v1/krl",
        "ftp://127.0.0.1/v1/krl",
        "file:///etc/passwd",
        "https://user:secret@127.0.0.1/v1/krl",
        "https://127.0.0.1:99999/v1/krl",
        "https:///v1/krl",
    ],
)
async def test_krl_fetch_refuses_addresses_that_prove_nothing(node: Node, url: str) -> None:
    """Plain http to another machine, other schemes and credentials in the address are refused."""
    done = await node.fetch(url)
    assert done.status == 64
    assert b"--url" in done.stderr
    assert not list(node.folder.iterdir())


async def test_krl_fetch_checks_the_servers_certificate(
    node: Node, make_list: MakeList, tmp_path: Path
) -> None:
    """Over https only a server with a trusted certificate for its name is believed."""
    path = await asyncio.to_thread(certificate, tmp_path)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(path)
    async with served(tls) as translator:
        translator.serves(make_list(5))
        done = await node.fetch(translator.url)
        assert (done.status, translator.asked) == (2, [])
        assert b"CERTIFICATE_VERIFY_FAILED" in done.stderr
        assert (await node.fetch(translator.url, "--ca-file", str(path))).status == 0
        other = translator.url.replace("127.0.0.1", "localhost")
        assert (await node.fetch(other, "--ca-file", str(path))).status == 1


async def test_krl_fetch_reads_its_options_from_a_file(
    node: Node, translator: Translator, make_list: MakeList
) -> None:
    """A node's options can be in a file, one a line, with comments."""
    translator.serves(make_list(5))
    options = node.folder / "options"
    options.write_text(
        f"# of this node\n\n--url {translator.url}\n--file {node.file}\n--no-signature\n"
    )
    argv = ("/usr/bin/python3", "-I", str(PROGRAM), f"@{options}")
    assert (await run(argv, timeout=30)).status == 0
    assert node.file.exists()


def test_krl_fetch_needs_no_more_than_an_old_python() -> None:
    """It parses as Python 3.6 and imports the standard library only."""
    tree = ast.parse(PROGRAM.read_text(), feature_version=(3, 6))
    names = {
        name.split(".")[0]
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert names <= sys.stdlib_module_names
    assert PROGRAM.stat().st_mode & 0o111
