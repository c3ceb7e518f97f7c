"""Logging in at the front door: tokens in parts, whose they are, and who is turned away."""

import asyncio
import contextlib
import socket
from typing import Any

import asyncssh
import pytest

from headgate.oidc import IssuerSettings
from tests.service.token_translator.frontdoor.prompted import Asked, log_in
from token_translator.frontdoor.limits import LimitSettings
from token_translator.frontdoor.settings import TranslatorSettings

TRANSLATOR = "https://tokens.site.example/"


def parts(token: str) -> list[str]:
    """As a stock client sends a long token in parts."""
    return [token[at : at + 1023] for at in range(0, len(token), 1023)]


def long_token(door: Any, length: int, sub: str = "alice") -> str:
    """A valid token of exactly that many characters."""
    padding = length // 2
    while len(token := door.token(sub, padding="x" * padding)) < length:
        padding += max(1, (length - len(token)) * 3 // 4)
    while len(token) > length:
        padding -= 1
        token = door.token(sub, padding="x" * padding)
    if len(token) == length:
        return str(token)
    # Base64 grows by 1 or 2: a header of another length makes up for it.
    return long_token_with(door, length, sub, padding)


def long_token_with(door: Any, length: int, sub: str, padding: int) -> str:
    """A token of that length with some of the padding in its identifier."""
    for extra in range(1, 12):
        for less in range(12):
            token = door.token(sub, padding="x" * (padding - less), jti="j" * extra)
            if len(token) == length:
                return str(token)
    raise AssertionError("no token of that length can be made")


async def test_token_in_parts(door: Any):
    """A token of 4000 characters in parts of 1023 opens the door; each part has its prompt."""
    client = Asked([*parts(long_token(door, 4000))])
    assert await log_in(door, client) == "in\n"
    assert client.prompts == [
        "Access token: ",
        "Access token (part 2): ",
        "Access token (part 3): ",
        "Access token (part 4): ",
    ]


async def test_token_of_exactly_one_part(door: Any):
    """A token of exactly 1023 characters needs one more Enter."""
    client = Asked([long_token(door, 1023), ""])
    assert await log_in(door, client) == "in\n"
    assert client.prompts[1:] == ["Access token (part 2): "]


@pytest.mark.parametrize("length", [1022, 1024, 4000])
async def test_token_in_one_answer(door: Any, length: int):
    """A shorter token, and a longer one of a client that does not cut, needs one prompt."""
    client = Asked([long_token(door, length)])
    assert await log_in(door, client) == "in\n"
    assert client.prompts == ["Access token: "]


async def test_pasted_newline(door: Any):
    """A line's end that was pasted with the token does no harm."""
    assert await log_in(door, Asked([door.token() + "\r\n"])) == "in\n"


async def test_interleaved_users_keep_their_parts(door: Any, node: Any):
    """Two people who answer in turns each come in with their own token, as themselves."""
    turn = asyncio.Barrier(2)

    class InTurns(Asked):
        async def kbdint_challenge_received(self, *challenge: Any) -> list[str] | None:
            await turn.wait()
            return super().kbdint_challenge_received(*challenge)

    tokens = {name: parts(long_token(door, 3000, name)) for name in ("alice", "bob")}
    said = await asyncio.gather(*(log_in(door, InTurns(answers)) for answers in tokens.values()))
    assert said == ["in\n", "in\n"]
    assert sorted(node.logins) == ["alice", "bob"]


async def test_never_ending_parts(door: Any):
    """Who always has more to say is cut off at 16 KiB, and at 64 in all the connection ends."""
    client = Asked(["a" * 1023] * 1000)
    with pytest.raises(asyncssh.DisconnectError, match="more than a login takes"):
        await log_in(door, client)
    assert client.prompts.count("Access token: ") == 4
    assert len(client.prompts) <= 64


async def test_parts_do_not_outlive_a_login(door: Any):
    """A part given in a login that failed is no part of the next one."""
    token = door.token()
    client = Asked(["a" * 1023, "b", token])
    assert await log_in(door, client) == "in\n"
    assert client.prompts[2] == "Access token: "


@pytest.mark.parametrize(
    ("claims", "word"),
    [
        ({"aud": "https://gateway.site.example/"}, "another service"),
        ({"aud": ["https://a.example", "https://b.example"]}, "another service"),
        ({"aud": None}, "another service"),
        ({"exp": 1}, "expired"),
        ({"iss": "https://evil.example/"}, "not trusted"),
        ({"nonce": "n"}, "ID token"),
    ],
)
async def test_token_that_is_not_for_us(
    door: Any, translator: Any, claims: dict[str, Any], word: str
):
    """A token for another service, from elsewhere, or gone by is refused here, in its words."""
    client = Asked([door.token(**claims)])
    assert await log_in(door, client) == ""
    assert word in client.words[1]
    assert translator.asked == []


async def test_token_for_the_translator(open_door: Any, translator: Any):
    """The token that a person has for the translator opens the door too."""
    settings = TranslatorSettings(url=translator.url, audience=TRANSLATOR)
    async with open_door(token_translator=settings) as door:
        assert await log_in(door, Asked([door.token(aud=TRANSLATOR)])) == "in\n"


async def test_token_of_a_client_with_foreign_audience(open_door: Any, issuer: Any):
    """What an issuer's settings let a client get away with at the gateway does not count here."""
    foreign = {"orchestrator": ("https://elsewhere.example/", "")}
    trusted = (IssuerSettings(url=issuer.url, client_audiences=foreign),)
    async with open_door(issuers=trusted) as door:
        for audience in ("https://elsewhere.example/", None):
            client = Asked([door.token(aud=audience, client_id="orchestrator")])
            assert await log_in(door, client) == ""
            assert "another service" in client.words[1]


async def test_opaque_answers(door: Any):
    """A password, a certificate's text, a control character: all are no token."""
    client = Asked(["hunter2", "", "\x1b[2J", "a.b.c", "ssh-ed25519 AAAA", "x"])
    assert await log_in(door, client) == ""


async def test_attempts_end(door: Any):
    """After six answers that were no token the connection ends."""
    client = Asked(["x"] * 100)
    assert await log_in(door, client) == ""
    assert len(client.prompts) == 6


@pytest.mark.parametrize("username", ["site", "alice"])
async def test_names_that_one_may_come_by(door: Any, node: Any, username: str):
    """The configured word and the account's own name both lead to the account."""
    assert await log_in(door, Asked([door.token()]), username=username) == "in\n"
    assert node.logins == ["alice"]


@pytest.mark.parametrize("username", ["root", "bob", "nobody-here", "Alice", "alice\u00a0"])
async def test_another_account_is_refused_after_the_login(door: Any, node: Any, username: str):
    """Another account's name is refused, in words, once it is known whose token it is."""
    async with door.connect(username=username) as connection:
        done = await connection.run("echo in", check=False)
    assert (done.stdout, done.exit_status) == (b"", 255)
    assert b"You are alice here" in done.stderr
    assert node.logins == []


async def test_names_make_no_difference_before_the_login(door: Any):
    """Without a token, a name that exists and one that does not are treated alike."""
    heard = []
    for username in ("alice", "root", "nobody-here"):
        client = Asked(["x"])
        assert await log_in(door, client, username=username) == ""
        heard.append((client.prompts, client.words))
    assert heard[0] == heard[1] == heard[2]


async def test_none_is_rejected(door: Any):
    """The method `none` opens nothing, and certificates are not asked for here."""
    methods = await asyncssh.get_server_auth_methods("127.0.0.1", door.port, "alice", config=None)
    assert sorted(methods) == ["keyboard-interactive", "password"]


@pytest.mark.parametrize("method", ["diffie-hellman-group18-sha512", "rsa2048-sha256"])
async def test_costly_key_exchanges_are_not_offered(door: Any, method: str):
    """A stranger cannot keep the service busy with groups of thousands of bits."""
    with pytest.raises(asyncssh.KeyExchangeFailed):
        await door.connect(kex_algs=[method])


async def test_banner_only_where_it_is_set(open_door: Any):
    """A banner is shown where the settings have one, else none is."""
    for banner in ("", "Welcome to the site.\n"):

        class Reader(Asked):
            shown = ""

            def auth_banner_received(self, msg: str, lang: str) -> None:
                del lang
                self.shown += msg

        async with open_door(banner=banner) as door:
            reader = Reader([door.token()])
            assert await log_in(door, reader) == "in\n"
            assert reader.shown == banner


async def test_translators_refusal_reaches_the_person(door: Any, translator: Any):
    """What the translator says against a login is what the person reads."""
    translator.refusal = {
        "status": 403,
        "code": "account_pending",
        "detail": "Your account waits.",
        "waiting_for": "An administrator has to approve it.",
    }
    async with door.connect() as connection:
        done = await connection.run("true", check=False)
    assert done.exit_status == 255
    assert done.stderr == b"headgate: Your account waits. An administrator has to approve it.\r\n"


async def test_refused_person_may_not_jump_either(door: Any, translator: Any, node: Any):
    """Who gets no certificate gets no way to the login nodes."""
    translator.refusal = {"status": 403, "code": "account_blocked", "detail": "Blocked."}
    async with door.connect() as connection:
        with pytest.raises(asyncssh.ChannelOpenError, match="Blocked"):
            await connection.open_connection("login.site.example", node.port)


async def test_refusal_of_this_service_is_not_the_persons_business(door: Any, translator: Any):
    """When it is us whom the translator refuses, the person reads that it is not their fault."""
    translator.refusal = {"status": 401, "code": "peer", "detail": "The service is not known."}
    async with door.connect() as connection:
        done = await connection.run("true", check=False)
    assert b"not possible at the moment" in done.stderr
    assert b"known" not in done.stderr


async def test_throttled_address(open_door: Any):
    """Failed logins close the door to their address, also after a restart, and say for how long."""
    limits = LimitSettings(failures=3)
    async with open_door(limits=limits) as door:
        assert await log_in(door, Asked(["x", "y", "z", door.token()])) == ""
    async with open_door(limits=limits) as door:
        with pytest.raises(asyncssh.DisconnectError, match="wait for"):
            await log_in(door, Asked([door.token()]))
        assert await log_in(door, Asked([door.token()]), local_addr=("127.0.0.2", 0)) == "in\n"


async def test_throttled_identity(open_door: Any):
    """A person logs in so often in a minute, from wherever."""
    async with open_door(limits=LimitSettings(logins_per_minute=2)) as door:
        assert await log_in(door, Asked([door.token()])) == "in\n"
        assert await log_in(door, Asked([door.token()]), local_addr=("127.0.0.2", 0)) == "in\n"
        client = Asked([door.token()])
        assert await log_in(door, client, local_addr=("127.0.0.3", 0)) == ""
        assert "too often" in client.words[1]
        assert await log_in(door, Asked([door.token("bob")])) == "in\n"


async def test_login_deadline(open_door: Any):
    """A connection that says nothing is ended at the deadline, however it says nothing."""
    async with open_door(limits=LimitSettings(login_seconds=5)) as door:
        silent, polite = [await asyncio.open_connection("127.0.0.1", door.port) for _ in range(2)]
        polite[1].write(b"SSH-2.0-slow\r\n")
        async with asyncio.timeout(8):
            for reader, writer in (silent, polite):
                with contextlib.suppress(ConnectionError):
                    while await reader.read(65536):
                        pass
                writer.close()


async def test_ten_thousand_half_open_connections(open_door: Any):
    """Whoever opens connections and says nothing gets so many, and others still come in."""
    limits = LimitSettings(half_open=50, half_open_per_address=20)
    held: list[socket.socket] = []
    async with open_door(limits=limits) as door:
        try:
            for number in range(10_000):
                sock = socket.socket()
                held.append(sock)
                sock.settimeout(0)
                loop = asyncio.get_running_loop()
                await loop.sock_connect(sock, ("127.0.0.1", door.port))
                if number >= 20:
                    assert not await loop.sock_recv(sock, 100)
                    held.pop().close()
            assert await log_in(door, Asked([door.token()]), local_addr=("127.0.0.2", 0)) == "in\n"
        finally:
            for sock in held:
                sock.close()


async def test_connections_of_one_person(open_door: Any):
    """A person has so many connections at a time."""
    async with open_door(limits=LimitSettings(connections_per_identity=1)) as door:
        async with door.connect():
            client = Asked([door.token()])
            assert await log_in(door, client) == ""
            assert "too many connections" in client.words[1]
        assert await log_in(door, Asked([door.token()])) == "in\n"


async def test_responses_are_in_no_log(open_door: Any, capfd: pytest.CaptureFixture[str]):
    """What is answered at a prompt is written nowhere, whatever level the log has."""
    async with open_door(log_level="debug") as door:
        token = door.token()
        secret = "hunter2-hunter2"
        assert await log_in(door, Asked([secret, token])) == "in\n"
    said = "".join(capfd.readouterr())
    assert "login" in said
    for answer in (secret, token, token.split(".")[2], token.split(".")[1]):
        assert answer not in said
