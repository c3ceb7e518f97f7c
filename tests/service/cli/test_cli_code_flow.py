"""Logging in with a browser: the good way, and each way in which somebody could get in between."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import aiohttp
import msgspec
import pytest
from yarl import URL

from headgate.cli import code_flow
from headgate.cli.logins import Login
from headgate.cli.loopback import listening
from headgate.cli.oauth import Demand, IssuerClient, IssuerFailure
from headgate.clock import SystemClock
from headgate.command import run
from testbed.issuer.app import running
from testbed.issuer.core import Issuer
from testbed.issuer.directory import Client, User
from testbed.issuer.settings import IssuerSettings
from testbed.issuer.sign_in import MULTI
from testbed.issuer.token_endpoint import DEVICE_GRANT

SETTINGS = IssuerSettings(
    state_dir="",
    device_interval_seconds=1,
    users=(User(username="alice", groups=("hpc",)),),
    clients=(
        Client(
            client_id="headgate-cli",
            grants=("authorization_code", DEVICE_GRANT, "refresh_token"),
            redirect_uris=("http://127.0.0.1/callback",),
        ),
    ),
)

Change = Callable[[URL], URL]
Browse = Callable[[str, aiohttp.ClientSession], Awaitable[Any]]


@pytest.fixture
async def issuer() -> AsyncIterator[Issuer]:
    """A listening issuer whose client may use a browser."""
    async with running(SETTINGS) as listening_issuer:
        yield listening_issuer


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    """A client session."""
    async with aiohttp.ClientSession() as opened:
        yield opened


def oauth_of(issuer: Issuer, session: aiohttp.ClientSession) -> IssuerClient:
    """The command's client of the issuer."""
    return IssuerClient(
        session=session,
        clock=SystemClock(),
        issuer=issuer.url,
        client_id="headgate-cli",
        audiences=("a", "b"),
    )


async def signed_in(page: str, session: aiohttp.ClientSession, **form: str) -> URL:
    """Sign in as alice on the page; where the issuer sends the browser."""
    address = URL(page)
    body = {**address.query, "username": "alice", **form}
    async with session.post(address.with_query(None), data=body, allow_redirects=False) as response:
        assert response.status == 302, await response.text()
        return URL(response.headers["Location"])


def same(place: URL) -> URL:
    """No change."""
    return place


async def log_in(
    issuer: Issuer,
    session: aiohttp.ClientSession,
    *,
    change: Change = same,
    demand: Demand | None = None,
    **form: str,
) -> tuple[Login, int]:
    """A login whose redirect is changed on its way; the login, and what the loopback answered."""
    pages: asyncio.Queue[str] = asyncio.Queue()

    async def browser() -> int:
        place = change(await signed_in(await pages.get(), session, **form))
        async with session.get(place) as response:
            await response.read()
            return response.status

    going = asyncio.create_task(browser())
    try:
        login = await code_flow.log_in(
            oauth_of(issuer, session),
            demand or Demand(),
            show=pages.put_nowait,
            browse=lambda _: True,
        )
    finally:
        async with asyncio.timeout(20):
            status = await going
    return login, status


async def test_a_browser_logs_in(issuer: Issuer, session: aiohttp.ClientSession):
    """The token is alice's, for all audiences, and renewable."""
    login, status = await log_in(issuer, session)
    issued = issuer.tokens.find(login.access_token)
    assert status == 200
    assert issued is not None
    assert (issued.subject, issued.grant.audience) == (
        issuer.directory.user("alice").id,
        ("a", "b"),
    )
    assert login.refresh_token in issuer.refresh


async def test_every_login_has_its_own_secrets(issuer: Issuer, session: aiohttp.ClientSession):
    """State, nonce, challenge and port are new each time, and the challenge is S256's."""
    seen: list[URL] = []

    async def once() -> None:
        pages: asyncio.Queue[str] = asyncio.Queue()
        task = asyncio.create_task(
            code_flow.log_in(
                oauth_of(issuer, session),
                Demand(),
                show=pages.put_nowait,
                browse=lambda _: True,
            )
        )
        page = await pages.get()
        seen.append(URL(page))
        async with session.get(await signed_in(page, session)):
            await task

    await once()
    await once()
    for name in ("state", "nonce", "code_challenge"):
        assert len({url.query[name] for url in seen}) == 2
        assert all(len(url.query[name]) == 43 for url in seen)
    assert {url.query["code_challenge_method"] for url in seen} == {"S256"}
    assert all(URL(url.query["redirect_uri"]).host == "127.0.0.1" for url in seen)


