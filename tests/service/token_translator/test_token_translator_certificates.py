"""POST /v1/certificates: from a token and a key to a certificate, or to words that help."""

import asyncio
import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import structlog
from cryptography.hazmat.primitives.serialization import ssh

PATH = "/v1/certificates"
PROGRAM = "/usr/libexec/headgate/headgate-session"
GATEWAY_AUDIENCE = "https://gateway.site.example/"


async def problem(response: Any, status: int, code: str) -> Any:
    """The problem of a refusal, once it is the expected one."""
    document = await response.json()
    assert (response.status, document["code"]) == (status, code), document
    assert response.content_type == "application/problem+json"
    return document


async def test_a_token_and_a_key_become_a_certificate(site: Any, key_line: str) -> None:
    """A person with an account gets a certificate for their namespaced principal."""
    response = await site.post(PATH, {"public_key": key_line}, token=site.issuer.token())
    assert response.status == 201, await response.text()
    answer = await response.json()
    certificate = ssh.load_ssh_public_identity(answer["certificate"].encode())
    certificate.verify_cert_signature()
    assert certificate.valid_principals == [b"hg:site1:alice"]
    assert certificate.serial == answer["serial"] > 0
    assert certificate.critical_options == {}
    assert certificate.extensions == {b"permit-pty": b""}
    assert certificate.key_id.decode() == answer["key_id"]
    assert (answer["account"], answer["realm"]) == ("alice", "site1")


async def test_ssh_keygen_reads_it(site: Any, key_line: str, tmp_path: Path) -> None:
    """What OpenSSH understands of the certificate is what the answer says."""
    response = await site.post(PATH, {"public_key": key_line}, token=site.issuer.token())
    answer = await response.json()
    (tmp_path / "cert.pub").write_text(answer["certificate"])
    argv = ["ssh-keygen", "-L", "-f", str(tmp_path / "cert.pub")]
    shown = await asyncio.to_thread(subprocess.check_output, argv, text=True, env={"TZ": "UTC"})
    assert f"Serial: {answer['serial']}" in shown
    assert f'Key ID: "{answer["key_id"]}"' in shown
    assert "hg:site1:alice" in shown
    assert "Critical Options: (none)" in shown
    assert f"to {answer['valid_before'].removesuffix('Z')}" in shown


