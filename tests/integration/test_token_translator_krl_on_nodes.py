"""`headgate-krl-fetch` between the real translator and a real sshd: what is revoked is refused."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp.test_utils import unused_port

from headgate.command import Completed
from testbed.site import Site
from testbed.suite import TOKENS
from tests.integration.node_under_test import NodeUnderTest, new_key
from token_translator import krl_fetch

pytestmark = pytest.mark.site


@dataclass(frozen=True, slots=True)
class Fetching:
    """A node that believes the site's own authority, with its list from the site's translator."""

    node: NodeUnderTest
    http: aiohttp.ClientSession
    token: str

    @property
    def site(self) -> Site:
        """The site around it."""
        return self.node.site

    async def fetch(self, *more: str) -> Completed:
        """One turn of the timer, by the interpreter of the system, the file alone."""
        url = f"{self.site.addresses.token_translator}/v1/krl"
        file = ("--file", str(self.node.folder / "revoked_keys"))
        trusted = ("--user-ca", str(self.node.folder / "user_ca.pub"))
        argv = ("/usr/bin/python3", "-I", str(self.node.folder / "krl-fetch"), "--url", url, *file)
        return await self.site.exec((*argv, *trusted, *more))

    def status(self) -> dict[str, Any]:
        """What monitoring reads."""
        path = self.node.folder / "revoked_keys.status"
        document: dict[str, Any] = json.loads(path.read_text())
        return document

    async def certificate(self, name: str) -> tuple[Path, int]:
        """A key of alice's with a certificate of the translator's; its serial."""
        key = await asyncio.to_thread(new_key, self.node.clients / name)
        public = await asyncio.to_thread(key.with_suffix(".pub").read_text)
        async with self.http.post(
            f"{self.site.addresses.token_translator}/v1/certificates",
            json={"public_key": public},
            headers={"Authorization": f"Bearer {self.token}"},
        ) as answer:
            document = await answer.json()
            assert answer.status == 201, document
        await asyncio.to_thread(_keep, f"{key}-cert.pub", document["certificate"])
        return key, int(document["serial"])

    async def tokens(self, *words: str) -> None:
        """`headgate-tokens` on the translator's host, as root."""
        command = f"{self.site.addresses.venv}/bin/headgate-tokens"
        config = ("--config", str(self.site.path("conf", f"{TOKENS}.toml")))
        (await self.site.exec((command, words[0], *config, *words[1:]))).checked()


def _keep(path: str, text: str) -> None:
    Path(path).write_text(text)


@pytest.fixture(scope="module")
async def fetching(site: Site, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Fetching]:
    """A node as printed, whose list came by the first turn of the timer."""
    await site.import_accounts()
    node = NodeUnderTest.make(site, "fetching", unused_port(), tmp_path_factory.mktemp("clients"))
    program = Path(krl_fetch.__file__).read_bytes()  # noqa: ASYNC240 - once, while nobody waits
    node.write("krl-fetch", program, mode=0o755)
    (node.folder / "revoked_keys").unlink()
    async with aiohttp.ClientSession() as session:
        url = f"{site.addresses.token_translator}/v1/ca"
        async with session.get(url, headers={"Accept": "text/plain"}) as answer:
            node.write("user_ca.pub", await answer.text())
        await node.start()
        yield Fetching(node, session, await site.token("alice"))
    await site.stop("node-fetching")


async def test_krl_on_nodes_first_list_opens_the_node(fetching: Fetching) -> None:
    """A new node is closed until the first list is there, which the timer brings."""
    key, _ = await fetching.certificate("first")
    assert not await fetching.node.opens(key, "alice")
    done = await fetching.fetch()
    assert done.status == 0, done
    assert await fetching.node.opens(key, "alice")


async def test_krl_on_nodes_revoked_is_refused(fetching: Fetching) -> None:
    """A serial that was revoked is refused after the next turn, others are not."""
    await fetching.fetch()
    key, serial = await fetching.certificate("revoked")
    other, _ = await fetching.certificate("other")
    assert await fetching.node.opens(key, "alice")
    before = fetching.status()["version"]
    await fetching.tokens("revoke", "--serial", str(serial), "--reason", "a test")
    await _until_listed(fetching, before)
    assert not await fetching.node.opens(key, "alice")
    assert await fetching.node.opens(other, "alice")


async def _until_listed(fetching: Fetching, before: int) -> None:
    async with asyncio.timeout(30):
        while fetching.status()["version"] <= before:
            assert (await fetching.fetch()).status == 0


async def test_krl_on_nodes_translator_away(fetching: Fetching) -> None:
    """While the translator is away the list stays: nobody is locked out, nothing is forgotten."""
    await fetching.fetch()
    key, _ = await fetching.certificate("away")
    before = (fetching.node.folder / "revoked_keys").read_bytes()
    await fetching.site.stop("tokens")
    try:
        assert (await fetching.fetch()).status == 1
        assert (await fetching.fetch("--alarm-after", "0")).status == 2
        assert (fetching.node.folder / "revoked_keys").read_bytes() == before
        assert await fetching.node.opens(key, "alice")
    finally:
        await fetching.site.start("tokens")
    assert (await fetching.fetch()).status == 0


async def test_krl_on_nodes_check_compares_with_the_translator(fetching: Fetching) -> None:
    """`node-setup --check` proves this node against the running translator."""
    await fetching.fetch()
    node = fetching.node
    words: Sequence[object] = (
        *("node-setup", "--check", "--json", "--node", node.folder / "node.toml"),
        *("--tokens", fetching.site.addresses.token_translator, "--account", "alice"),
        *("--sshd-config", node.folder / "sshd_config", "--hostname", "127.0.0.1"),
    )
    findings = json.loads((await node.tokens(*words)).stdout)["findings"]
    found = {finding["check"]: finding for finding in findings}
    assert found["authorities are the site's"]["state"] == "ok"
    assert found["age of the revocation list"]["state"] == "ok"
    # Its host certificate is of an authority of the test's own.
    assert found["host certificate's authority"]["state"] == "failed"
