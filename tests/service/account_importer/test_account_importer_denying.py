"""Blocks become holds at the token translator, over real HTTP, whatever crashes; and go again."""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from joserfc import jwk

from account_importer.denying import AWAY_SECONDS, LONGEST_PAUSE, Denying, TranslatorClient
from headgate.clock import SystemClock
from headgate.peers import PeerSettings, PeerSigner, PeerVerifier

PEER_KEY = jwk.OKPKey.generate_key("Ed25519")


class Translator:
    """The translator's routes for holds, as its service tests have them; fails as it is told."""

    def __init__(self) -> None:
        self.url = ""
        self.holds: dict[str, dict[str, str]] = {}
        self.placed = 0
        self.status = 0
        self.refused: set[str] = set()
        self.tried = 0
        self.verifier: PeerVerifier

    def listen(self, url: str) -> None:
        """Accept peers that call this URL."""
        self.url = url
        public = {name: str(value) for name, value in PEER_KEY.as_dict(private=False).items()}
        peer = PeerSettings(instance="importer", keys=(public,), verbs=frozenset({"suspend"}))
        self.verifier = PeerVerifier(peers=[peer], audience=url, clock=SystemClock())

    @property
    def held(self) -> dict[str, str]:
        """Who is held, and why."""
        return {hold["sub"]: hold["reason"] for hold in self.holds.values()}

    async def place(self, request: web.Request) -> web.Response:
        """POST /v1/holds: the same again is the same hold."""
        self.verifier.verify(request.headers["Headgate-Peer"]).require("suspend")
        body = await request.json()
        if self.status:
            return web.json_response({"code": "away"}, status=self.status)
        if body["sub"] in self.refused:
            self.tried += 1
            return web.json_response({"code": "suspends_nobody"}, status=400)
        for name, hold in self.holds.items():
            if hold["sub"] == body["sub"]:
                return web.json_response({"id": name}, status=200)
        self.placed += 1
        name = str(uuid4())
        self.holds[name] = body
        return web.json_response({"id": name}, status=201)

    async def lift(self, request: web.Request) -> web.Response:
        """DELETE /v1/holds/{id}."""
        self.verifier.verify(request.headers["Headgate-Peer"]).require("suspend")
        if self.status:
            return web.json_response({"code": "away"}, status=self.status)
        self.holds.pop(request.match_info["id"], None)
        return web.Response(status=204)


@pytest.fixture
async def translator() -> AsyncIterator[Translator]:
    """One that listens."""
    made = Translator()
    app = web.Application()
    app.router.add_post("/v1/holds", made.place)
    app.router.add_delete("/v1/holds/{id}", made.lift)
    async with TestServer(app) as server:
        made.listen(str(server.make_url("")))
        yield made


def denying(site: Any, translator: Translator) -> Denying:
    """As the service puts it together; a new one is a new process."""
    signer = PeerSigner(instance="importer", key=PEER_KEY, clock=SystemClock())
    client = TranslatorClient(url=translator.url, session=site.session, headers=signer.headers)
    return Denying(store=site.store(), translator=client, realm="r", clock=site.clock)


async def subject(site: Any, name: str) -> str:
    """A person's subject."""
    return str(site.issuer.directory.user(name).id)


async def test_a_block_becomes_a_hold_and_an_unblock_lifts_it(site: Any, translator: Translator):
    """Once each, with words for the person; nothing is said while nothing changes."""
    await site.settle()
    telling = denying(site, translator)
    await telling.turn()
    assert translator.held == {}
    bob = await subject(site, "bob")
    site.issuer.directory.change("bob", active=False)
    await site.importer().pull()
    await telling.turn()
    await telling.turn()
    assert translator.held == {bob: "your account at the identity provider is inactive"}
    assert translator.placed == 1
    site.issuer.directory.change("bob", active=True)
    await site.importer().pull()
    await telling.turn()
    assert set(translator.held) == {bob}  # the account waits for an approval still
    await site.settle()
    await telling.turn()
    assert translator.held == {}
    site.issuer.directory.delete("bob")
    await site.importer().pull()
    await telling.turn()
    assert translator.held == {bob: "the identity provider does not know you any more"}


