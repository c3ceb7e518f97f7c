"""The issuer's SCIM face and its control client, as section 6.3 of IAM's contract has them."""

import aiohttp
import pytest

from testbed.issuer.client import ControlError, IssuerControl
from testbed.issuer.core import Fault, Issuer
from testbed.issuer.directory import User


async def reader(issuer: Issuer, session: aiohttp.ClientSession, scope: str) -> dict[str, str]:
    """The header of a client token with a scope."""
    form = {"grant_type": "client_credentials", "scope": scope}
    basic = {"Authorization": aiohttp.encode_basic_auth("importer", "s3")}
    async with session.post(issuer.url + "token", data=form, headers=basic) as response:
        return {"Authorization": f"Bearer {(await response.json())['access_token']}"}


async def test_pages_are_bounded_and_count_their_rows(
    issuer: Issuer, session: aiohttp.ClientSession
) -> None:
    """However many are asked for, a page has 100; itemsPerPage says how many are on it."""
    for number in range(150):
        issuer.directory.put(User(username=f"u{number}"))
    headers = await reader(issuer, session, "scim:read")
    seen: list[str] = []
    for start, rows in ((1, 100), (101, 54), (200, 0)):
        address = f"{issuer.url}scim/Users?startIndex={start}&count=1000"
        async with session.get(address, headers=headers) as response:
            assert response.headers["Content-Type"] == "application/scim+json;charset=UTF-8"
            page = await response.json(content_type=None)
        assert (page["totalResults"], page["itemsPerPage"]) == (154, rows)
        seen += [user["id"] for user in page["Resources"]]
    assert len(set(seen)) == 154


async def test_absent_lists_are_omitted_and_ids_are_subjects(
    issuer: Issuer, session: aiohttp.ClientSession
) -> None:
    """A user without groups has no `groups`; `attributes` always keeps schemas and id."""
    headers = await reader(issuer, session, "scim:read")
    dave = issuer.directory.user("dave")
    address = f"{issuer.url}scim/Users/{dave.id}"
    async with session.get(address, headers=headers) as response:
        user = await response.json(content_type=None)
    assert "groups" not in user
    assert "emails" not in user
    async with session.get(address + "?attributes=userName", headers=headers) as response:
        assert set(await response.json(content_type=None)) == {"schemas", "id", "userName"}
    async with session.get(f"{issuer.url}scim/Users/none", headers=headers) as response:
        assert response.status == 404


async def test_scim_needs_its_scope(issuer: Issuer, session: aiohttp.ClientSession) -> None:
    """A token without scim:read is refused, and so is none."""
    headers = await reader(issuer, session, "profile")
    async with session.get(issuer.url + "scim/Users", headers=headers) as response:
        assert response.status == 403
    async with session.get(issuer.url + "scim/Users") as response:
        assert response.status == 401


async def test_control_client_changes_people_and_plans_faults(
    issuer: Issuer, session: aiohttp.ClientSession
) -> None:
    """Users are added, changed, deactivated, ended and deleted while the issuer runs."""
    control = IssuerControl(session=session, url=issuer.url, secret="control")
    sub = await control.put_user("erin", groups=["hpc"])
    assert issuer.directory.by_id(sub).groups == ("hpc",)
    await control.change_user("erin", active=False, end_time="2026-02-03T04:05:06Z")
    assert not issuer.directory.user("erin").active
    assert {user["username"] for user in await control.users()} >= {"alice", "erin"}
    await control.delete_user("erin")
    with pytest.raises(ControlError, match="no user 'erin'"):
        await control.token("erin")
    await control.fault("/jwk", status=503)
    for status in (503, 200):
        async with session.get(issuer.url + "jwk") as response:
            assert response.status == status
    await control.replace_users([])
    assert issuer.directory.users() == []


async def test_a_cut_connection_is_a_fault_too(
    issuer: Issuer, session: aiohttp.ClientSession
) -> None:
    """A planned cut ends the connection without an answer."""
    issuer.faults.append(Fault("/jwk", status=-1, times=2))  # aiohttp tries a GET again
    with pytest.raises(aiohttp.ClientError):
        await session.get(issuer.url + "jwk")
