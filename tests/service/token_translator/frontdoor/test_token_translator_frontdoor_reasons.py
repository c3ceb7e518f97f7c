"""Why a token was refused reaches the person, however their client asks and how often."""

from typing import Any

import asyncssh
import pytest

from tests.service.token_translator.frontdoor.prompted import Asked, log_in


async def test_reason_after_the_only_prompt(door: Any):
    """A client that asks once (NumberOfPasswordPrompts=1) shows the reason all the same."""

    class Once(Asked):
        def kbdint_auth_requested(self) -> str | None:  # type: ignore[override] # as asyncssh allows
            return None if self.prompts else ""

    client = Once([door.token(aud="https://elsewhere.example")])
    assert await log_in(door, client) == ""
    assert len(client.prompts) == 1
    (reason,) = [words for words in client.words if words]
    assert "another service" in reason
    assert "ssh://frontdoor.site.example" in reason


async def test_reason_is_shown_once(door: Any):
    """Not again with the next prompt; each refusal has its own."""
    client = Asked(["", "not a token", door.token()])
    assert await log_in(door, client) == "in\n"
    assert client.prompts == ["Access token: "] * 3
    said = [words for words in client.words if words]
    assert ["empty" in words for words in said] == [True, False]
    assert "not a signed JWT" in said[1]


async def test_reason_where_the_token_is_the_password(door: Any):
    """That method has no words of its own: the reason comes as a banner."""
    client = Asked([])
    token = door.token(aud="https://elsewhere.example")
    options = {"password": token, "preferred_auth": "password"}
    assert await log_in(door, client, **options) == ""
    (said,) = client.banners
    assert "another service" in said
    assert said.endswith("\r\n")


async def test_no_password_is_asked_for_after_the_token(door: Any):
    """Whoever failed at the token prompt is not asked for what looks like a site's password."""
    offered: list[str] = []

    class Tempted(Asked):
        def password_auth_requested(self) -> str:
            offered.append("password")
            return "x"

    preferred = "keyboard-interactive,password"
    assert await log_in(door, Tempted(["no token"]), preferred_auth=preferred) == ""
    assert offered == []


@pytest.mark.parametrize("answers", [["x"], ["", ""]])
async def test_words_need_no_answer(door: Any, answers: list[str]):
    """Whoever answers where nothing was asked is no client: the connection ends."""

    class Chatty(Asked):
        def kbdint_challenge_received(self, *challenge: Any) -> list[str] | None:
            return answers if not challenge[3] else super().kbdint_challenge_received(*challenge)

    options = {"password": None, "preferred_auth": "keyboard-interactive"}
    with pytest.raises(asyncssh.PermissionDenied, match="One prompt has one answer"):
        await door.connect(client_factory=lambda: Chatty(["no token"]), **options)
