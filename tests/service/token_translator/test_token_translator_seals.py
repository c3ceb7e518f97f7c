"""Seals, and certificates for what was sealed when the token is gone."""

import asyncio
import time
from typing import Any
from uuid import uuid4

import pytest
import structlog
from cryptography.hazmat.primitives.serialization import ssh

SEALS = "/v1/seals"
DELEGATED = "/v1/delegated-certificates"
PROGRAM = "/usr/libexec/headgate/headgate-session"
DIGEST = "ab" * 32


async def problem(response: Any, status: int, code: str) -> Any:
    """The problem of a refusal, once it is the expected one."""
    document = await response.json()
    assert (response.status, document["code"]) == (status, code), document
    return document


async def seal(site: Any, row: str, *, digest: str = DIGEST, sub: str = "alice") -> Any:
    """The gateway seals a row with a person's token."""
    body = {"row": row, "digest": digest, "realm": "site1"}
    return await site.post(SEALS, body, token=site.issuer.token(sub), peer=site.peer())


async def delegated(site: Any, row: str, verb: str, key_line: str, peer: str = "gateway") -> Any:
    """The gateway asks for a certificate without a token."""
    body = {"row": row, "verb": verb, "public_key": key_line}
    return await site.post(DELEGATED, body, peer=site.peer(peer))


async def test_sealing_again_changes_nothing(site: Any) -> None:
    """A seal is made once: 201, then 200, also with another token of the same person."""
    row = str(uuid4())
    assert (await seal(site, row)).status == 201
    assert (await seal(site, row)).status == 200


async def test_another_digest_or_person_is_a_conflict(site: Any) -> None:
    """A row that is sealed stays what it is."""
    row = str(uuid4())
    assert (await seal(site, row)).status == 201
    await problem(await seal(site, row, digest="cd" * 32), 409, "seal_conflict")
    await problem(await seal(site, row, sub="bob"), 409, "seal_conflict")
    assert (await seal(site, row)).status == 200


async def test_seals_at_the_same_time(site: Any) -> None:
    """Of many different seals of one row exactly one is made; others are not disturbed."""
    row = str(uuid4())
    digests = [f"{number:064x}" for number in range(20)]
    ours = [seal(site, row, digest=digest) for digest in digests]
    others = [seal(site, str(uuid4())) for _ in range(20)]
    answers = await asyncio.gather(*ours, *others)
    statuses = [answer.status for answer in answers]
    assert sorted(statuses[:20]) == [201] + [409] * 19
    assert statuses[20:] == [201] * 20


async def test_sealing_needs_token_and_service(site: Any) -> None:
    """A person alone cannot seal, and a service not without the person's token."""
    body = {"row": str(uuid4()), "digest": DIGEST, "realm": "site1"}
    await problem(await site.post(SEALS, body, token=site.issuer.token()), 401, "no_peer")
    await problem(await site.post(SEALS, body, peer=site.peer()), 401, "missing_token")
    expired = site.issuer.token(exp=int(time.time()) - 100)
    await problem(
        await site.post(SEALS, body, token=expired, peer=site.peer()), 401, "invalid_token"
    )
    response = await site.post(SEALS, body, token=site.issuer.token(), peer=site.peer("stranger"))
    await problem(response, 403, "peer_verb")


@pytest.mark.parametrize(
    "change",
    [
        {"digest": DIGEST.upper()},
        {"digest": "ab"},
        {"digest": f"{DIGEST}\n"},
        {"row": "../x"},
        {"row": 1},
        {"extra": 1},
    ],
)
async def test_a_seal_is_exact(site: Any, change: dict[str, Any]) -> None:
    """Rows are UUIDs, digests 64 lower-case hex digits, and there is nothing else."""
    body = {"row": str(uuid4()), "digest": DIGEST, "realm": "site1", **change}
    response = await site.post(SEALS, body, token=site.issuer.token(), peer=site.peer())
    await problem(response, 400, "invalid_body")


@pytest.mark.parametrize("verb", ["submit", "status", "cancel", "collect", "clean"])
async def test_a_certificate_for_one_command(site: Any, key_line: str, verb: str) -> None:
    """Without a token a service gets five minutes for one command on one sealed row."""
    row = str(uuid4())
    assert (await seal(site, row)).status == 201
    response = await delegated(site, row, verb, key_line)
    assert response.status == 201, await response.text()
    answer = await response.json()
    certificate = ssh.load_ssh_public_identity(answer["certificate"].encode())
    only = f"submit:{row},sha256:{DIGEST}" if verb == "submit" else f"{verb}:{row}"
    assert certificate.critical_options == {b"force-command": f"{PROGRAM} --only {only}".encode()}
    assert certificate.extensions == {}
    assert certificate.valid_principals == [b"hg:site1:alice"]
    assert certificate.valid_before <= time.time() + 301
    assert f"row={row}" in answer["key_id"]


async def test_only_what_was_sealed_by_that_service(site: Any, key_line: str) -> None:
    """An unsealed row, and a row sealed by another service, are unknown."""
    await problem(await delegated(site, str(uuid4()), "submit", key_line), 404, "seal_unknown")
    row = str(uuid4())
    assert (await seal(site, row)).status == 201
    response = await delegated(site, row, "submit", key_line, peer="stranger")
    await problem(response, 403, "peer_verb")


async def test_unknown_verbs(site: Any, key_line: str) -> None:
    """A shell is not among the verbs."""
    response = await delegated(site, str(uuid4()), "shell", key_line)
    document = await problem(response, 400, "invalid_body")
    assert document["errors"][0]["pointer"] == "/verb"


async def test_a_block_stops_what_was_sealed(site: Any, key_line: str) -> None:
    """The account's state at the moment counts, not that at admission."""
    row = str(uuid4())
    assert (await seal(site, row)).status == 201
    site.registry.has("alice", "alice", state="blocked")
    await problem(await delegated(site, row, "submit", key_line), 403, "account_blocked")
    site.registry.refuses("alice", "account_unknown")
    await problem(await delegated(site, row, "submit", key_line), 403, "account_unknown")


async def test_too_many_for_one_person_is_an_alarm(start: Any, key_line: str) -> None:
    """The rate holds per person, says when to come back, and is in the log as an alarm."""
    async with start("[delegation]\nper_minute = 2\n") as site:
        site.registry.has("bob", "bob")
        mine, theirs = str(uuid4()), str(uuid4())
        assert (await seal(site, mine)).status == 201
        assert (await seal(site, theirs, sub="bob")).status == 201
        for _ in range(2):
            assert (await delegated(site, mine, "status", key_line)).status == 201
        with structlog.testing.capture_logs() as logged:
            response = await delegated(site, mine, "status", key_line)
        await problem(response, 429, "sealed_rate")
        assert 0 < int(response.headers["Retry-After"]) <= 60
        assert (await delegated(site, theirs, "status", key_line)).status == 201
    assert "sealed_rate_alarm" in {entry["event"] for entry in logged}


async def test_seals_survive_a_restart(start: Any, key_line: str) -> None:
    """What was answered with 201 is there after the service came back."""
    row = str(uuid4())
    async with start() as site:
        assert (await seal(site, row)).status == 201
    async with start() as site:
        assert (await delegated(site, row, "submit", key_line)).status == 201