async def test_an_end_date_that_passes_is_told_without_a_reading(site: Any, translator: Translator):
    """The interface calls them blocked from that second on, and so does the translator."""
    carol = await subject(site, "carol")
    ends = site.clock.now() + timedelta(hours=1)
    site.issuer.directory.change("carol", end_time=ends)
    await site.settle()
    telling = denying(site, translator)
    await telling.turn()
    assert translator.held == {}
    site.clock.advance(3601)
    await telling.turn()
    assert translator.held == {carol: "your account at the identity provider has ended"}
    await site.importer().pull()
    await telling.turn()
    assert translator.placed == 1


async def test_a_translator_that_is_away_is_told_later(site: Any, translator: Translator):
    """It is asked again after a while, by whatever process there is then."""
    await site.settle()
    for name in ("bob", "carol"):
        site.issuer.directory.change(name, active=False)
    await site.importer().pull()
    translator.status = 503
    telling = denying(site, translator)
    await telling.turn()
    translator.status = 0
    await telling.turn()
    assert translator.held == {}
    site.clock.advance(AWAY_SECONDS)
    await telling.turn()
    assert len(translator.held) == 2
    nobody = denying(site, translator)
    nobody._translator._url = "http://127.0.0.1:1"
    site.issuer.directory.change("alice", active=False)
    await site.importer().pull()
    await nobody.turn()
    await denying(site, translator).turn()
    assert len(translator.held) == 3


async def test_a_refusal_of_one_does_not_hold_up_the_others(site: Any, translator: Translator):
    """What the translator will not take is logged and tried again; everybody else is held."""
    await site.settle()
    bob, carol = [await subject(site, name) for name in ("bob", "carol")]
    for name in ("bob", "carol"):
        site.issuer.directory.change(name, active=False)
    await site.importer().pull()
    translator.refused = {bob}
    telling = denying(site, translator)
    await telling.turn()
    assert set(translator.held) == {carol}
    translator.refused = set()
    site.clock.advance(AWAY_SECONDS)
    await telling.turn()
    assert set(translator.held) == {bob, carol}


async def test_many_refusals_do_not_hold_up_the_others(
    site: Any, translator: Translator, monkeypatch: pytest.MonkeyPatch
):
    """Whoever is refused comes again later and later; those behind them in the line are told of."""
    monkeypatch.setattr("account_importer.denying.AT_ONCE", 1)
    await site.settle()
    subjects = {name: await subject(site, name) for name in ("bob", "carol", "alice")}
    for name in subjects:
        site.issuer.directory.change(name, active=False)
        site.clock.advance(1)
        await site.importer().pull()
    translator.refused = {subjects["bob"], subjects["carol"]}
    telling = denying(site, translator)
    for _ in range(3):
        await telling.turn()
    assert set(translator.held) == {subjects["alice"]}
    tried = translator.tried
    await telling.turn()
    assert translator.tried == tried
    for pause in (AWAY_SECONDS, 2 * AWAY_SECONDS, 4 * AWAY_SECONDS):
        site.clock.advance(pause - 0.1)
        await telling.turn()
        assert translator.tried == tried
        site.clock.advance(0.1)
        for _ in range(2):
            await telling.turn()
        tried += 2
        assert translator.tried == tried
    translator.refused = set()
    site.clock.advance(LONGEST_PAUSE)
    for _ in range(2):
        await telling.turn()
    assert set(translator.held) == set(subjects.values())


@pytest.mark.parametrize("step", range(3))
async def test_a_crash_at_any_point_loses_and_doubles_nothing(
    site: Any, translator: Translator, killed: type[BaseException], step: int
):
    """Killed before, within and after the note of it, the next process finds the same hold."""
    await site.settle()
    bob = await subject(site, "bob")
    site.issuer.directory.change("bob", active=False)
    await site.importer().pull()
    site.fuse.left = step
    with pytest.raises(killed):
        await denying(site, translator).turn()
    site.fuse.left = None
    await denying(site, translator).turn()
    assert (set(translator.held), translator.placed) == ({bob}, 1)
    site.issuer.directory.change("bob", active=True)
    await site.settle()
    site.fuse.left = step
    with pytest.raises(killed):
        await denying(site, translator).turn()
    site.fuse.left = None
    await denying(site, translator).turn()
    assert translator.held == {}
    site.clock.advance(AWAY_SECONDS)
    await denying(site, translator).turn()
    assert (translator.held, translator.placed) == ({}, 1)
