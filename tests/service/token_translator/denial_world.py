"""What the tests of denial share: services with keys of their own, and what they ask."""

import asyncio
import contextlib
import json
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
from joserfc import jwk

from headgate.changes import Change, ChangeFeed, Stale
from headgate.clock import SystemClock
from headgate.peers import PeerSigner

ADMINISTRATORS = """
[[administrators]]
issuer = "{issuer}"
subjects = ["root-of-trust"]
[[administrators]]
issuer = "{issuer}"
groups = ["admins"]
max_auth_age = 600
"""
PEER = """
[[peers]]
instance = "{instance}"
keys = [{{ kty = "OKP", crv = "Ed25519", x = "{x}" }}]
verbs = {verbs}
"""
WHY = "lost laptop"


class Service:
    """Another service of the site, with a key of its own."""

    def __init__(self, instance: str, *verbs: str) -> None:
        self.instance = instance
        self.verbs = verbs
        self.key = jwk.OKPKey.generate_key("Ed25519")
        self.signer = PeerSigner(instance=instance, key=self.key, clock=SystemClock())

    def entry(self) -> str:
        """Its entry in the translator's TOML."""
        x = self.key.as_dict(private=False)["x"]
        return PEER.format(instance=self.instance, x=x, verbs=json.dumps(self.verbs))


IMPORTER = Service("importer", "suspend")
OTHER = Service("other", "suspend", "revoke", "changes.read")


def more(issuer: Any) -> str:
    """What its TOML has beside the usual."""
    return IMPORTER.entry() + OTHER.entry() + ADMINISTRATORS.format(issuer=issuer.url)


async def problem(response: Any, status: int, code: str) -> Any:
    """The problem of a refusal, once it is the expected one."""
    document = await response.json()
    assert (response.status, document["code"]) == (status, code), document
    return document


async def hold(site: Any, by: Service = IMPORTER, *, sub: str = "erin", **changes: Any) -> Any:
    """Suspend somebody as a service; the answer."""
    body = {"iss": site.issuer.url, "sub": sub, "reason": WHY, **changes}
    return await site.post("/v1/holds", body, peer=by.signer.headers(site.url))


async def held(site: Any, by: Service = IMPORTER, **changes: Any) -> Any:
    """Suspend, and the hold that is in force now."""
    answer = await hold(site, by, **changes)
    assert answer.status in {200, 201}, await answer.text()
    return await answer.json()


async def lift(site: Any, name: str, by: Service = IMPORTER) -> Any:
    """Lift as a service; the answer."""
    return await site.client.delete(f"/v1/holds/{name}", headers=by.signer.headers(site.url))


async def certificate(site: Any, key_line: str, sub: str = "erin") -> Any:
    """Ask for a certificate; the answer."""
    body = {"public_key": key_line}
    return await site.post("/v1/certificates", body, token=site.issuer.token(sub))


async def revoked(site: Any, certificate_line: str, folder: Path) -> bool:
    """Whether the served list revokes a certificate, as ssh-keygen sees it."""
    answer = await site.client.get("/v1/krl")
    (folder / "krl").write_bytes(await answer.read())
    (folder / "cert.pub").write_text(certificate_line)
    argv = ["ssh-keygen", "-Q", "-f", str(folder / "krl"), str(folder / "cert.pub")]
    ended = await asyncio.to_thread(
        subprocess.run, argv, check=False, capture_output=True, text=True
    )
    assert ended.returncode in {0, 1}, ended.stderr
    return ended.returncode == 1


async def until_revoked(site: Any, certificate_line: str, folder: Path) -> None:
    """Wait for it, asking again and again as nodes do."""
    async with asyncio.timeout(20):
        while True:
            answer = await site.client.get("/v1/krl")
            assert answer.status == 200
            if await revoked(site, certificate_line, folder):
                return


class Follower:
    """A feed as services follow it, and what it was told."""

    def __init__(self, feed: ChangeFeed) -> None:
        self.feed = feed
        self.heard: asyncio.Queue[Change | Stale] = asyncio.Queue()
        feed.subscribe(self.heard.put_nowait)

    async def denied(self, seconds: float = 5) -> str:
        """The subject of the next denial."""
        told = await asyncio.wait_for(self.heard.get(), seconds)
        assert isinstance(told, Change)
        return told.identity.sub


@contextlib.asynccontextmanager
async def following(site: Any, service: Service = OTHER) -> AsyncIterator[Follower]:
    """A service that follows the feed."""
    async with aiohttp.ClientSession() as session:
        feed = ChangeFeed(
            url=site.url, session=session, headers=service.signer.headers, clock=SystemClock()
        )
        task = asyncio.create_task(feed.follow())
        try:
            yield Follower(feed)
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