async def test_the_certificate_ends_with_the_token(site: Any, key_line: str) -> None:
    """A token of ten minutes gives a certificate of ten minutes, backdated by one."""
    expires = int(time.time()) + 600
    token = site.issuer.token(exp=expires)
    answer = await (await site.post(PATH, {"public_key": key_line}, token=token)).json()
    certificate = ssh.load_ssh_public_identity(answer["certificate"].encode())
    assert certificate.valid_before == expires
    assert 58 <= time.time() - certificate.valid_after <= 65
    until = datetime.fromtimestamp(expires, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    assert answer["valid_before"] == until


async def test_the_skew_for_tokens_is_none_for_certificates(site: Any, key_line: str) -> None:
    """A token that is accepted only for clocks being apart gives no certificate any more."""
    token = site.issuer.token(exp=int(time.time()) - 5)
    response = await site.post(PATH, {"public_key": key_line}, token=token)
    await problem(response, 401, "invalid_token")


async def test_serials_grow(site: Any, key_line: str) -> None:
    """The same token twice gives two certificates with growing serials."""
    token = site.issuer.token()
    first = await (await site.post(PATH, {"public_key": key_line}, token=token)).json()
    second = await (await site.post(PATH, {"public_key": key_line}, token=token)).json()
    assert second["serial"] > first["serial"]


@pytest.mark.parametrize(
    ("claims", "words"),
    [
        ({"aud": "https://elsewhere.example/"}, "another service"),
        ({"aud": GATEWAY_AUDIENCE}, "another service"),
        ({"aud": None}, "another service"),
        ({"aud": "https://elsewhere.example/", "client_id": "orchestrator"}, "another service"),
        ({"aud": None, "client_id": "orchestrator"}, "another service"),
        ({"iss": "https://stranger.example/"}, "not trusted"),
        ({"exp": 1}, "expired"),
        ({"nonce": "x"}, "ID token"),
    ],
)
async def test_only_a_token_of_ours(
    site: Any, key_line: str, claims: dict[str, Any], words: str
) -> None:
    """A person's token for another service, of another issuer, or an old one gets nothing."""
    response = await site.post(PATH, {"public_key": key_line}, token=site.issuer.token(**claims))
    document = await problem(response, 401, "invalid_token")
    assert words in document["detail"]


async def test_no_token(site: Any, key_line: str) -> None:
    """Without a token the answer says where it goes."""
    response = await site.post(PATH, {"public_key": key_line})
    await problem(response, 401, "missing_token")
    assert response.headers["WWW-Authenticate"] == "Bearer"


async def test_a_person_without_an_account_is_told_how_to_ask(site: Any, key_line: str) -> None:
    """What the registry says about getting an account reaches the person."""
    site.registry.refuses("bob", "account_unknown", how_to_ask="Write to hpc@site.example.")
    response = await site.post(PATH, {"public_key": key_line}, token=site.issuer.token("bob"))
    document = await problem(response, 403, "account_unknown")
    assert document["how_to_ask"] == "Write to hpc@site.example."


async def test_a_person_who_waits_is_told_for_whom(site: Any, key_line: str) -> None:
    """A request under way says since when, and who has to approve."""
    site.registry.refuses(
        "bob",
        "account_pending",
        requested_at="2026-11-20T08:00:00Z",
        waiting_for="An administrator has to approve it.",
    )
    response = await site.post(PATH, {"public_key": key_line}, token=site.issuer.token("bob"))
    document = await problem(response, 403, "account_pending")
    assert document["requested_at"] == "2026-11-20T08:00:00Z"
    assert document["waiting_for"] == "An administrator has to approve it."


async def test_a_blocked_account_gets_nothing_at_once(site: Any, key_line: str) -> None:
    """The registry is asked each time: a block counts for the very next request."""
    token = site.issuer.token()
    assert (await site.post(PATH, {"public_key": key_line}, token=token)).status == 201
    site.registry.has("alice", "alice", state="blocked", reason="left the project")
    response = await site.post(PATH, {"public_key": key_line}, token=token)
    document = await problem(response, 403, "account_blocked")
    assert "left the project" in document["detail"]


@pytest.mark.parametrize(
    ("account", "uid"),
    [("root", 0), ("root", 20001), ("toor", 0), ("a,root", 20001), ("-oX", 20001), ("a\nb", 20001)],
)
async def test_some_accounts_never_get_one(
    site: Any, key_line: str, account: str, uid: int
) -> None:
    """A mapping to root, or to a name that is none, is refused whatever the registry says."""
    site.registry.has("alice", account, uid=uid)
    response = await site.post(PATH, {"public_key": key_line}, token=site.issuer.token())
    await problem(response, 403, "account_unsuitable")


async def test_a_registry_that_is_away_fails_fast(site: Any, key_line: str) -> None:
    """503 with Retry-After, and while it is known to be away it is not asked again."""
    site.registry.entries["alice"] = (500, {})
    token = site.issuer.token()
    response = await site.post(PATH, {"public_key": key_line}, token=token)
    assert (await problem(response, 503, "registry_away"))["retryable"] is True
    assert int(response.headers["Retry-After"]) >= 1


async def test_an_unknown_realm(site: Any, key_line: str) -> None:
    """A realm that is not served here is named as the fault."""
    body = {"public_key": key_line, "realm": "mars"}
    document = await problem(
        await site.post(PATH, body, token=site.issuer.token()), 400, "realm_unknown"
    )
    assert document["errors"][0]["pointer"] == "/realm"


async def test_every_fault_of_a_body_is_reported(site: Any) -> None:
    """Unknown, missing and mistyped fields come back each with its pointer."""
    body = {"publickey": "x", "realm": 3}
    response = await site.post(PATH, body, token=site.issuer.token())
    document = await problem(response, 400, "invalid_body")
    assert {e["pointer"] for e in document["errors"]} == {"/publickey", "/public_key", "/realm"}


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("-----BEGIN OPENSSH PRIVATE KEY-----\nb3Blbn", "private key"),
        ("ssh-dss AAAAB3NzaC1kc3M=", "DSA"),
        ('command="id" ssh-ed25519 AAAA', "options"),
        ("ssh-ed25519 AAAA\nssh-ed25519 AAAA", "one line"),
        ("ssh-ed25519 " + "A" * 20000, "longer"),
        ("nonsense", "not an OpenSSH public key"),
    ],
)
async def test_a_key_that_is_refused_says_why(site: Any, line: str, words: str) -> None:
    """Each kind of unusable key has its own sentence, and none is repeated."""
    response = await site.post(PATH, {"public_key": line}, token=site.issuer.token())
    document = await problem(response, 400, "key_refused")
    assert words in document["detail"]
    assert line not in await response.text()


