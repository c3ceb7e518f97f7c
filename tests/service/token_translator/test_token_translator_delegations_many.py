"""Many delegations and many certificates: pages, a share for each person, and an end that ends."""

import asyncio
from typing import Any
from uuid import uuid4

from headgate.identity import Identity
from tests.service.token_translator import signer_requests

SEALS, DELEGATED, MINE = "/v1/seals", "/v1/delegated-certificates", "/v1/delegations"
DIGEST = "ab" * 32
MOST_SHOWN = 1000
"""Of one answer of the signer's about live certificates."""


def bearer(site: Any, sub: str) -> dict[str, str]:
    """The header of a person."""
    return {"Authorization": f"Bearer {site.issuer.token(sub)}"}


async def sealed(site: Any, sub: str) -> str:
    """A row that the gateway sealed for a person."""
    row = str(uuid4())
    body = {"row": row, "digest": DIGEST, "realm": "site1"}
    answer = await site.post(SEALS, body, token=site.issuer.token(sub), peer=site.peer())
    assert answer.status == 201, await answer.text()
    return row


async def test_an_end_reaches_behind_a_thousand_newer_certificates(
    site: Any, key_line: str
) -> None:
    """Whoever has got a thousand certificates since ends an older delegation all the same."""
    sub = str(uuid4())
    site.registry.has(sub, "alice")
    row = await sealed(site, sub)
    body = {"row": row, "verb": "status", "public_key": key_line}
    issued = await (await site.post(DELEGATED, body, peer=site.peer())).json()
    subject = signer_requests.subject(sub, iss=site.issuer.url)
    async with signer_requests.connected(site.signer) as client:
        asked = (
            client.sign(
                signer_requests.grant(),
                public_key=key_line,
                key_id=signer_requests.KEY_ID,
                subject=subject,
            )
            for _ in range(MOST_SHOWN + 1)
        )
        await asyncio.gather(*asked)
        ended = await site.client.delete(f"{MINE}/{row}", headers=bearer(site, sub))
        assert ended.status == 204
        live = await client.live(Identity(site.issuer.url, sub))
        assert len(live) == MOST_SHOWN + 2
        assert [one.serial for one in live if one.revoked] == [issued["serial"]]
    answer = await site.client.get(MINE, headers=bearer(site, sub))
    (shown,) = (await answer.json())["delegations"]
    assert [(one["serial"], one["revoked"]) for one in shown["certificates"]] == [
        (issued["serial"], True)
    ]


async def test_delegations_come_in_pages(site: Any) -> None:
    """Each one once, the newest page first, and the link says where the next one is."""
    sub = str(uuid4())
    rows = {await sealed(site, sub) for _ in range(5)}
    seen: list[str] = []
    address, sizes = f"{MINE}?limit=2", []
    while address:
        answer = await site.client.get(address, headers=bearer(site, sub))
        document = await answer.json()
        assert answer.status == 200, document
        seen += [found["row"] for found in document["delegations"]]
        sizes.append(len(document["delegations"]))
        link = answer.links.get("next")
        assert (link is None) == ("next" not in document)
        address = "" if link is None else str(link["url"].relative())
    assert (sizes, set(seen), len(seen)) == ([2, 2, 1], rows, 5)


async def test_pages_that_are_none(site: Any) -> None:
    """A limit out of bounds and a cursor of one's own making are told, with their place."""
    for query in ("limit=0", "limit=1001", "limit=many", "cursor=%21", "cursor=YWJj"):
        answer = await site.client.get(f"{MINE}?{query}", headers=bearer(site, "alice"))
        document = await answer.json()
        assert (answer.status, document["errors"][0]["pointer"]) == (
            400,
            f"/{query.partition('=')[0]}",
        ), query


async def test_nobody_asks_for_delegations_without_end(site: Any) -> None:
    """Thirty times a minute is enough for anybody, looking and ending together; others go on."""
    sub = str(uuid4())
    for _ in range(29):
        assert (await site.client.get(MINE, headers=bearer(site, sub))).status == 200
    gone = await site.client.delete(f"{MINE}/{uuid4()}", headers=bearer(site, sub))
    assert gone.status == 404
    for answer in (
        await site.client.get(MINE, headers=bearer(site, sub)),
        await site.client.delete(f"{MINE}/{uuid4()}", headers=bearer(site, sub)),
    ):
        assert (answer.status, (await answer.json())["code"]) == (429, "person_rate")
        assert 0 < int(answer.headers["Retry-After"]) <= 60
    assert (await site.client.get(MINE, headers=bearer(site, "alice"))).status == 200
