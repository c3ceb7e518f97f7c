"""Asking the registry for an administrator: whose an account is, and which one somebody has."""

from collections.abc import Collection, Sequence
from http import HTTPStatus
from urllib.parse import quote

import aiohttp
import msgspec

from headgate.discovery import whole
from headgate.identity import Identity
from headgate.problems import Unavailable
from headgate.registry import Headers, RegistryClient

MAX_ANSWER = 256 * 1024


class Named(msgspec.Struct, frozen=True):
    """One local account and whose it is."""

    iss: str
    sub: str
    realm: str
    account: str
    state: str


class _Found(msgspec.Struct, frozen=True):
    accounts: tuple[Named, ...]


class AccountNames:
    """The registry, as the host's terminal asks it."""

    def __init__(
        self,
        *,
        url: str,
        session: aiohttp.ClientSession,
        headers: Headers,
        registry: RegistryClient,
        realms: Collection[str],
    ) -> None:
        self._url = url
        self._session = session
        self._headers = headers
        self._registry = registry
        self._realms = realms

    async def whose(self, account: str, realm: str = "") -> Sequence[Named]:
        """Everybody who has an account of that name, in one realm or in any.

        Raises:
            Unavailable: the registry does not answer, or is too old to be asked this.
        """
        found: list[Named] = []
        for one in (realm,) if realm else self._realms:
            found += await self._named(account, one)
        return found

    async def of(self, identity: Identity) -> Sequence[str]:
        """What there is of an identity, in words, a realm each; empty: nobody knows it.

        Raises:
            Unavailable: the registry does not answer.
        """
        found = []
        for realm in self._realms:
            standing = await self._registry.standing(identity, realm)
            if standing.account is not None:
                found.append(f"{standing.account.account} ({standing.state}) in {realm}")
            elif standing.state == "pending":
                found.append(f"asked for in {realm}, not made yet")
        return found

    async def _named(self, account: str, realm: str) -> Sequence[Named]:
        url = f"{self._url.rstrip('/')}/v1/accounts/by-name/{quote(account, safe='')}"
        try:
            async with self._session.get(
                url,
                params={"realm": realm},
                headers=self._headers(self._url),
                allow_redirects=False,
            ) as response:
                body = await whole(response, MAX_ANSWER)
                if response.status == HTTPStatus.OK:
                    return msgspec.json.decode(body, type=_Found).accounts
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise _away(repr(error)) from error
        raise _away(f"it answers {response.status}")


def _away(why: str) -> Unavailable:
    return Unavailable(
        f"The registry cannot say whose an account is ({why}): give --iss and --sub."
    )