async def test_another_issuers_answer_is_refused(issuer: Issuer, session: aiohttp.ClientSession):
    """RFC 9207: an answer with another `iss`, or without one where it is due, ends the login."""
    with pytest.raises(IssuerFailure, match="not from") as other:
        await log_in(issuer, session, change=lambda u: u.update_query(iss="https://evil/"))
    assert other.value.error == "mixed_up"
    with pytest.raises(IssuerFailure, match="unknown issuer"):
        await log_in(issuer, session, change=lambda u: u.without_query_params("iss"))


async def test_a_no_is_a_sentence(issuer: Issuer, session: aiohttp.ClientSession):
    """Denial at the page ends the login."""
    with pytest.raises(IssuerFailure, match="denied") as denied:
        await log_in(issuer, session, decision="deny")
    assert denied.value.error == "access_denied"


async def test_a_stolen_code_is_no_login(issuer: Issuer, session: aiohttp.ClientSession):
    """A code of somebody else's flow, brought with our state, is refused by the issuer: PKCE."""
    pages: asyncio.Queue[str] = asyncio.Queue()
    for_attacker = asyncio.create_task(
        code_flow.log_in(
            oauth_of(issuer, session), Demand(), show=pages.put_nowait, browse=lambda _: True
        )
    )
    attackers = await signed_in(await pages.get(), session)

    def injected(place: URL) -> URL:
        return place.update_query(code=attackers.query["code"])

    with pytest.raises(IssuerFailure) as caught:
        await log_in(issuer, session, change=injected)
    assert caught.value.error == "invalid_grant"
    for_attacker.cancel()
    with pytest.raises(asyncio.CancelledError):
        await for_attacker


@pytest.mark.parametrize(
    "claims",
    [
        {"nonce": "another"},
        {"nonce": None},
        {"aud": "another-program"},
        {"iss": "https://evil/"},
        {"exp": 1},
        {"iat": 99999999999},
        {"iat": 10**400},
        {"exp": 10**400},
        {"exp": float("inf")},
        {"azp": "another-program"},
    ],
)
async def test_an_id_token_that_is_not_of_this_login(
    issuer: Issuer,
    session: aiohttp.ClientSession,
    monkeypatch: pytest.MonkeyPatch,
    claims: dict[str, Any],
):
    """A wrong nonce, audience, issuer or time: nothing is kept."""
    original = issuer.tokens._signed

    def forged(content: dict[str, Any]) -> str:
        return original({**content, **claims} if "at_hash" in content else content)

    monkeypatch.setattr(issuer.tokens, "_signed", forged)
    with pytest.raises(IssuerFailure, match="ID token") as caught:
        await log_in(issuer, session)
    assert caught.value.error == "invalid_id_token"


@pytest.mark.parametrize("token", ["", "x.y.z", "unsigned"])
async def test_an_id_token_without_a_signature(
    issuer: Issuer, session: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch, token: str
):
    """None at all, nonsense, and `alg: none` are refused."""
    original = issuer.tokens.identity

    def answer(*grant: Any, **more: Any) -> str:
        if token != "unsigned":
            return token
        payload = original(*grant, **more).split(".")[1]
        return f"eyJhbGciOiJub25lIn0.{payload}."

    monkeypatch.setattr(issuer.tokens, "identity", answer)
    with pytest.raises(IssuerFailure) as caught:
        await log_in(issuer, session)
    assert caught.value.error == "invalid_id_token"


async def test_strength_and_freshness_are_asked_for(issuer: Issuer, session: aiohttp.ClientSession):
    """`acr_values` and `max_age` reach the issuer, and an old sign-in is not taken for a new."""
    demand = Demand((MULTI,), 60)
    login, _ = await log_in(issuer, session, demand=demand, second_factor="yes")
    issued = issuer.tokens.find(login.access_token)
    assert issued is not None
    assert issued.grant.acr == MULTI


async def test_an_old_sign_in_is_not_a_fresh_one(
    issuer: Issuer, session: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
):
    """An issuer that ignores `max_age` is caught by `auth_time`."""
    original = issuer.tokens._signed
    monkeypatch.setattr(
        issuer.tokens, "_signed", lambda content: original({**content, "auth_time": 1})
    )
    with pytest.raises(IssuerFailure, match="sign in again"):
        await log_in(issuer, session, demand=Demand(max_age=60))


