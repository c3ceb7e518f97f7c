"""`headgate-krl-fetch` and whoever serves the list: they can withhold it, and no more."""

import base64
import hashlib
import json
import subprocess
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from headgate.command import run
from tests.service.token_translator.krl_node import PROGRAM, Node, Translator, served

NAMESPACE = "krl@headgate"
C_LOCALE = ("/usr/bin/python3", "-E", "-s", "-X", "utf8=0", str(PROGRAM))
"""An interpreter as an old one is where no locale is set: it reads files as ASCII."""


@dataclass(frozen=True)
class Site:
    """A node, a translator, and authorities; lists and signatures are ssh-keygen's."""

    folder: Path
    node: Node
    translator: Translator

    def key(self, name: str, *kind: str) -> str:
        """An authority's key; its public line."""
        path = self.folder / name
        if not path.exists():
            argv = ["ssh-keygen", "-q", "-N", "", "-f", str(path), "-t", *(kind or ("ed25519",))]
            subprocess.run(argv, check=True)
        return path.with_suffix(".pub").read_text()

    def trusts(self, *names: str) -> None:
        """What the node's TrustedUserCAKeys holds."""
        lines = ["# authorities", "", *(self.key(name).strip() for name in names)]
        (self.node.folder / "user_ca.pub").write_text("\n".join(lines))

    def made(self, version: int, *serials: int, revoked: str = "") -> bytes:
        """A list."""
        words = "".join(f"serial: {serial}\n" for serial in serials)
        if revoked:
            words += f"key: {self.key(revoked)}"
        (self.folder / "spec").write_text(words)
        self.key("ca")
        argv = ["ssh-keygen", "-q", "-k", "-f", f"{self.folder}/made", "-z", str(version)]
        subprocess.run([*argv, "-s", f"{self.folder}/ca.pub", f"{self.folder}/spec"], check=True)
        return (self.folder / "made").read_bytes()

    def word(
        self,
        body: bytes,
        version: int,
        *by: str,
        ago: float = 0,
        namespace: str = NAMESPACE,
        statement: str = "",
    ) -> list[str]:
        """The headers with the signer's word."""
        digest, at = hashlib.sha256(body).hexdigest(), int(time.time() - ago)
        line = statement or f"v1;version={version};sha256={digest};at={at}"
        headers = [f"Headgate-KRL-Signed: {line}"]
        for name in by:
            self.key(name)
            argv = ["ssh-keygen", "-Y", "sign", "-f", f"{self.folder}/{name}", "-n", namespace]
            done = subprocess.run(argv, input=line.encode(), capture_output=True, check=True)
            signature = "".join(done.stdout.decode().splitlines()[1:-1])
            base64.b64decode(signature, validate=True)
            headers.append(f"Headgate-KRL-Signature: {signature}")
        return headers

    def serves(self, version: int, *serials: int, by: str = "ca", ago: float = 0) -> bytes:
        """A list from now on, with the word of a key."""
        body = self.made(version, *serials)
        self.translator.serves(body, f'"{version}"', *self.word(body, version, by, ago=ago))
        return body

    async def fetch(self, *more: str) -> tuple[int, str]:
        """One turn of the timer: its status and its words."""
        done = await self.node.fetch(self.translator.url, *more, signed=True)
        return done.status, done.stderr.decode()


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    """A node that trusts one authority."""
    node = Node(tmp_path / "node")
    node.folder.mkdir()
    async with served() as translator:
        one = Site(tmp_path, node, translator)
        one.trusts("ca")
        yield one


@pytest.mark.parametrize("kind", [("ed25519",), ("ecdsa", "-b", "384"), ("rsa", "-b", "3072")])
async def test_krl_fetch_believes_the_users_authority(site: Site, kind: tuple[str, ...]) -> None:
    """A list that it has signed is installed, and is as old as the signer says."""
    site.key("ca", *kind)
    site.trusts("other", "ca")
    body = site.serves(3, 7, ago=30)
    assert await site.fetch() == (0, "")
    assert site.node.file.read_bytes() == body
    status = site.node.status()
    assert status["signed"] is True
    assert 29 <= time.time() - float(str(status["confirmed_at"])) < 60


async def test_krl_fetch_one_of_two_signatures_is_enough(site: Site) -> None:
    """During a rotation a node that knows one of two keys needs no other."""
    body = site.made(3)
    for trusted in ("old", "new"):
        site.trusts(trusted)
        site.translator.serves(body, '"3"', *site.word(body, 3, "old", "new"))
        assert await site.fetch() == (0, "")


FORGED: dict[str, Callable[[Site, bytes], list[str]]] = {
    "no word": lambda *_: [],
    "no signature": lambda site, body: site.word(body, 4),
    "a stranger's": lambda site, body: site.word(body, 4, "stranger"),
    "for something else": lambda site, body: site.word(body, 4, "ca", namespace="file"),
    "of another list": lambda site, body: site.word(body + b"x", 4, "ca"),
    "of another version": lambda site, body: site.word(body, 5, "ca"),
    "of long ago": lambda site, body: site.word(body, 4, "ca", ago=1000),
    "of the future": lambda site, body: site.word(body, 4, "ca", ago=-1000),
    "before the one before": lambda site, body: site.word(body, 4, "ca", ago=800),
    "an altered word": lambda site, body: [
        site.word(body, 4)[0],
        site.word(body, 4, "ca", ago=5)[1],
    ],
    "no word at all": lambda site, body: site.word(body, 4, "ca", statement="v1;version=4"),
    "rubbish": lambda site, body: [site.word(body, 4)[0], "Headgate-KRL-Signature: AAAA"],
}