async def test_the_authority_own_key_is_refused(site: Any) -> None:
    """The CA does not certify itself as a user."""
    known = await (await site.client.get("/v1/ca")).json()
    for line in (*known["user_ca"], *known["host_ca"]):
        response = await site.post(PATH, {"public_key": line}, token=site.issuer.token())
        document = await problem(response, 400, "key_refused")
        assert "authority's own" in document["detail"]


async def test_a_certificate_is_no_key(site: Any, key_line: str) -> None:
    """A certificate passed as a key is named as what it is."""
    token = site.issuer.token()
    answer = await (await site.post(PATH, {"public_key": key_line}, token=token)).json()
    response = await site.post(PATH, {"public_key": answer["certificate"]}, token=token)
    assert "certificate" in (await problem(response, 400, "key_refused"))["detail"]


async def test_a_service_gets_the_session_program_only(site: Any, key_line: str) -> None:
    """With a peer credential the force-command is the session program and nothing is permitted."""
    body = {"public_key": key_line, "profile": "session"}
    token = site.issuer.token(aud=GATEWAY_AUDIENCE)
    response = await site.post(PATH, body, token=token, peer=site.peer())
    assert response.status == 201, await response.text()
    answer = await response.json()
    certificate = ssh.load_ssh_public_identity(answer["certificate"].encode())
    assert certificate.critical_options == {b"force-command": PROGRAM.encode()}
    assert certificate.extensions == {}
    assert "via=gateway" in answer["key_id"]


@pytest.mark.parametrize("claims", [{"aud": "https://elsewhere.example/"}, {"aud": None}])
async def test_a_foreign_audience_counts_from_a_service_and_a_listed_client(
    site: Any, key_line: str, claims: dict[str, Any]
) -> None:
    """Such a token works only when an authenticated service hands it in for a listed client."""
    body = {"public_key": key_line, "profile": "session"}
    token = site.issuer.token(**claims, client_id="orchestrator")
    assert (await site.post(PATH, body, token=token, peer=site.peer())).status == 201
    other = site.issuer.token(**claims, client_id="somebody")
    response = await site.post(PATH, body, token=other, peer=site.peer())
    await problem(response, 401, "invalid_token")


DOOR_AUDIENCE = "https://door.site.example/"


@pytest.mark.parametrize("audience", [DOOR_AUDIENCE, None])
async def test_a_login_service_gets_a_persons_certificate(
    site: Any, key_line: str, audience: str | None
) -> None:
    """With a token for it, or for us; the certificate says through whom it was got."""
    claims = {"aud": audience} if audience else {}
    response = await site.post(
        PATH,
        {"public_key": key_line, "lifetime": 60, "source_address": "192.0.2.7"},
        token=site.issuer.token(**claims),
        peer=site.peer("frontdoor"),
    )
    assert response.status == 201, await response.text()
    answer = await response.json()
    certificate = ssh.load_ssh_public_identity(answer["certificate"].encode())
    assert certificate.critical_options == {b"source-address": b"192.0.2.7/32"}
    assert certificate.extensions == {b"permit-pty": b""}
    assert certificate.valid_before - certificate.valid_after == 120
    assert "via=frontdoor" in answer["key_id"]


@pytest.mark.parametrize("claims", [{"aud": "https://elsewhere.example/"}, {"aud": None}])
async def test_a_token_for_nobody_in_particular_is_no_login(
    site: Any, key_line: str, claims: dict[str, Any]
) -> None:
    """What a listed client's jobs may do without the audience, a login may not."""
    token = site.issuer.token(**claims, client_id="orchestrator")
    response = await site.post(
        PATH, {"public_key": key_line}, token=token, peer=site.peer("frontdoor")
    )
    await problem(response, 401, "invalid_token")


