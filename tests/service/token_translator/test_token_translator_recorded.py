"""What is no certificate and yet in the ledger: logins of PAM, refused seals, stopped services."""

import json
import sys
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from headgate.command import run
from tests.service.token_translator.test_token_translator_pam import PAM, get, password
from tests.service.token_translator.test_token_translator_restored import terminal, told

DIGEST = "ab" * 32


async def entries(site: Any, sub: str) -> list[tuple[str, str, dict[str, Any]]]:
    """Kind, event or code, and personal fields of what the ledger has of a person."""
    argv = (sys.executable, "-m", "token_translator.signer", "ledger", "search", "--json")
    options = ("--user", site.issuer.url, sub, "--config", str(site.signer.config))
    done = (await run((*argv, *options), timeout=60)).checked()
    found = [json.loads(line) for line in done.stdout.splitlines()]
    return [
        (entry["kind"], entry.get("event") or entry.get("code"), entry["personal"])
        for entry in found
    ]


async def test_logins_that_pam_was_told_of(start: Any, registry: Any) -> None:
    """Whom it was told to let in or not, as whom, and why not; neither token nor password."""
    sub = str(uuid4())
    registry.has(sub, "erin")
    async with start(PAM) as site:
        token = site.issuer.token(sub, jti=sub)
        assert (await get(site, "/verify_user", token, username="erin"))[1]["verified"] is True
        assert (await get(site, "/verify_user", token, username="root"))[1]["verified"] is False
        once = await password(site, sub)
        assert (await get(site, "/verify_user", once, username="erin"))[1]["verified"] is True
        registry.has(sub, "erin", state="blocked")
        assert (await get(site, "/verify_user", token, username="erin"))[0] == 403
        found = await entries(site, sub)
    assert [(kind, event, about["detail"]) for kind, event, about in found] == [
        ("noted", "pam_accepted", "by token, as erin"),
        ("noted", "pam_refused", "by token, as root: another account"),
        ("noted", "pam_accepted", "by one-time password, as erin, on login1.site.example"),
        ("noted", "pam_refused", "by token, as erin: account_blocked"),
    ]
    assert {about["realm"] for _, _, about in found} == {"site1"}
    assert not any(secret in json.dumps(found) for secret in (token, once))


async def test_a_password_of_nobody_known(start: Any, make_signer: Any) -> None:
    """A refused one-time password is an entry of the node's."""
    async with start(PAM, own=make_signer()) as site:
        assert (await get(site, "/verify_user", "A" * 26, username="alice"))[0] == 401
        notes = await told(site.signer, "pam_refused")
    (note,) = (one for one in notes if one["event"] == "pam_refused")
    assert note["personal"]["instance"] == "login1.site.example"
    assert note["personal"]["detail"] == "by one-time password, as alice, on login1.site.example"


async def test_nobody_is_let_in_unrecorded(start: Any, make_signer: Any, registry: Any) -> None:
    """While the ledger cannot be written, PAM is told nothing rather than yes."""
    registry.has("erin", "erin")
    signer = make_signer()
    async with start(PAM, own=signer) as site:
        token = site.issuer.token("erin")
        assert (await get(site, "/verify_user", token, username="erin"))[0] == 200
        signer.stop()
        assert (await get(site, "/verify_user", token, username="erin"))[0] == 503


@pytest.mark.parametrize("state", ["active", "suspended"])
async def test_seals_that_were_refused(start: Any, registry: Any, folder: Path, state: str) -> None:
    """With the row, the service and the reason."""
    sub, row = str(uuid4()), str(uuid4())
    registry.has(sub, "erin")
    async with start() as site:
        seal = {"row": row, "digest": DIGEST, "realm": "site1"}
        token = site.issuer.token(sub)
        if state == "active":
            assert (await site.post("/v1/seals", seal, token=token, peer=site.peer())).status == 201
            seal["digest"] = "cd" * 32
        else:
            who = ("--iss", site.issuer.url, "--sub", sub, "--reason", "gone")
            assert (await terminal(folder, "suspend", *who)).status == 0
        answer = await site.post("/v1/seals", seal, token=token, peer=site.peer())
        code = {"active": "seal_conflict", "suspended": "suspended"}[state]
        assert (await answer.json())["code"] == code
        found = [one for one in await entries(site, sub) if one[0] == "refused"]
    ((_, told_code, about),) = found
    assert (told_code, about["row"], about["instance"], about["verb"]) == (
        code,
        row,
        "gateway",
        "seal",
    )


async def test_services_that_were_stopped(start: Any, make_signer: Any, folder: Path) -> None:
    """Which one, by whom and why; and when it went on."""
    async with start(own=make_signer()) as site:
        stop = ("stop-service", "gateway", "--reason", "its key was seen elsewhere")
        assert (await terminal(folder, *stop)).status == 0
        assert (await terminal(folder, "start-service", "gateway")).status == 0
        notes = await told(site.signer, "service_stopped", "service_started")
    stopped, started = (one for one in notes if one["event"].startswith("service_"))
    assert stopped["personal"]["instance"] == started["personal"]["instance"] == "gateway"
    assert stopped["personal"]["detail"].endswith(": its key was seen elsewhere")
    assert stopped["personal"]["detail"].startswith("by local:")
