"""Denial over real HTTP, with a real signer: who is suspended gets nothing, and who may say so."""

import asyncio
import subprocess
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.service.token_translator.denial_world import (
    IMPORTER,
    OTHER,
    WHY,
    certificate,
    held,
    hold,
    lift,
    more,
    problem,
    revoked,
)


@pytest.fixture
async def site(start: Any, issuer: Any, registry: Any) -> AsyncIterator[Any]:
    """A translator with administrators, an importer and one more service; erin has an account."""
    registry.has("erin", "erin")
    async with start(more(issuer)) as one:
        yield one


async def test_a_suspension_refuses_at_once_and_revokes_what_lives(
    site: Any, key_line: str, tmp_path: Path
):
    """The next request is refused with the reason, and the certificate of before is on the list."""
    before = await (await certificate(site, key_line)).json()
    assert not await revoked(site, before["certificate"], tmp_path)
    answer = await hold(site)
    document = await answer.json()
    assert (answer.status, document["owner"]) == (201, "peer:importer")
    assert document["revocation"] == "done"
    refusal = await problem(await certificate(site, key_line), 403, "suspended")
    assert WHY in refusal["detail"]
    assert await revoked(site, before["certificate"], tmp_path)
    assert (await certificate(site, key_line, "alice")).status == 201


async def test_every_way_to_a_certificate_is_closed(site: Any, key_line: str):
    """A person's, a session's, a seal, and a certificate under a seal of before."""
    token, row = site.issuer.token("erin"), str(uuid4())
    seal = {"row": row, "digest": 64 * "a", "realm": "site1"}
    assert (await site.post("/v1/seals", seal, token=token, peer=site.peer())).status == 201
    await held(site)
    await problem(await certificate(site, key_line), 403, "suspended")
    session = {"public_key": key_line, "profile": "session"}
    asked = await site.post("/v1/certificates", session, token=token, peer=site.peer())
    await problem(asked, 403, "suspended")
    sealed = {"row": row, "verb": "submit", "public_key": key_line}
    asked = await site.post("/v1/delegated-certificates", sealed, peer=site.peer())
    await problem(asked, 403, "suspended")
    another = {**seal, "row": str(uuid4())}
    await problem(
        await site.post("/v1/seals", another, token=token, peer=site.peer()), 403, "suspended"
    )


async def test_a_resume_gives_new_certificates_and_leaves_old_ones_revoked(
    site: Any, key_line: str, tmp_path: Path
):
    """Revoking is final: who may act again asks again."""
    before = await (await certificate(site, key_line)).json()
    document = await held(site)
    assert (await lift(site, document["id"])).status == 204
    after = await certificate(site, key_line)
    assert after.status == 201
    assert await revoked(site, before["certificate"], tmp_path)
    assert not await revoked(site, (await after.json())["certificate"], tmp_path)
    assert (await lift(site, document["id"])).status == 204


async def test_each_owner_lifts_its_own(site: Any, key_line: str):
    """A service cannot lift another's hold, nor see it; an administrator sees all."""
    mine = await held(site)
    theirs = await held(site, OTHER)
    assert theirs["id"] != mine["id"]
    await problem(await lift(site, theirs["id"]), 403, "not_owner")
    await problem(await lift(site, str(uuid4())), 404, "hold_unknown")
    await problem(await lift(site, "no-uuid"), 404, "hold_unknown")
    headers = IMPORTER.signer.headers(site.url)
    shown = await (await site.client.get("/v1/holds", headers=headers)).json()
    assert [one["id"] for one in shown["holds"]] == [mine["id"]]
    headers = {"Authorization": f"Bearer {site.issuer.token('root-of-trust')}"}
    shown = await (await site.client.get("/v1/holds", headers=headers)).json()
    assert {one["id"] for one in shown["holds"]} == {mine["id"], theirs["id"]}
    params = {"iss": site.issuer.url, "sub": "nobody"}
    shown = await (await site.client.get("/v1/holds", headers=headers, params=params)).json()
    assert shown == {"holds": [], "more": False}
    assert (await lift(site, mine["id"])).status == 204
    await problem(await certificate(site, key_line), 403, "suspended")
    assert (await lift(site, theirs["id"], OTHER)).status == 204
    assert (await certificate(site, key_line)).status == 201


async def test_whoever_is_suspended_sees_why_and_by_whom(site: Any):
    """A person sees their own holds, whoever owns them, and nobody else's."""
    mine, _ = await held(site), await held(site, sub="bob")
    for sub, expected in (("erin", [(mine["id"], "peer:importer", WHY)]), ("alice", [])):
        headers = {"Authorization": f"Bearer {site.issuer.token(sub)}"}
        answer = await site.client.get("/v1/holds/mine", headers=headers)
        shown = (await answer.json())["holds"]
        assert [(one["id"], one["owner"], one["reason"]) for one in shown] == expected
    assert (await site.client.get("/v1/holds/mine")).status == 401


async def test_the_same_again_is_the_same_hold(site: Any):
    """A service whose answer was lost asks again, and gets the hold it has."""
    first, again = await hold(site), await hold(site)
    assert (first.status, again.status) == (201, 200)
    assert (await first.json())["id"] == (await again.json())["id"]


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"realm": "mars"}, "/realm"),
        ({"iss": "https://elsewhere.example/"}, "/iss"),
        ({"reason": "two\nlines"}, "/reason"),
        ({"reason": ""}, "/reason"),
        ({"sub": "a\x00b"}, "/sub"),
        ({"owner": "admin:me"}, "/owner"),
    ],
)
async def test_a_wrong_hold_is_refused(site: Any, changes: dict[str, str], pointer: str):
    """What would suspend nobody, or break a log, is told with its place."""
    answer = await hold(site, **changes)
    assert answer.status == 400
    assert {fault["pointer"] for fault in (await answer.json())["errors"]} == {pointer}


