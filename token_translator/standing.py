"""Whether somebody may act at this moment: an active account in the registry, and no hold here."""

from typing import Protocol

from headgate import registry
from headgate.identity import Identity
from token_translator.grants import Account, require_suitable
from token_translator.holds import Holds, suspended


class Registry(Protocol):
    """Who is here."""

    async def standing(self, identity: Identity, realm: str) -> registry.Standing:
        """How an identity stands; raises `Unavailable`."""


class Standing:
    """Asked before every signature, and after it once more: see `require_free`."""

    def __init__(self, *, registry: Registry, holds: Holds) -> None:
        self._registry = registry
        self._holds = holds

    async def account(self, identity: Identity, realm: str) -> Account:
        """The account of an identity that may act.

        Raises:
            Forbidden: `account_unknown`, `account_pending`, `account_blocked`, with the registry's
                words about what to do, `account_unsuitable`, or `suspended`.
            Unavailable: one of them is away, or does not answer as it should.
        """
        found = (await self._registry.standing(identity, realm)).active_account()
        account = Account(realm=realm, account=found.account, uid=found.uid)
        require_suitable(account)
        await self.require_free(identity, realm)
        return account

    async def require_free(self, identity: Identity, realm: str) -> None:
        """Return if no hold is in force.

        Asked again once something is signed: a hold that is known by then keeps the certificate
        here, and a later one finds it in the ledger and revokes it (`suspending`). So there is no
        gap.

        Raises:
            Forbidden: `suspended`. Unavailable: the database is away.
        """
        reason = await self._holds.denial(identity, realm)
        if reason is not None:
            raise suspended(reason)
