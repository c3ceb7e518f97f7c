"""A token that is good for one certificate, where the site wants it so."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest

from token_translator.routes_exchange import GRANT


@pytest.fixture
async def once(start: Any, folder: Any) -> AsyncIterator[Any]:
    """A translator with that setting."""
    del folder
    async with start("\n[tokens]\none_certificate = true\n") as site:
        yield site


async def ask(site: Any, token: str, key_line: str, **more: Any) -> tuple[int, str]:
    """Status and code of a request for a certificate."""
    body = {"public_key": key_line, **more}
    answer = await site.post("/v1/certificates", body, token=token)
    return answer.status, (await answer.json()).get("code", "")


async def test_a_token_gives_one_certificate(once: Any, key_line: str) -> None:
    """Of all who show it at a time one gets a certificate, at either address; so does another."""
    token = once.issuer.token(jti=str(uuid4()))
    answers = await asyncio.gather(*(ask(once, token, key_line) for _ in range(5)))
    assert sorted(answers) == [(201, ""), *[(401, "token_used")] * 4]
    form = {
        "grant_type": GRANT,
        "subject_token": token,
        "subject_token_type": "urn:ietf:params:oauth:token-type:access_token",
        "public_key": key_line,
    }
    exchanged = await once.client.post("/v1/token", data=form)
    assert exchanged.status == 400
    assert "token_used" in (await exchanged.json())["error_description"]
    assert await ask(once, once.issuer.token(jti=str(uuid4())), key_line) == (201, "")


async def test_a_refusal_uses_nothing_up(once: Any, key_line: str) -> None:
    """Who asks for a realm that is not there may ask again with the same token."""
    token = once.issuer.token(jti=str(uuid4()))
    assert await ask(once, token, key_line, realm="mars") == (400, "realm_unknown")
    assert await ask(once, token, key_line) == (201, "")


async def test_a_token_without_a_name_cannot_be_told_from_itself(once: Any, key_line: str) -> None:
    """Without `jti` it is refused, and says what is missing."""
    assert await ask(once, once.issuer.token(jti=None), key_line) == (401, "token_without_id")


async def test_services_use_a_token_as_long_as_it_is_good(once: Any, key_line: str) -> None:
    """A gateway opens many sessions with one: those certificates run the session alone."""
    token = once.issuer.token(jti=str(uuid4()))
    for _ in range(3):
        body = {"public_key": key_line, "profile": "session"}
        answer = await once.post("/v1/certificates", body, token=token, peer=once.peer())
        assert answer.status == 201


async def test_otherwise_a_token_is_good_until_it_expires(site: Any, key_line: str) -> None:
    """Without the setting a person asks as often as the pace allows."""
    token = site.issuer.token(jti=str(uuid4()))
    assert [await ask(site, token, key_line) for _ in range(2)] == [(201, "")] * 2