@pytest.mark.parametrize(
    ("less", "pointer"),
    [({"lifetime": 0}, "/lifetime"), ({"source_address": "10.0.0.0/8"}, "/source_address")],
)
async def test_asking_for_less_is_checked(
    site: Any, key_line: str, less: dict[str, Any], pointer: str
) -> None:
    """A lifetime of nothing and an address that is none are named."""
    body = {"public_key": key_line, **less}
    response = await site.post(PATH, body, token=site.issuer.token())
    assert response.status in {400, 422}
    assert [fault["pointer"] for fault in (await response.json())["errors"]] == [pointer]


async def test_profiles_belong_to_their_callers(site: Any, key_line: str) -> None:
    """A person does not get a session certificate, a service a person's only with the verb."""
    token = site.issuer.token()
    body = {"public_key": key_line, "profile": "session"}
    await problem(await site.post(PATH, body, token=token), 403, "forbidden")
    response = await site.post(PATH, body, token=token, peer=site.peer("frontdoor"))
    await problem(response, 403, "peer_verb")
    body = {"public_key": key_line}
    response = await site.post(PATH, body, token=token, peer=site.peer())
    await problem(response, 403, "peer_verb")


async def test_a_service_needs_the_verb(site: Any, key_line: str) -> None:
    """A known service without the right is refused, one with a used credential too."""
    body = {"public_key": key_line, "profile": "session"}
    token = site.issuer.token()
    response = await site.post(PATH, body, token=token, peer=site.peer("stranger"))
    await problem(response, 403, "peer_verb")
    once = site.peer()
    assert (await site.post(PATH, body, token=token, peer=once)).status == 201
    await problem(await site.post(PATH, body, token=token, peer=once), 401, "peer")


async def test_rules_decide_and_say_so(start: Any, make_signer: Any, key_line: str) -> None:
    """The first rule that applies decides; if none does, each says what it would need."""
    rules = """
[[rules]]
name = "staff"
groups = ["site/staff"]
lifetime = 120
extensions = ["permit-pty", "permit-port-forwarding"]
source_addresses = ["192.0.2.0/24"]
"""
    signer = make_signer(extensions='["permit-pty", "permit-port-forwarding"]')
    async with start(rules, own=signer) as site:
        token = site.issuer.token(groups=["/site/staff"])
        response = await site.post(PATH, {"public_key": key_line}, token=token)
        answer = await response.json()
        certificate = ssh.load_ssh_public_identity(answer["certificate"].encode())
        assert certificate.critical_options == {b"source-address": b"192.0.2.0/24"}
        assert set(certificate.extensions) == {b"permit-pty", b"permit-port-forwarding"}
        assert certificate.valid_before - time.time() <= 120
        token = site.issuer.token(groups=["/site/staff-guests"])
        response = await site.post(PATH, {"public_key": key_line}, token=token)
        document = await problem(response, 403, "no_rule")
        assert document["rules"] == ["staff: it needs one of the groups site/staff"]


async def test_nothing_secret_is_kept_or_logged(
    start: Any, make_signer: Any, key_line: str
) -> None:
    """Neither the token nor its jti is in logs or answers, or in any file; nor names in clear."""
    signer = make_signer()
    async with start(own=signer) as site:
        with structlog.testing.capture_logs() as logged:
            token = site.issuer.token(jti="the-secret-jti")
            assert (await site.post(PATH, {"public_key": key_line}, token=token)).status == 201
            bad = await site.post(PATH, {"public_key": "nonsense"}, token=token)
            worse = await site.post(PATH, {"public_key": key_line}, token=token[:-6])
        said = f"{logged} {await bad.text()} {await worse.text()}"
        kept = await asyncio.to_thread(_everything_below, signer.folder.parent)
        ledger = await asyncio.to_thread(_everything_below, signer.folder)
    assert {entry["event"] for entry in logged} == {"request", "refused"}
    for secret in (token, token.split(".")[2], "the-secret-jti"):
        assert secret not in said
        assert secret.encode() not in kept
    for personal in (b"alice", site.issuer.url.encode()):
        assert personal not in ledger


def _everything_below(folder: Path) -> bytes:
    return b"".join(p.read_bytes() for p in folder.rglob("*") if p.is_file())
