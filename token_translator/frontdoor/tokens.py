"""Whose token it is, judged here and offline, before anybody is asked about it."""

from collections.abc import Mapping, Sequence

from headgate.identity import Principal
from headgate.oidc import IssuerSettings, TokenVerifier
from headgate.problems import Unauthenticated


class Tokens:
    """Accepts tokens for this front door or for the translator behind it, and no others.

    What an issuer's settings let single clients get away with elsewhere (`client_audiences`) does
    not count here: a login is by a person.
    """

    def __init__(
        self,
        *,
        verifier: TokenVerifier,
        issuers: Sequence[IssuerSettings],
        audiences: Sequence[str],
    ) -> None:
        self._verifier = verifier
        self._audiences = frozenset(audiences)
        self._ask_for = audiences[0]
        self._own: Mapping[str, frozenset[str]] = {
            issuer.url: frozenset({*audiences, *issuer.audiences}) for issuer in issuers
        }

    async def holder(self, token: str) -> Principal:
        """The person.

        Raises:
            Unauthenticated: the token is not valid, or for another service; in words for them.
            Unavailable: the issuer's keys are needed and cannot be had.
        """
        principal = await self._verifier.verify(token, also_accept=self._audiences)
        if principal.audience.isdisjoint(self._own[principal.identity.iss]):
            raise Unauthenticated(
                f"The token is meant for another service; ask for the audience {self._ask_for}."
            )
        return principal
