"""The client of a site's token translator: certificates, host keys, delegations."""

import re
from collections.abc import Sequence
from http import HTTPStatus

import msgspec

from headgate.client.errors import NotFoundError, UnexpectedAnswerError
from headgate.client.service import ServiceClient, decode
from headgate.client.transport import Request
from headgate.client.values import Certificate, Delegation, Hold

MOST_PAGES = 100


class RevocationList(msgspec.Struct, frozen=True):
    """What OpenSSH's RevokedKeys reads, and the name of this state of it (an ETag, in quotes)."""

    content: bytes
    etag: str


class _Delegations(msgspec.Struct, frozen=True):
    """One page of `GET /v1/delegations`."""

    delegations: Sequence[Delegation]
    next: str | None = None


class _Holds(msgspec.Struct, frozen=True):
    """The answer of `GET /v1/holds/mine`."""

    holds: Sequence[Hold]


class TokenTranslator(ServiceClient):
    """A headgate token translator, as the holder of one token sees it; used as `Client` is.

    Every method raises what those of `Client` do.
    """

    async def certificate(
        self, public_key: str, *, realm: str | None = None, lifetime: int | None = None
    ) -> Certificate:
        """An SSH user certificate for a public key (one line of OpenSSH's format).

        `realm` None: the site's first. `lifetime` in seconds asks for less than one would get.

        Raises:
            StepUpError: the site wants a stronger or fresher login for that.
            ForbiddenError: no account, a blocked or suspended one, or a rule; `problem.code`.
        """
        wish = {"public_key": public_key, "realm": realm, "lifetime": lifetime}
        body = msgspec.json.encode({k: v for k, v in wish.items() if v is not None})
        headers = {"Content-Type": "application/json"}
        answer = await self._send(Request("POST", "/v1/certificates", headers=headers, body=body))
        return decode(answer, Certificate, "token translator")

    async def known_hosts(self) -> str | None:
        """The host keys of the site's nodes, in OpenSSH's format; None if it publishes none."""
        headers = {"Accept": "text/plain"}
        request = Request("GET", "/v1/known_hosts", headers=headers, anonymous=True)
        try:
            answer = await self._send(request)
        except NotFoundError:
            return None
        return answer.body.decode(errors="replace")

    async def revocation_list(self, known: str = "") -> RevocationList | None:
        """The certificates and keys that nodes accept no more; None where it is the known one.

        `known` is the `etag` of the list that one has. Raises `NotFoundError` where there is none.
        """
        headers = {"If-None-Match": known} if known.isprintable() and known else {}
        answer = await self._send(Request("GET", "/v1/krl", headers=headers, anonymous=True))
        if answer.status == HTTPStatus.NOT_MODIFIED:
            return None
        return RevocationList(answer.body, answer.headers.get("ETag", ""))

    async def delegations(self) -> Sequence[Delegation]:
        """What services may still do for the caller without a token, the newest first."""
        found: list[Delegation] = []
        query: dict[str, str] = {}
        for _ in range(MOST_PAGES):
            answer = await self._send(Request("GET", "/v1/delegations", query=query))
            page = decode(answer, _Delegations, "token translator")
            found += page.delegations
            if not page.next:
                return found
            query = {"cursor": page.next}
        raise UnexpectedAnswerError("The list of delegations does not come to an end.")

    async def holds(self) -> Sequence[Hold]:
        """What keeps the caller out of the site, the newest first; empty: nothing does."""
        answer = await self._send(Request("GET", "/v1/holds/mine"))
        return decode(answer, _Holds, "token translator").holds

    async def end_delegation(self, row: str) -> None:
        """End one of them for good. Raises `NotFoundError` for one that is not the caller's."""
        if not re.fullmatch(r"[0-9A-Za-z-]{1,64}", row):
            raise ValueError(f"{row!r} is no delegation's row.")
        await self._send(Request("DELETE", f"/v1/delegations/{row}"))
