"""Whose a token is, as far as it says."""

import base64
import json

import pytest

from headgate.cli.claims import Person, person

ISSUER = "https://iam.example.org/"


def jwt(**claims: object) -> str:
    """A token that nobody signed."""
    body = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"e30.{body}.x"


def test_a_token_says_whose_it_is():
    """Issuer and subject of the token itself, else of the ID token that came with it."""
    alice, bob = jwt(iss=ISSUER, sub="alice"), jwt(iss=ISSUER, sub="bob")
    assert person(alice) == person(alice, bob) == Person(ISSUER, "alice")
    assert person("opaque", bob) == Person(ISSUER, "bob")
    assert person(jwt(iss="https://other/", sub="alice")) != person(alice)


@pytest.mark.parametrize("token", ["opaque", "", jwt(sub="a"), jwt(iss=ISSUER), jwt(iss=1, sub=2)])
def test_a_token_that_does_not_say_is_nobody_elses(token: str):
    """It is the same person's as itself, and no other's; the token is not in it."""
    assert person(token) == person(token)
    assert person(token) != person(token + "x")
    assert person(token).iss == ""
    assert token not in person(token).sub or not token
