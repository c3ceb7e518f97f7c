"""Logins at PAM that are recorded first: what becomes of one while the ledger takes its time."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from headgate.clock import HeldClock
from headgate.identity import Identity, Principal
from headgate.problems import Forbidden
from headgate.registry import Standing
from token_translator import wire
from token_translator.account_requests import AccountRequests
from token_translator.database import open_async_database, upgrade
from token_translator.grants import Account
from token_translator.holds import suspended
from token_translator.one_time_passwords import Login, OneTimePasswords
from token_translator.pam import PamLogins
from token_translator.pam_settings import PamNode, PamSettings
from token_translator.rulebook import RuleBook

ERIN = Identity("https://iam.example/", "erin")
SETTINGS = PamSettings(realm="site1", nodes=(PamNode("login1.site.example", ("127.0.0.1",)),))


@dataclass(slots=True)
class World:
    """Erin's account, a hold that may come, and a ledger during whose work it does."""

    holds_meanwhile: bool
    held: bool = False
    events: list[tuple[str, str]] = field(default_factory=list)

    async def standing(self, identity: Identity, realm: str) -> Standing:
        """Nobody asks here."""
        raise AssertionError((identity, realm))

    async def account(self, identity: Identity, realm: str) -> Account:
        """Erin's, unless she is held."""
        await self.require_free(identity, realm)
        return Account(realm=realm, account="erin", uid=20002)

    async def require_free(self, identity: Identity, realm: str) -> None:
        """Whether she is held by now."""
        assert (identity, realm) == (ERIN, "site1")
        if self.held:
            raise suspended("lost laptop")

    async def note(self, subject: wire.Subject, event: str, *, detail: str = "") -> None:
        """Record, and by the time it is done somebody has suspended her."""
        assert subject.sub == "erin"
        self.events.append((event, detail.rpartition(": ")[2] if ": " in detail else ""))
        self.held = self.held or self.holds_meanwhile


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[AsyncEngine]:
    """The service's database."""
    engine = open_async_database(f"sqlite+aiosqlite:///{tmp_path}/tokens.sqlite")
    async with engine.begin() as connection:
        await connection.run_sync(upgrade, "seals")
    yield engine
    await engine.dispose()


def logins(world: World, engine: AsyncEngine, clock: HeldClock) -> PamLogins:
    """The service's, in that world."""
    return PamLogins(
        settings=SETTINGS,
        rules=RuleBook(),
        accounts=world,
        registered=world,
        passwords=OneTimePasswords(engine),
        requests=AccountRequests(engine, kept=timedelta(days=1)),
        ledger=world,
        clock=clock,
    )


@pytest.mark.parametrize("by", ["token", "password"])
async def test_who_is_suspended_while_the_login_is_recorded_is_kept_out(
    engine: AsyncEngine, by: str
) -> None:
    """The hold is in force before PAM is told, so PAM is told no, and the ledger has both."""
    clock = HeldClock()
    for world in (World(holds_meanwhile=False), World(holds_meanwhile=True)):
        pam = logins(world, engine, clock)
        if by == "token":
            expires_at = clock.now() + timedelta(hours=1)
            principal = Principal(ERIN, audience=frozenset({"us"}), expires_at=expires_at)
            asked = pam.opens(principal, "erin", "request")
        else:
            login = Login(ERIN, "site1", "erin", "login1.site.example")
            made, _ = await OneTimePasswords(engine).make(login, clock.now())
            asked = pam.opens_once(made, "erin", "127.0.0.1", "request")
        if not world.holds_meanwhile:
            assert await asked
            assert world.events == [("pam_accepted", "")]
            continue
        with pytest.raises(Forbidden) as caught:
            await asked
        assert caught.value.stable_code == "suspended"
        assert world.events == [("pam_accepted", ""), ("pam_refused", "suspended")]
