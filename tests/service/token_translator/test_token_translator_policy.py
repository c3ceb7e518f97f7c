"""Rules at the HTTP edge: step-up, host sets, file transfers, ceilings of clients, strangers."""

import asyncio
import time
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import ssh

PATH = "/v1/certificates"
MFA = "https://refeds.org/profile/mfa"
STRONG = f"""
[[rules]]
name = "strong"
groups = ["staff"]
acr = ["{MFA}"]
max_auth_age = 900
"""


async def test_a_step_up_over_http(start: Any, key_line: str) -> None:
    """RFC 9470: the challenge says which login is needed, and a token of that login succeeds."""
    async with start(STRONG) as site:
        token = site.issuer.token(groups=["staff"])
        response = await site.post(PATH, {"public_key": key_line}, token=token)
        document = await response.json()
        assert response.status == 401
        assert document["code"] == "insufficient_user_authentication"
        assert (document["acr_values"], document["max_age"]) == ([MFA], 900)
        challenge = response.headers["WWW-Authenticate"]
        assert 'error="insufficient_user_authentication"' in challenge
        assert f'acr_values="{MFA}", max_age="900"' in challenge
        now = int(time.time())
        token = site.issuer.token(groups=["staff"], acr=MFA, auth_time=now)
        assert (await site.post(PATH, {"public_key": key_line}, token=token)).status == 201
        token = site.issuer.token(groups=["staff"], acr=MFA, auth_time=now - 1000)
        assert (await site.post(PATH, {"public_key": key_line}, token=token)).status == 401


async def test_a_refusal_says_what_each_rule_misses(start: Any, key_line: str) -> None:
    """Where no login would help: 403, with a verdict for each rule."""
    async with start(STRONG) as site:
        response = await site.post(PATH, {"public_key": key_line}, token=site.issuer.token())
        document = await response.json()
        assert (response.status, document["code"]) == (403, "no_rule")
        (verdict,) = document["verdicts"]
        assert verdict["rule"] == "strong"
        assert [unmet["condition"] for unmet in verdict["unmet"]] == [
            "acr",
            "groups",
            "max_auth_age",
        ]


async def test_files_only_on_some_nodes(start: Any, key_line: str) -> None:
    """Host sets and the command sftp are in the certificate that comes out of the signer."""
    rule = '[[rules]]\nname = "r"\nprofiles = ["person"]\ncommand = "sftp"\nhosts = ["data"]\n'
    async with start(rule) as site:
        response = await site.post(PATH, {"public_key": key_line}, token=site.issuer.token())
        answer = await response.json()
        assert response.status == 201, answer
        certificate = ssh.load_ssh_public_identity(answer["certificate"].encode())
        assert certificate.valid_principals == [b"hg:site1@data:alice"]
        assert certificate.critical_options == {b"force-command": b"internal-sftp"}
        assert certificate.extensions == {}


async def test_key_types_of_a_rule(start: Any, key_line: str) -> None:
    """A rule may ask for another type of key than the site accepts in general."""
    async with start('[[rules]]\nname = "r"\nkey_types = ["ssh-rsa"]\n') as site:
        response = await site.post(PATH, {"public_key": key_line}, token=site.issuer.token())
        document = await response.json()
        assert (response.status, document["code"]) == (403, "no_rule")
        assert "a key of the type ssh-rsa" in document["rules"][0]


async def test_a_client_that_gets_no_logins(start: Any, key_line: str) -> None:
    """An orchestrator's token gives its owner's gateway sessions and nobody a login."""
    async with start() as site:
        more = f'[[clients]]\nissuer = "{site.issuer.url}"\nclient_id = "laptop"\n'
    async with start(more + 'profiles = ["session"]\n') as site:
        token = site.issuer.token()
        response = await site.post(PATH, {"public_key": key_line}, token=token)
        assert (await response.json())["code"] == "client_ceiling"
        body = {"public_key": key_line, "profile": "session"}
        response = await site.post(PATH, body, token=token, peer=site.peer())
        assert response.status == 201, await response.text()


@pytest.mark.parametrize("wish", [{"lifetime": 10**40}, {"lifetime": 2**63}])
async def test_wishes_beyond_all_bounds(site: Any, key_line: str, wish: dict[str, Any]) -> None:
    """A wish for an absurd lifetime is no error of ours, and gives no more than the token."""
    body = {"public_key": key_line, **wish}
    response = await site.post(PATH, body, token=site.issuer.token())
    assert response.status in (201, 400), await response.text()


async def test_nothing_is_asked_of_a_stranger(site: Any, key_line: str) -> None:
    """A token that names somebody else as its issuer makes no connection to them at all."""
    heard: asyncio.Queue[object] = asyncio.Queue()

    async def hear(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.put_nowait(writer.get_extra_info("peername"))
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(hear, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    url = f"http://{host}:{port}/"
    for token in (site.issuer.token(iss=url), site.issuer.token(iss=url + "#"), "opaque"):
        response = await site.post(PATH, {"public_key": key_line}, token=token)
        assert response.status == 401
    # One connection of our own: whoever came before it has been heard by now.
    _, writer = await asyncio.open_connection(host, port)
    assert await heard.get() == writer.get_extra_info("sockname")
    writer.close()
    await writer.wait_closed()
    server.close()
    await server.wait_closed()
