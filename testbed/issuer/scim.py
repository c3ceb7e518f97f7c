"""SCIM reading as INDIGO IAM does it: 100 a page, 1-based, no filter, absent lists omitted."""

from typing import Any

import msgspec
from aiohttp import web

from headgate.clock import rfc3339
from testbed.issuer.core import Issuer
from testbed.issuer.directory import UnknownUserError, User, group_id
from testbed.issuer.forms import bearer

INDIGO_USER = "urn:indigo-dc:scim:schemas:IndigoUser"
INDIGO_GROUP = "urn:indigo-dc:scim:schemas:IndigoGroup"
_USER = "urn:ietf:params:scim:schemas:core:2.0:User"
_GROUP = "urn:ietf:params:scim:schemas:core:2.0:Group"
_LIST = "urn:ietf:params:scim:api:messages:2.0:ListResponse"
_ERROR = "urn:ietf:params:scim:api:messages:2.0:Error"
PAGE_MAX = 100
READ_SCOPES = frozenset({"scim:read", "iam:admin.read"})


def add_routes(app: web.Application, issuer: Issuer) -> None:
    """`/scim/Users`, `/scim/Users/{id}`, `/scim/Groups`, `/scim/Groups/{id}`; reading only."""
    reader = _Reader(issuer)
    app.router.add_get("/scim/Users", reader.users)
    app.router.add_get("/scim/Users/{id}", reader.user)
    app.router.add_get("/scim/Groups", reader.groups)
    app.router.add_get("/scim/Groups/{id}", reader.group)


class _Reader:
    def __init__(self, issuer: Issuer) -> None:
        self._issuer = issuer

    async def users(self, request: web.Request) -> web.Response:
        """A page of users."""
        refusal = self._refusal(request)
        if refusal:
            return refusal
        everybody = self._issuer.directory.users()
        return self._page(request, everybody, self._user_document)

    async def user(self, request: web.Request) -> web.Response:
        """One user by id."""
        refusal = self._refusal(request)
        if refusal:
            return refusal
        try:
            user = self._issuer.directory.by_id(request.match_info["id"])
        except UnknownUserError:
            return _error(404, f"No user mapped to id '{request.match_info['id']}'")
        return _scim(_picked(self._user_document(user), request))

    async def groups(self, request: web.Request) -> web.Response:
        """A page of groups."""
        refusal = self._refusal(request)
        if refusal:
            return refusal
        return self._page(request, self._issuer.directory.groups(), self._group_document)

    async def group(self, request: web.Request) -> web.Response:
        """One group by id."""
        refusal = self._refusal(request)
        if refusal:
            return refusal
        for name in self._issuer.directory.groups():
            if group_id(name) == request.match_info["id"]:
                return _scim(_picked(self._group_document(name), request))
        return _error(404, f"No group mapped to id '{request.match_info['id']}'")

    def _refusal(self, request: web.Request) -> web.Response | None:
        issued = self._issuer.tokens.find(bearer(request))
        if issued is None:
            return _error(401, "A valid access token is needed")
        if not READ_SCOPES & set(issued.grant.scopes):
            return _error(403, "Insufficient scope: scim:read is needed")
        return None

    def _page(self, request: web.Request, rows: list[Any], document: Any) -> web.Response:  # noqa: ANN401 - rows are users or group names
        try:
            start = max(1, int(request.query.get("startIndex", "1")))
            count = min(PAGE_MAX, max(0, int(request.query.get("count", str(PAGE_MAX)))))
        except ValueError:
            return _error(400, "startIndex and count must be integers")
        if count == 0:
            return _scim({"schemas": [_LIST], "totalResults": len(rows), "startIndex": start})
        page = rows[start - 1 : start - 1 + count]
        return _scim(
            {
                "schemas": [_LIST],
                "totalResults": len(rows),
                "itemsPerPage": len(page),
                "startIndex": start,
                "Resources": [_picked(document(row), request) for row in page],
            }
        )

    def _user_document(self, user: User) -> dict[str, Any]:
        location = f"{self._issuer.url}scim/Users/{user.id}"
        modified = self._issuer.directory.modified(user)
        name = {
            "givenName": user.given_name,
            "familyName": user.family_name,
            "formatted": user.full_name,
        }
        extension: dict[str, Any] = {"serviceAccount": user.service_account}
        if user.ssh_keys:
            extension["sshKeys"] = [msgspec.to_builtins(key) for key in user.ssh_keys]
        if user.end_time:
            extension["endTime"] = rfc3339(user.end_time)
        document: dict[str, Any] = {
            "schemas": [_USER, INDIGO_USER],
            "id": user.id,
            "userName": user.username,
            "displayName": user.username,
            "active": user.active,
            "name": {key: value for key, value in name.items() if value},
            "meta": {
                "resourceType": "User",
                "location": location,
                "created": modified,
                "lastModified": modified,
            },
            INDIGO_USER: extension,
        }
        if user.email:
            document["emails"] = [{"type": "work", "value": user.email, "primary": True}]
        if user.groups:
            document["groups"] = [
                {
                    "display": group,
                    "value": group_id(group),
                    "$ref": f"{self._issuer.url}scim/Groups/{group_id(group)}",
                }
                for group in user.groups
            ]
        return document

    def _group_document(self, name: str) -> dict[str, Any]:
        location = f"{self._issuer.url}scim/Groups/{group_id(name)}"
        return {
            "schemas": [_GROUP, INDIGO_GROUP],
            "id": group_id(name),
            "displayName": name,
            "meta": {"resourceType": "Group", "location": location},
            INDIGO_GROUP: {},
        }


def _picked(document: dict[str, Any], request: web.Request) -> dict[str, Any]:
    """What `attributes` asks for; `schemas` and `id` always."""
    asked = request.query.get("attributes", "")
    if not asked:
        return document
    names = {"schemas", "id", *asked.replace(",", ".").split(".")}
    return {name: value for name, value in document.items() if name in names}


def _scim(document: dict[str, Any], status: int = 200) -> web.Response:
    return web.Response(
        body=msgspec.json.encode(document),
        status=status,
        headers={"Content-Type": "application/scim+json;charset=UTF-8"},
    )


def _error(status: int, detail: str) -> web.Response:
    return _scim({"schemas": [_ERROR], "status": str(status), "detail": detail}, status)
