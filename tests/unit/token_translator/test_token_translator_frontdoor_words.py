"""What a person reads at the front door when the translator refuses them."""

from typing import Any

import msgspec
import pytest

from headgate.problems import Unavailable
from token_translator.frontdoor.translator import refusal

PENDING = {
    "code": "account_pending",
    "detail": "Your account on this site is not ready yet. An administrator has to approve it.",
    "waiting_for": "An administrator has to approve it.",
    "requested_at": "2026-11-20T10:00:00Z",
}
UNKNOWN = {
    "code": "account_unknown",
    "detail": "You have no account on this site. Write to help@site.example.",
    "how_to_ask": "Write to help@site.example.",
}
NO_RULE = {
    "code": "no_rule",
    "detail": "No rule of this site gives you a certificate of the profile person.",
    "rules": ["staff: it needs one of the groups site/staff"],
}
STRONGER = {
    "code": "insufficient_user_authentication",
    "detail": "This needs another login, or a more recent one: log in again as said, and ask.",
    "acr_values": ["https://refeds.org/profile/mfa"],
    "max_age": 900,
    "rules": ["strong: too old"],
}
LOGIN = "acr https://refeds.org/profile/mfa, of a login within 900 seconds, and come again"


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (
            PENDING,
            f"{PENDING['detail']} It was asked for at 2026-11-20T10:00:00Z.",
        ),
        (UNKNOWN, "You have no account on this site. Write to help@site.example."),
        (
            NO_RULE,
            f"You are not authorised to log in here. What would be needed: {NO_RULE['rules'][0]}",
        ),
        (
            STRONGER,
            f"A stronger or a more recent login is needed: get a token with {LOGIN}.",
        ),
        (
            {"code": "suspended", "detail": "You are suspended here: stolen laptop."},
            "You are suspended here: stolen laptop.",
        ),
        (
            {"code": "x", "detail": "A\x1b[2Jb\nc\u202ed"},
            "A?[2Jb?c?d",
        ),
    ],
)
def test_a_refusal_in_plain_words(document: dict[str, Any], words: str):
    """Each reason is said once, with what to do, and steers nobody's terminal."""
    assert refusal(403, msgspec.json.encode(document)).detail == words


@pytest.mark.parametrize(
    ("status", "document"),
    [
        (500, b"Traceback (most recent call last)"),
        (403, b"<html>"),
        (403, b'{"code": "peer_verb", "detail": "door has no right"}'),
        (403, b'{"code": "door_address", "detail": "name it"}'),
        (400, b'{"code": "invalid_body", "detail": "/client_address: no such field"}'),
    ],
)
def test_what_is_not_the_persons_business(status: int, document: bytes):
    """A fault of ours, or of the translator's, is in the log; the person may come again later."""
    problem = refusal(status, document)
    assert isinstance(problem, Unavailable)
    assert "try again" in problem.detail
