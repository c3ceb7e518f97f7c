"""Asking the registry which local account an identity has, once for a burst of one user."""

from datetime import timedelta

from headgate.clock import Clock
from headgate.identity import Identity
from headgate.registry import Account, RegistryClient, Standing

FRESH = timedelta(seconds=2)
"""An answer is used again that long: bursts of one user, not decisions of an administrator."""


class Registry:
    """The account_importer's read interface, with a short memory."""

    def __init__(self, *, client: RegistryClient, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._recent: dict[tuple[Identity, str], tuple[float, Standing]] = {}

    async def active_account(self, identity: Identity, realm: str) -> Account:
        """The account to act as.

        Raises:
            Forbidden: there is none, or it is blocked; the problem says who can help.
            Unavailable: the registry is away.
        """
        return (await self.standing(identity, realm)).active_account()

    async def standing(self, identity: Identity, realm: str) -> Standing:
        """How an identity stands; raises `Unavailable`."""
        key = (identity, realm)
        now = self._clock.monotonic()
        known = self._recent.get(key)
        if known is not None and now - known[0] < FRESH.total_seconds():
            return known[1]
        standing = await self._client.standing(identity, realm)
        self._recent = {k: v for k, v in self._recent.items() if now - v[0] < FRESH.total_seconds()}
        self._recent[key] = (now, standing)
        return standing
