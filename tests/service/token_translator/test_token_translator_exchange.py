"""POST /v1/token: RFC 8693 token exchange, from an access token to a certificate."""

from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import ssh

PATH = "/v1/token"
CERTIFICATE = "urn:headgate:token-type:ssh-user-certificate"


def form(site: Any, key_line: str, **changes: str) -> dict[str, str]:
    """A good request."""
    return {
        "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
        "subject_token": site.issuer.token(),
        "subject_token_type": "urn:ietf:params:oauth:token-type:access_token",
        "public_key": key_line,
        **changes,
    }


async def test_a_token_is_exchanged_for_a_certificate(site: Any, key_line: str) -> None:
    """The answer has the members of section 2.2.1, and may not be cached."""
    wanted = {"requested_token_type": CERTIFICATE, "audience": "site1", "lifetime": "300"}
    answer = await site.client.post(PATH, data=form(site, key_line, **wanted))
    assert answer.status == 200, await answer.text()
    document = await answer.json()
    assert answer.headers["Cache-Control"] == "no-store"
    assert (document["issued_token_type"], document["token_type"]) == (CERTIFICATE, "N_A")
    assert 290 <= document["expires_in"] <= 300
    certificate = ssh.load_ssh_public_identity(document["access_token"].encode())
    assert certificate.valid_principals == [b"hg:site1:alice"]


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"grant_type": "password"}, "unsupported_grant_type", "grant_type"),
        ({"subject_token": ""}, "invalid_request", "subject_token is required"),
        ({"subject_token": "x.y.z"}, "invalid_request", "signed JWT"),
        ({"subject_token_type": "urn:x"}, "invalid_request", "access token"),
        ({"requested_token_type": "urn:x"}, "invalid_request", CERTIFICATE),
        ({"public_key": "nonsense"}, "invalid_request", "key_refused"),
        ({"audience": "elsewhere"}, "invalid_target", "realm"),
        ({"realm": "site1", "audience": "site2"}, "invalid_request", "different realms"),
        ({"lifetime": "-1"}, "invalid_request", "lifetime"),
        ({"lifetime": "0"}, "invalid_request", "lifetime"),
        ({"lifetime": "9" * 20}, "invalid_request", "lifetime"),
        ({"source_address": "everywhere"}, "invalid_request", "IP address"),
        ({"profile": "session"}, "invalid_request", "'profile'"),
    ],
)
async def test_what_is_wrong_is_said_as_oauth_does(
    site: Any, key_line: str, changes: dict[str, str], error: str, words: str
) -> None:
    """400 with an error of the standard, and a description that says what to do."""
    answer = await site.client.post(PATH, data=form(site, key_line, **changes))
    document = await answer.json()
    assert (answer.status, document["error"]) == (400, error), document
    assert words in document["error_description"]
    assert "x.y.z" not in document["error_description"]


async def test_a_parameter_counts_once(site: Any, key_line: str) -> None:
    """Said twice, nobody has to guess which one was meant."""
    twice = [*form(site, key_line).items(), ("public_key", key_line)]
    answer = await site.client.post(PATH, data=twice)
    assert "public_key is said twice" in (await answer.json())["error_description"]


async def test_a_token_in_the_address_is_refused(site: Any, key_line: str) -> None:
    """Addresses are logged by everybody on the way."""
    answer = await site.client.post(PATH, params=form(site, key_line))
    assert answer.status == 400
    assert "address" in (await answer.json())["error_description"]


async def test_a_foreign_token_is_not_exchanged(site: Any, key_line: str) -> None:
    """A token for the gateway, also from a listed client, is none for this."""
    foreign = site.issuer.token(aud="https://elsewhere.example/", client_id="orchestrator")
    answer = await site.client.post(PATH, data=form(site, key_line, subject_token=foreign))
    assert (answer.status, (await answer.json())["error"]) == (400, "invalid_request")


async def test_a_blocked_account_gets_nothing(site: Any, key_line: str) -> None:
    """The registry's word counts here as everywhere."""
    site.registry.has("alice", "alice", state="blocked")
    answer = await site.client.post(PATH, data=form(site, key_line))
    assert "account_blocked" in (await answer.json())["error_description"]


async def test_a_body_that_is_no_form_is_refused(site: Any) -> None:
    """JSON goes to /v1/certificates."""
    answer = await site.client.post(PATH, json={"grant_type": "x"})
    assert "x-www-form-urlencoded" in (await answer.json())["error_description"]
    answer = await site.client.post(PATH, data={"subject_token": "a" * 100_000})
    assert answer.status == 413
