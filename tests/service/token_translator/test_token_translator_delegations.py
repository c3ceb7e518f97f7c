"""What a person sees and ends of what services may do for them, and the switch for a service."""

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import structlog

from headgate.command import Completed, run
from tests.service.token_translator.denial_world import until_revoked

SEALS, DELEGATED, MINE = "/v1/seals", "/v1/delegated-certificates", "/v1/delegations"
DIGEST = "ab" * 32


async def problem(response: Any, status: int, code: str) -> Any:
    """The problem of a refusal, once it is the expected one."""
    document = await response.json()
    assert (response.status, document["code"]) == (status, code), document
    return document


async def sealed(site: Any, sub: str = "alice") -> str:
    """A row that the gateway sealed for a person."""
    row = str(uuid4())
    body = {"row": row, "digest": DIGEST, "realm": "site1"}
    answer = await site.post(SEALS, body, token=site.issuer.token(sub), peer=site.peer())
    assert answer.status == 201, await answer.text()
    return row


async def certificate(site: Any, row: str, key_line: str, verb: str = "submit") -> Any:
    """What the gateway gets for a row without a token."""
    body = {"row": row, "verb": verb, "public_key": key_line}
    return await site.post(DELEGATED, body, peer=site.peer())


async def mine(site: Any, sub: str = "alice") -> dict[str, Any]:
    """A person's delegations by row."""
    headers = {"Authorization": f"Bearer {site.issuer.token(sub)}"}
    answer = await site.client.get(MINE, headers=headers)
    assert answer.status == 200, await answer.text()
    return {found["row"]: found for found in (await answer.json())["delegations"]}


async def end(site: Any, row: str, sub: str = "alice") -> Any:
    """A person ends one."""
    headers = {"Authorization": f"Bearer {site.issuer.token(sub)}"}
    return await site.client.delete(f"{MINE}/{row}", headers=headers)


async def test_a_person_sees_what_is_delegated(site: Any, key_line: str) -> None:
    """One's own rows, for which service, how long, and the certificates that live for each."""
    site.registry.has("bob", "bob")
    ours, theirs = await sealed(site), await sealed(site, "bob")
    issued = await (await certificate(site, ours, key_line)).json()
    found = await mine(site)
    assert theirs not in found
    assert (found[ours]["service"], found[ours]["state"]) == ("gateway", "active")
    (listed,) = found[ours]["certificates"]
    assert (listed["serial"], listed["verb"]) == (issued["serial"], "submit")
    assert listed["valid_before"] == issued["valid_before"]
    assert set(await mine(site, "bob")) == {theirs}


async def test_what_is_ended_stays_ended(site: Any, key_line: str) -> None:
    """No certificate for it any more, no new seal, and the one that lives is revoked."""
    row, other = await sealed(site), await sealed(site)
    assert (await certificate(site, row, key_line)).status == 201
    assert (await end(site, row)).status == 204
    await problem(await certificate(site, row, key_line), 403, "delegation_ended")
    body = {"row": row, "digest": DIGEST, "realm": "site1"}
    again = await site.post(SEALS, body, token=site.issuer.token(), peer=site.peer())
    await problem(again, 409, "delegation_ended")
    found = (await mine(site))[row]
    assert (found["state"], found["certificates"][0]["revoked"]) == ("ended", True)
    assert (await end(site, row)).status == 204
    assert (await certificate(site, other, key_line)).status == 201


async def test_an_end_is_carried_out_by_a_signer_that_comes_back(
    start: Any, make_signer: Callable[..., Any], key_line: str, tmp_path: Path
) -> None:
    """Whoever was told that the signer is away need not ask again: what lives is revoked."""
    signer = await asyncio.to_thread(make_signer)
    async with start(own=signer) as site:
        row = await sealed(site)
        lives = await (await certificate(site, row, key_line)).json()
        await asyncio.to_thread(signer.kill)
        await problem(await end(site, row), 503, "signer_away")
        await asyncio.to_thread(signer.start)
        await until_revoked(site, lives["certificate"], tmp_path)


@pytest.mark.parametrize("row", ["nonsense", "5e1f7a1c-0d5b-4b52-9a52-6b7f3a1d2c4e"])
async def test_only_ones_own_can_be_ended(site: Any, row: str, key_line: str) -> None:
    """Another's row and one that never was are the same to whom it does not concern."""
    theirs = await sealed(site)
    await problem(await end(site, row), 404, "seal_unknown")
    await problem(await end(site, theirs, "bob"), 404, "seal_unknown")
    assert (await certificate(site, theirs, key_line)).status == 201


async def test_a_service_may_not_look(site: Any) -> None:
    """A token for the gateway shows nobody's delegations."""
    foreign = site.issuer.token(aud="https://gateway.site.example/")
    answer = await site.client.get(MINE, headers={"Authorization": f"Bearer {foreign}"})
    await problem(answer, 401, "invalid_token")


async def administrator(folder: Path, *arguments: str) -> Completed:
    """`headgate-tokens` on the host."""
    verb, *rest = arguments
    config = ("--config", str(folder / "tokens.toml"))
    return await run((sys.executable, "-m", "token_translator", verb, *config, *rest), timeout=60)