async def test_who_may_suspend(site: Any):
    """Services with the verb and administrators, nobody else; members need a fresh login."""
    body = {"iss": site.issuer.url, "sub": "erin", "reason": WHY}
    await problem(await site.post("/v1/holds", body, peer=site.peer()), 403, "peer_verb")
    await problem(await site.post("/v1/holds", body), 401, "missing_token")
    asked = await site.post("/v1/holds", body, token=site.issuer.token("alice"))
    await problem(asked, 403, "not_administrator")
    old, fresh = int(time.time()) - 3600, int(time.time()) - 5
    token = site.issuer.token("carol", groups=["admins"], auth_time=old)
    asked = await site.post("/v1/holds", body, token=token)
    await problem(asked, 401, "insufficient_user_authentication")
    assert 'max_age="600"' in asked.headers["WWW-Authenticate"]
    token = site.issuer.token("carol", groups=["admins"], auth_time=fresh)
    asked = await site.post("/v1/holds", body, token=token)
    assert (await asked.json())["owner"] == f"admin:{site.issuer.url}#carol"


@pytest.mark.parametrize("realm", ["", "site1"])
async def test_a_suspended_administrator_is_none(site: Any, realm: str):
    """Whoever is held, everywhere or in one realm, neither holds, looks, lifts nor revokes."""
    token = site.issuer.token("root-of-trust")
    headers = {"Authorization": f"Bearer {token}"}
    of_erin = await held(site)
    own = await held(site, sub="root-of-trust", realm=realm)
    wanted = {"iss": site.issuer.url, "sub": "alice", "reason": WHY}
    for answer in (
        await site.post("/v1/holds", wanted, token=token),
        await site.client.get("/v1/holds", headers=headers),
        await site.client.delete(f"/v1/holds/{of_erin['id']}", headers=headers),
        await site.post("/v1/revocations", {"serials": [1], "reason": WHY}, token=token),
    ):
        assert WHY in (await problem(answer, 403, "suspended"))["detail"]
    assert (await lift(site, own["id"])).status == 204
    shown = await (await site.client.get("/v1/holds", headers=headers)).json()
    assert [one["id"] for one in shown["holds"]] == [of_erin["id"]]


async def test_an_administrator_named_for_nobody_is_a_mistake(start: Any, issuer: Any):
    """An entry without subjects and groups, or for a stranger's issuer, does not start."""
    for wrong in (
        f'[[administrators]]\nissuer = "{issuer.url}"\n',
        f'[[administrators]]\nissuer = "{issuer.url}"\nsubjects = []\n',
        '[[administrators]]\nissuer = "https://elsewhere.example/"\nsubjects = ["me"]\n',
    ):
        with pytest.raises(Exception, match="administrators"):
            async with start(wrong):
                pass


async def test_revocations(site: Any, key_line: str, tmp_path: Path):
    """By serial and by key, for a service with the verb or an administrator; nothing is a fault."""
    one, other = [await (await certificate(site, key_line)).json() for _ in range(2)]
    body = {"serials": [one["serial"]], "reason": WHY}
    headers = IMPORTER.signer.headers(site.url)
    await problem(await site.post("/v1/revocations", body, peer=headers), 403, "peer_verb")
    answer = await site.post("/v1/revocations", body, peer=OTHER.signer.headers(site.url))
    document = await answer.json()
    assert (answer.status, document["state"]) == (201, "done")
    assert document["serials"] == [one["serial"]]
    assert await revoked(site, one["certificate"], tmp_path)
    assert not await revoked(site, other["certificate"], tmp_path)
    (tmp_path / "key.pub").write_text(key_line)
    argv = ["ssh-keygen", "-l", "-f", str(tmp_path / "key.pub")]
    shown = await asyncio.to_thread(subprocess.check_output, argv, text=True)
    body = {"keys": [shown.split()[1]], "reason": WHY}
    token = site.issuer.token("root-of-trust")
    assert (await site.post("/v1/revocations", body, token=token)).status == 201
    assert await revoked(site, other["certificate"], tmp_path)
    await problem(
        await site.post("/v1/revocations", {"reason": WHY}, token=token), 400, "nothing_named"
    )


async def test_the_list_has_a_version_and_an_etag(site: Any, key_line: str):
    """304 while nothing has changed; a revocation is a new version and other bytes."""
    await certificate(site, key_line)
    first = await site.client.get("/v1/krl")
    assert first.content_type == "application/octet-stream"
    same = await site.client.get("/v1/krl", headers={"If-None-Match": first.headers["ETag"]})
    assert (same.status, await same.read()) == (304, b"")
    assert same.headers["Headgate-KRL-Version"] == first.headers["Headgate-KRL-Version"]
    await held(site)
    later = await site.client.get("/v1/krl", headers={"If-None-Match": first.headers["ETag"]})
    assert later.status == 200
    versions = [int(answer.headers["Headgate-KRL-Version"]) for answer in (first, later)]
    assert versions[1] > versions[0]