async def test_the_listener_takes_one_answer_with_its_state():
    """Other states, doubled parameters and other host names change nothing; a second is late."""
    async with listening("the-state") as loopback, aiohttp.ClientSession() as browser:
        place = URL(loopback.redirect_uri)
        assert place.host == "127.0.0.1"
        wrong = (
            place.with_query(code="x"),
            place.with_query(code="x", state=""),
            place.with_query(code="x", state="another"),
            place.with_query([("code", "x"), ("code", "y"), ("state", "the-state")]),
        )
        for address in wrong:
            async with browser.get(address) as response:
                assert response.status == 400
        good = place.with_query(code="c", state="the-state")
        async with browser.get(good, headers={"Host": "evil.example.org"}) as response:
            assert response.status == 400
        for status in (200, 409):
            async with browser.get(good) as response:
                assert response.status == status
                assert response.headers["Cache-Control"] == "no-store"
                assert "c" not in URL(str(response.url)).fragment
        assert (await loopback.answer(1))["code"] == "c"
    async with aiohttp.ClientSession() as browser:
        with pytest.raises(aiohttp.ClientConnectionError):
            await browser.get(good)


async def test_the_browser_is_started_with_nothing_of_use(
    issuer: Issuer, session: aiohttp.ClientSession
):
    """Its argument, which all users see, is an address here that leads to the page once."""
    given: asyncio.Queue[str] = asyncio.Queue()
    pages: asyncio.Queue[str] = asyncio.Queue()
    soon = asyncio.get_running_loop().call_soon_threadsafe
    login = asyncio.create_task(
        code_flow.log_in(
            oauth_of(issuer, session),
            Demand(),
            show=pages.put_nowait,
            browse=lambda address: bool(soon(given.put_nowait, address)),
        )
    )
    page = await pages.get()
    address = URL(await given.get())
    assert (address.host, len(address.path), address.query_string) == ("127.0.0.1", 44, "")
    for wrong in (address.with_path("/x"), address.with_host("localhost")):
        async with session.get(wrong, allow_redirects=False) as response:
            assert response.status == 404
    async with session.head(address, allow_redirects=False) as response:
        assert response.status == 405
    async with session.get(address, allow_redirects=False) as response:
        assert (response.status, response.headers["Location"]) == (303, page)
        assert response.headers["Referrer-Policy"] == "no-referrer"
    async with session.get(address, allow_redirects=False) as response:
        assert response.status == 410
    async with session.get(await signed_in(page, session)):
        assert (await login).access_token


@pytest.mark.site  # becomes another user
async def test_another_user_of_the_machine_neither_reads_nor_brings():
    """To somebody else here the page is not shown, and no answer of theirs is taken."""

    async def other(address: URL) -> str:
        become = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
        curl = ("curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", str(address))
        return (await run((*become, *curl), timeout=20)).stdout.decode()

    async with listening("the-state") as loopback, aiohttp.ClientSession() as browser:
        start = URL(loopback.start("https://iam.example.org/authorize?state=the-state"))
        good = URL(loopback.redirect_uri).with_query(code="c", state="the-state")
        assert await other(start) == "404"
        assert await other(good) == "400"
        async with browser.get(start, allow_redirects=False) as response:
            assert response.status == 303
        async with browser.get(good) as response:
            assert response.status == 200


async def test_nobody_comes_back():
    """Without an answer the wait ends."""
    async with listening("s") as loopback:
        with pytest.raises(TimeoutError):
            await loopback.answer(0.01)


@pytest.mark.parametrize(
    ("environ", "platform", "here"),
    [
        ({"DISPLAY": ":0"}, "linux", True),
        ({"WAYLAND_DISPLAY": "wayland-0"}, "linux", True),
        ({}, "linux", False),
        ({}, "darwin", True),
        ({"BROWSER": "firefox"}, "linux", True),
        ({"DISPLAY": ":10", "SSH_CONNECTION": "1 2 3 4"}, "linux", False),
        ({"BROWSER": "firefox", "SSH_TTY": "/dev/pts/1"}, "linux", False),
        ({"SSH_CONNECTION": "1 2 3 4"}, "darwin", False),
    ],
)
def test_where_a_browser_is(environ: dict[str, str], platform: str, *, here: bool):
    """On a screen of one's own, never at the other end of an SSH connection."""
    assert code_flow.has_browser(environ, platform) is here


async def test_a_client_that_may_not_use_a_browser_uses_a_device(
    session: aiohttp.ClientSession,
):
    """An issuer that refuses this way says so in the redirect, as an error of its own."""
    client = msgspec.structs.replace(SETTINGS.clients[0], grants=(DEVICE_GRANT,))
    settings = msgspec.structs.replace(SETTINGS, clients=(client,))
    async with running(settings) as issuer:
        with pytest.raises(IssuerFailure) as caught:
            await log_in(issuer, session)
        assert caught.value.error == "unauthorized_client"