async def test_one_service_is_stopped_at_once(site: Any, folder: Path, key_line: str) -> None:
    """Nothing is sealed or signed for it, with or without a token; others are not disturbed."""
    row = await sealed(site)
    reason = ("--reason", "its key was seen elsewhere")
    stopped = await administrator(folder, "stop-service", "gateway", *reason)
    assert stopped.status == 0, stopped
    document = await problem(await certificate(site, row, key_line), 403, "service_stopped")
    assert "seen elsewhere" in document["detail"]
    token = site.issuer.token()
    body = {"row": str(uuid4()), "digest": DIGEST, "realm": "site1"}
    await problem(
        await site.post(SEALS, body, token=token, peer=site.peer()), 403, "service_stopped"
    )
    session = {"public_key": key_line, "profile": "session"}
    answer = await site.post("/v1/certificates", session, token=token, peer=site.peer())
    await problem(answer, 403, "service_stopped")
    person = {"public_key": key_line}
    answer = await site.post("/v1/certificates", person, token=token, peer=site.peer("frontdoor"))
    assert answer.status == 201
    assert b"gateway  stopped" in (await administrator(folder, "services")).stdout
    assert (await administrator(folder, "start-service", "gateway")).status == 0
    assert (await certificate(site, row, key_line)).status == 201


async def test_a_misspelt_service_is_not_stopped(site: Any, folder: Path) -> None:
    """The command names those that there are."""
    del site
    wrong = await administrator(folder, "stop-service", "gatewya", "--reason", "x")
    assert (wrong.status, b"there is gateway, stranger, frontdoor" in wrong.stderr) == (78, True)


async def test_too_many_for_one_service_is_an_alarm(start: Any, key_line: str) -> None:
    """Spread over many people, a stolen service credential is noticed all the same."""
    async with start("[delegation]\nper_minute = 2\nper_minute_of_service = 4\n") as site:
        site.registry.has("bob", "bob")
        site.registry.has("carol", "carol")
        rows = [await sealed(site, sub) for sub in ("alice", "alice", "bob", "bob", "carol")]
        asked = [await certificate(site, row, key_line) for row in rows[:-1]]
        assert [answer.status for answer in asked] == [201] * 4
        with structlog.testing.capture_logs() as logged:
            refused = await problem(await certificate(site, rows[-1], key_line), 429, "sealed_rate")
    assert "for this service" in refused["detail"]
    alarms = [entry for entry in logged if entry["event"] == "sealed_rate_alarm"]
    assert [(alarm["of"], alarm["instance"]) for alarm in alarms] == [("service", "gateway")]


async def test_ending_and_asking_at_once(site: Any, key_line: str) -> None:
    """Whatever was signed while the end was under way is not given out, and revoked."""
    row = await sealed(site)
    asked = [certificate(site, row, key_line, "status") for _ in range(10)]
    ended, *answers = await asyncio.gather(end(site, row), *asked)
    assert ended.status == 204
    assert {answer.status for answer in answers} <= {201, 403}
    found = (await mine(site))[row]["certificates"]
    assert all(certificate["revoked"] for certificate in found)


async def entries(site: Any, sub: str) -> list[dict[str, Any]]:
    """What the ledger has of a person, as the administrator of the signer reads it."""
    user = ("--user", site.issuer.url, sub)
    argv = (sys.executable, "-m", "token_translator.signer", "ledger", "search", "--json", *user)
    done = await run((*argv, "--config", str(site.signer.config)), timeout=60)
    return [json.loads(line) for line in done.checked().stdout.splitlines()]


async def test_the_ledger_says_for_which_job_and_what_was_refused(site: Any, key_line: str) -> None:
    """Each certificate with its row and verb; each refusal with its code; neither with a token."""
    sub = str(uuid4())
    site.registry.has(sub, "alice")
    row = await sealed(site, sub)
    assert (await certificate(site, row, key_line)).status == 201
    assert (await end(site, row, sub)).status == 204
    await problem(await certificate(site, row, key_line), 403, "delegation_ended")
    site.registry.has(sub, "alice", state="blocked")
    token = site.issuer.token(sub)
    answer = await site.post("/v1/certificates", {"public_key": key_line}, token=token)
    await problem(answer, 403, "account_blocked")
    found = await entries(site, sub)
    # The note of the end comes within a second, whenever that is.
    told = [
        (entry["kind"], entry.get("code"), entry["personal"].get("row"))
        for entry in found
        if entry["kind"] != "noted"
    ]
    assert told == [
        ("issued", None, row),
        ("revoked", None, None),
        ("refused", "delegation_ended", row),
        ("refused", "account_blocked", None),
    ]
    assert token not in json.dumps(found)


async def test_a_person_is_forgotten_at_the_terminal(
    site: Any, folder: Path, key_line: str
) -> None:
    """Their seals are good for nothing any more; the ledger is the signer's to erase."""
    row = await sealed(site)
    assert (await administrator(folder, "retain")).stdout == b"removed: nothing\n"
    who = ("--iss", site.issuer.url, "--sub", "alice")
    done = await administrator(folder, "erase", *who)
    assert done.status == 0, done
    assert b"seals 1" in done.stdout
    assert b"headgate-signer ledger erase" in done.stdout
    await problem(await certificate(site, row, key_line), 404, "seal_unknown")
