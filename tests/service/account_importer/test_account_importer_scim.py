"""Reading a real SCIM server that fails, shrinks and moves while it is read."""

from typing import Any

import aiohttp
import msgspec
import pytest
from aiohttp import web

from account_importer.directory import SourceError
from account_importer.scim import ScimSource
from account_importer.settings import SourceSettings
from headgate.service import ListenSettings, listening
from testbed.issuer.core import Fault
from testbed.issuer.directory import User

USERS = "/scim/Users"


def crowd(site: Any, number: int) -> None:
    """So many more users."""
    for index in range(number):
        site.issuer.directory.put(User(username=f"u{index:04}", groups=("hpc",)))


async def test_all_pages_are_read(site: Any) -> None:
    """More users than fit a page come whole, with groups and activity."""
    crowd(site, 250)
    site.issuer.directory.change("bob", active=False)
    users = {user.user_name: user for user in await site.source().users()}
    assert len(users) == 254
    assert users["alice"].groups == {"hpc", "gpu"}
    assert users["dave"].groups == frozenset()
    assert not users["bob"].active


@pytest.mark.parametrize("status", [500, 401, 302, -1])
async def test_a_page_that_fails_is_an_error_not_an_end(site: Any, status: int) -> None:
    """A failure on the second page gives no users at all."""
    crowd(site, 150)
    site.issuer.faults.append(Fault(USERS, status=status, after=1, times=5))
    with pytest.raises(SourceError):
        await site.source().users()


async def test_rows_that_move_are_read_again(site: Any) -> None:
    """A user deleted between two pages: the reading is made anew, and is consistent."""
    crowd(site, 150)
    directory = site.issuer.directory
    site.issuer.faults.append(
        Fault(USERS, status=0, after=1, action=lambda: directory.delete("alice"))
    )
    users = {user.user_name for user in await site.source().users()}
    assert len(users) == 153
    assert "alice" not in users


async def test_a_source_that_never_stands_still_is_an_error(site: Any) -> None:
    """Moving rows in each reading end in a refusal, not in a guess."""
    crowd(site, 150)
    directory = site.issuer.directory

    def churn() -> None:
        directory.delete(directory.users()[0].username)

    site.issuer.faults += [Fault(USERS, status=0, after=1, action=churn) for _ in range(9)]
    for fault in list(site.issuer.faults)[1:]:
        fault.after = 0
    with pytest.raises(SourceError, match="changed during each"):
        await site.source().users()


async def test_absence_is_asked_for_by_id(site: Any) -> None:
    """Only a 404 for that very id means absent; a failure means nothing."""
    source = site.source()
    alice = site.issuer.directory.user("alice").id
    assert not await source.absent(alice)
    assert await source.absent("../Users")
    site.issuer.faults.append(Fault(USERS, status=503))
    with pytest.raises(SourceError):
        await source.absent(alice)


async def test_a_client_without_the_scope_reads_nobody(site: Any) -> None:
    """A refused client is an error, never an empty site."""
    settings = msgspec.structs.replace(site.settings.source, client_id="blind")
    source = ScimSource(settings=settings, secret=b"s3:cret", session=site.session)
    with pytest.raises(SourceError, match="403"):
        await source.users()
    source = ScimSource(settings=settings, secret=b"wrong", session=site.session)
    with pytest.raises(SourceError, match="gave no token"):
        await source.users()


async def test_more_users_than_allowed_are_an_error(site: Any) -> None:
    """A source that grew out of all bounds is not read."""
    settings = msgspec.structs.replace(site.settings.source, max_users=3)
    source = ScimSource(settings=settings, secret=b"s3:cret", session=site.session)
    with pytest.raises(SourceError, match="max_users"):
        await source.users()


@pytest.mark.parametrize("kind", ["issuer", "origin", "junk", "rows"])
async def test_a_source_that_lies_is_refused(session: aiohttp.ClientSession, kind: str) -> None:
    """Another issuer, endpoints elsewhere, a body that is not SCIM: nothing is followed."""
    where = {"address": ""}

    async def discovery(_: web.Request) -> web.Response:
        address = where["address"]
        scim = "http://127.0.0.1:9/scim" if kind == "origin" else address + "/scim"
        issuer = "https://other/" if kind == "issuer" else address + "/"
        return web.json_response(
            {"issuer": issuer, "token_endpoint": address + "/token", "scim_endpoint": scim}
        )

    async def token(_: web.Request) -> web.Response:
        return web.json_response({"access_token": "t"})

    async def users(_: web.Request) -> web.Response:
        row = {"id": "1", "userName": "a"}
        rows = {"totalResults": 2, "Resources": [row, row]}
        return web.json_response(rows if kind == "rows" else {"totalResults": "many"})

    app = web.Application()
    app.router.add_get("/.well-known/openid-configuration", discovery)
    app.router.add_post("/token", token)
    app.router.add_get("/scim/Users", users)
    async with listening(app, ListenSettings()) as address:
        where["address"] = address
        settings = SourceSettings(
            issuer=address + "/", client_id="c", client_secret_file="", groups_any=("hpc",)
        )
        source = ScimSource(settings=settings, secret=b"s", session=session)
        with pytest.raises(SourceError):
            await source.users()
