"""The source: users of an INDIGO IAM over SCIM, read whole and consistent, or not at all."""

import math
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Annotated, TypeVar
from urllib.parse import quote, urlsplit

import aiohttp
import msgspec

from account_importer.directory import SourceError, SourceUser
from account_importer.settings import SourceSettings

INDIGO_USER = "urn:indigo-dc:scim:schemas:IndigoUser"
PAGE = 100  # IAM's own maximum
MAX_PAGE_BYTES = 16 * 1024 * 1024
READINGS = 4
"""How often a reading is tried before the source counts as too restless to be read."""

T = TypeVar("T")

_Text = Annotated[str, msgspec.Meta(min_length=1, max_length=255)]


class _Group(msgspec.Struct, frozen=True):
    display: str = ""


class _Indigo(msgspec.Struct, frozen=True, rename="camel"):
    end_time: datetime | None = None


class _User(msgspec.Struct, frozen=True, rename="camel"):
    """What is read of a user (RFC 7643, section 4.1); the rest is not looked at."""

    id: _Text
    user_name: _Text
    active: bool = True  # RFC 7643 leaves it optional; IAM always sends it
    groups: tuple[_Group, ...] = ()
    indigo: _Indigo = msgspec.field(name=INDIGO_USER, default=_Indigo())


class _Page(msgspec.Struct, frozen=True, rename="camel"):
    """A list response (RFC 7644, section 3.4.2); IAM's itemsPerPage is the rows on this page."""

    total_results: Annotated[int, msgspec.Meta(ge=0)]
    resources: tuple[_User, ...] = msgspec.field(name="Resources", default=())


class _Metadata(msgspec.Struct, frozen=True):
    issuer: str
    token_endpoint: str
    scim_endpoint: str


class _Token(msgspec.Struct, frozen=True):
    access_token: str


class _Restless(Exception):  # noqa: N818 - never leaves this module
    """The source changed while it was read."""


class ScimSource:
    """Reads with a client's own token (client_credentials, scope `scim:read`).

    IAM pages without a snapshot: rows move while one reads. A reading counts only if the total
    stayed the same, every row came, and none came twice; else it is made again. No link that the
    source sends is followed: all addresses are built here, on the issuer's own origin.
    """

    def __init__(
        self, *, settings: SourceSettings, secret: bytes, session: aiohttp.ClientSession
    ) -> None:
        self._settings = settings
        self._secret = secret
        self._session = session
        self._timeout = aiohttp.ClientTimeout(total=settings.timeout_seconds)
        self._base = ""
        self._token = ""

    async def users(self) -> list[SourceUser]:
        """Everybody, active or not.

        Raises:
            SourceError: unreachable, refused, not SCIM, too much, or changing all the time.
        """
        await self._open()
        for _ in range(READINGS):
            try:
                return await self._reading()
            except _Restless as error:
                cause = error
        raise SourceError(f"the source changed during each of {READINGS} readings: {cause}")

    async def absent(self, subject: str) -> bool:
        """Whether there is no such user, asked for by id: a row may have slipped between pages."""
        if not self._token:
            await self._open()
        status, body = await self._get(f"{self._base}/Users/{quote(subject, safe='')}")
        if status == HTTPStatus.NOT_FOUND:
            return True
        if status != HTTPStatus.OK:
            raise SourceError(f"the source answered {status} for one user")
        return _decode(body, _User).id != subject

    async def _reading(self) -> list[SourceUser]:
        rows: dict[str, SourceUser] = {}
        total, page = await self._page(1)
        if total > self._settings.max_users:
            raise SourceError(f"the source has {total} users; max_users is lower")
        pages = math.ceil(total / PAGE)
        for number in range(1, max(pages, 1) + 1):
            if number > 1:
                again, page = await self._page((number - 1) * PAGE + 1)
                if again != total:
                    raise _Restless(f"{total} users became {again}")
            for row in page:
                if row.id in rows:
                    raise _Restless("a user came twice")
                rows[row.id] = _user(row)
        if len(rows) != total:
            raise _Restless(f"{len(rows)} of {total} users came")
        return list(rows.values())

    async def _page(self, start: int) -> tuple[int, tuple[_User, ...]]:
        status, body = await self._get(f"{self._base}/Users?startIndex={start}&count={PAGE}")
        if status != HTTPStatus.OK:
            raise SourceError(f"the source answered {status} for users from {start}")
        page = _decode(body, _Page)
        if len(page.resources) > PAGE:
            raise SourceError("the source sent more rows than were asked for")
        return page.total_results, page.resources

    async def _open(self) -> None:
        """Find the endpoints and get a token; a new one for each run, none is kept."""
        issuer = self._settings.issuer
        status, body = await self._get(issuer.rstrip("/") + "/.well-known/openid-configuration")
        if status != HTTPStatus.OK:
            raise SourceError(f"discovery of {issuer} answered {status}")
        metadata = _decode(body, _Metadata)
        if metadata.issuer != issuer:
            raise SourceError(f"discovery of {issuer} names another issuer")
        for address in (metadata.token_endpoint, metadata.scim_endpoint):
            if urlsplit(address)[:2] != urlsplit(issuer)[:2]:
                raise SourceError("discovery names an endpoint on another origin")
        basic = aiohttp.encode_basic_auth(
            quote(self._settings.client_id, safe=""), quote(self._secret.decode(), safe="")
        )
        status, body = await self._ask(
            "POST",
            metadata.token_endpoint,
            headers={"Authorization": basic},
            data={"grant_type": "client_credentials", "scope": "scim:read"},
        )
        if status != HTTPStatus.OK:
            raise SourceError(f"the source gave no token to {self._settings.client_id}: {status}")
        self._token = _decode(body, _Token).access_token
        self._base = metadata.scim_endpoint.rstrip("/")

    async def _get(self, address: str) -> tuple[int, bytes]:
        headers = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        return await self._ask("GET", address, headers=headers)

    async def _ask(
        self, method: str, address: str, *, headers: dict[str, str], data: object = None
    ) -> tuple[int, bytes]:
        try:
            async with self._session.request(
                method,
                address,
                headers=headers,
                data=data,
                allow_redirects=False,
                timeout=self._timeout,
            ) as response:
                body = bytearray()
                async for chunk in response.content.iter_chunked(65536):
                    body += chunk
                    if len(body) > MAX_PAGE_BYTES:
                        raise SourceError(f"the source sent more than {MAX_PAGE_BYTES} bytes")
                return response.status, bytes(body)
        except (aiohttp.ClientError, TimeoutError) as error:
            raise SourceError(f"the source cannot be read: {error!r}") from error


def _decode(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise SourceError(f"the source sent something else than expected: {error}") from error


def _user(row: _User) -> SourceUser:
    end = row.indigo.end_time
    return SourceUser(
        id=row.id,
        user_name=row.user_name,
        active=row.active,
        groups=frozenset(group.display.removeprefix("/") for group in row.groups),
        end_time=end if end is None or end.tzinfo else end.replace(tzinfo=UTC),
    )