@pytest.mark.parametrize("forged", FORGED)
async def test_krl_fetch_believes_nobody_else(site: Site, forged: str) -> None:
    """An emptied list in anybody else's name is refused, and the last good one stays."""
    good = site.serves(3, 7)
    assert await site.fetch() == (0, "")
    body = site.made(4)
    site.translator.serves(body, '"4"', *FORGED[forged](site, body))
    status, words = await site.fetch()
    assert (status, site.node.file.read_bytes()) == (1, good)
    assert "stays" in words
    site.serves(4)
    assert await site.fetch() == (0, "")


async def test_krl_fetch_not_modified_needs_the_word_too(site: Site) -> None:
    """Whoever says for ever that nothing has changed is found out: the list grows old."""
    body = site.serves(3, 7)
    await site.fetch()
    unsigned = b"HTTP/1.1 304 Not Modified\r\n\r\n"
    site.translator.says = unsigned
    assert (await site.fetch())[0] == 1
    headers = site.word(body, 3, "ca")
    said = "".join(f"{line}\r\n" for line in headers).encode()
    site.translator.says = b"HTTP/1.1 304 Not Modified\r\n" + said + b"\r\n"
    assert await site.fetch() == (0, "")
    assert b'If-None-Match: "3"' in site.translator.asked[-1]
    aged = {**site.node.status(), "confirmed_at": time.time() - 7200}
    (site.node.folder / "krl.status").write_text(json.dumps(aged))
    site.translator.says = unsigned
    status, words = await site.fetch()
    assert (status, "ALARM" in words) == (2, True)


async def test_krl_fetch_an_old_word_again(site: Site) -> None:
    """A list that was signed once, shown again and again, alarms when it is too old."""
    site.serves(3, 7, ago=600)
    assert (await site.fetch("--alarm-after", "300"))[0] == 2
    assert (await site.fetch("--alarm-after", "900"))[0] == 0


async def test_krl_fetch_an_older_list_that_is_signed(site: Site) -> None:
    """A true list of a lower version is refused, as is a list signed by whom the last revokes."""
    site.serves(9, 7)
    await site.fetch()
    site.serves(8)
    assert "version 8 is older than 9" in (await site.fetch())[1]
    site.trusts("ca", "stolen")
    body = site.made(10, revoked="stolen")
    site.translator.serves(body, '"10"', *site.word(body, 10, "ca"))
    assert await site.fetch() == (0, "")
    site.serves(11, by="stolen")
    assert (await site.fetch())[0] == 1
    assert site.node.file.read_bytes() == body


async def test_krl_fetch_without_authorities(site: Site) -> None:
    """Without a file of authorities, or an ssh-keygen that verifies, nothing is believed."""
    site.serves(3)
    (site.node.folder / "user_ca.pub").unlink()
    status, words = await site.fetch()
    assert (status, "user_ca.pub" in words, "Traceback" in words) == (2, True, False)
    site.trusts("ca")
    old = site.folder / "old-ssh-keygen"
    old.write_text('#!/bin/sh\n[ "$1" = -Y ] && exit 1\nexec ssh-keygen "$@"\n')
    old.chmod(0o755)
    assert (await site.fetch("--ssh-keygen", str(old)))[0] == 2
    assert not site.node.file.exists()
    done = await site.node.fetch(site.translator.url, "--ssh-keygen", str(old))
    assert (done.status, site.node.status()["signed"]) == (0, False)


async def test_krl_fetch_whatever_the_locale(site: Site) -> None:
    """Names that are no ASCII, in the file of authorities or in an answer, are no surprise."""
    key = site.key("ca").split()
    (site.node.folder / "user_ca.pub").write_text(f"# C\u00e9\n{key[0]} {key[1]} Z\u00fcrich\n")
    body = site.serves(3)
    program = [*C_LOCALE, "--url", site.translator.url, "--file", str(site.node.file)]
    argv = [*program, "--user-ca", str(site.node.folder / "user_ca.pub")]
    done = await run(argv, timeout=30, env={"LC_ALL": "POSIX", "PYTHONCOERCECLOCALE": "0"})
    assert (done.status, site.node.file.read_bytes()) == (0, body)
    rubbish = [site.word(body, 3)[0], "Headgate-KRL-Signature: \u00e9\u00ff"]
    site.translator.serves(site.made(3, 8), '"4"', *rubbish)
    done = await run(argv, timeout=30, env={"LC_ALL": "POSIX", "PYTHONCOERCECLOCALE": "0"})
    assert (done.status, b"Traceback" in done.stderr) == (1, False)
    site.translator.serves(body, '"4"', *rubbish)
    done = await run(argv, timeout=30, env={"LC_ALL": "POSIX", "PYTHONCOERCECLOCALE": "0"})
    assert (done.status, b"Traceback" in done.stderr) == (1, False), done.stderr


async def test_krl_fetch_after_a_time_without_signatures(site: Site) -> None:
    """A list from before signatures were asked for proves nothing by its ETag."""
    site.translator.serves(site.made(3), '"3"')
    await site.node.fetch(site.translator.url)
    site.translator.says = b"HTTP/1.1 304 Not Modified\r\n\r\n"
    assert (await site.fetch())[0] == 1
    site.serves(3, 7)
    assert await site.fetch() == (0, "")
