"""Users whom sshd refuses, or whose logins hang: not tried again and again, and tried again."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    SSHCertificateBuilder,
    SSHCertificateType,
)

from gateway.sessions.credentials import Credentials, IssuedCertificate
from gateway.sessions.pool import LOGINS, SessionPool
from gateway.sessions.session import LoginStuck, NodeAway, NotAdmitted, SessionUnavailable
from gateway.sessions.shut import ASK_AGAIN, REFUSED_PAUSES, STUCK_PAUSES
from gateway.sessions.user import User
from headgate.changes import Callback, Change
from headgate.clock import HeldClock
from headgate.identity import Identity

ALICE = User(Identity("https://iam.example.org/", "alice"), "main", "alice")
BOB = User(Identity("https://iam.example.org/", "bob"), "main", "bob")


class Session:
    """A session of which only its life matters."""

    alive = True

    async def drain(self) -> None:
        """Nothing is under way."""

    async def close(self) -> None:
        """Hang up."""
        self.alive = False


@dataclass
class Bench:
    """A pool, a node that refuses whom the test says, and a translator that counts."""

    clock: HeldClock = field(default_factory=HeldClock)
    authority: Ed25519PrivateKey = field(default_factory=Ed25519PrivateKey.generate)
    principals: tuple[bytes, ...] = (b"hg:main:alice",)
    failures: dict[str, SessionUnavailable] = field(default_factory=dict)
    away: NodeAway | None = None
    asked: int = 0
    tried: int = 0
    callbacks: list[Callback] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Put it together."""
        denials: Any = self
        self.pool = SessionPool(
            connectors={"main": self}, realms={"main": "site1"}, denials=denials, clock=self.clock
        )

    def current(self) -> bool:
        """It is known who may act."""
        return True

    def denial(self, *_: object) -> str | None:
        """Everybody may."""
        return None

    def subscribe(self, callback: Callback) -> Any:
        """Tell this one."""
        self.callbacks.append(callback)
        return self.callbacks.clear

    def require(self) -> None:
        """The node, as far as is known."""
        if self.away is not None:
            raise self.away

    async def connect(self, account: str, credentials: Credentials) -> Any:
        """A session, or the failure."""
        del credentials
        self.tried += 1
        if account in self.failures:
            raise self.failures[account]
        return Session()

    async def greetings(self) -> list[tuple[str, str, str]]:
        """There is no login node."""
        return []

    async def close(self) -> None:
        """Nothing is kept."""

    async def certify(self, public_key: str) -> IssuedCertificate:
        """A certificate of an hour, with another serial each time."""
        self.asked += 1
        now = self.clock.now()
        key = serialization.load_ssh_public_key(public_key.encode())
        assert not isinstance(key, serialization.SSHCertificate)
        builder = (
            SSHCertificateBuilder()
            .public_key(key)  # type: ignore[arg-type] - ed25519, as the pool makes them
            .serial(self.asked)
            .type(SSHCertificateType.USER)
            .key_id(b"id %d" % self.asked)
            .valid_principals(list(self.principals))
            .valid_after(int(now.timestamp()))
            .valid_before(int(now.timestamp()) + 3600)
        )
        signed = builder.sign(self.authority).public_bytes().decode()
        return IssuedCertificate(signed, now + timedelta(hours=1))

    async def ask(self, user: User = ALICE) -> None:
        """One request without a token."""
        async with self.pool.without_token(user, self.certify):
            pass

    async def in_vain(self, kind: type[SessionUnavailable], user: User = ALICE) -> None:
        """One request that fails."""
        with pytest.raises(kind):
            await self.ask(user)


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    """A fresh pool."""
    made = Bench()
    yield made
    await made.pool.close()


async def test_a_refused_user_is_not_tried_again_and_others_are(bench: Bench):
    """However often it is asked, with or without a token: sshd sees one failure."""
    bench.failures["alice"] = NotAdmitted("refused")
    for _ in range(20):
        await bench.in_vain(NotAdmitted)
        with pytest.raises(NotAdmitted, match="refused"):
            async with bench.pool.with_token(ALICE, bench.certify):
                pass
    assert (bench.tried, bench.asked) == (1, 1)
    await bench.ask(BOB)
    assert bench.tried == 2


async def test_the_same_answer_is_tried_ever_more_rarely(bench: Bench):
    """The node may have been mended; until then a refused user costs it next to nothing."""
    bench.failures["alice"] = NotAdmitted("refused")
    for _ in range(3600):
        await bench.in_vain(NotAdmitted)
        bench.clock.advance(1)
    assert bench.tried <= 8
    assert bench.asked <= 3600 / ASK_AGAIN + bench.tried
    del bench.failures["alice"]
    bench.clock.advance(REFUSED_PAUSES[1])
    await bench.ask()


async def test_another_answer_of_the_translator_is_tried_soon(bench: Bench):
    """New principals, or another authority: what was refused is not what would be shown now."""
    bench.failures["alice"] = NotAdmitted("refused")
    await bench.in_vain(NotAdmitted)
    bench.principals = (b"hg:main:alice", b"hg:other:alice")
    bench.clock.advance(ASK_AGAIN)
    await bench.in_vain(NotAdmitted)
    assert bench.tried == 2
    bench.authority = Ed25519PrivateKey.generate()
    del bench.failures["alice"]
    bench.clock.advance(ASK_AGAIN)
    await bench.ask()


async def test_a_change_of_the_feed_is_a_reason_to_try(bench: Bench):
    """Who was denied, and may act again, is tried as if nothing had been."""
    bench.failures["alice"] = NotAdmitted("refused")
    await bench.in_vain(NotAdmitted)
    for callback in bench.callbacks:
        callback(Change(1, BOB.identity, "", effective=False))
    await bench.in_vain(NotAdmitted)
    assert bench.tried == 1
    for callback in bench.callbacks:
        callback(Change(2, ALICE.identity, "", effective=False))
    del bench.failures["alice"]
    await bench.ask()


async def test_a_login_that_hangs_is_soon_tried_again(bench: Bench):
    """A home directory that is away for a moment costs a moment."""
    bench.failures["alice"] = LoginStuck("no answer")
    await bench.in_vain(LoginStuck)
    await bench.in_vain(LoginStuck)
    assert bench.tried == 1
    del bench.failures["alice"]
    bench.clock.advance(STUCK_PAUSES[0])
    await bench.ask()


async def test_a_node_that_is_away_costs_no_certificate(bench: Bench):
    """While it is known to be down nothing is signed for it, and the reason is told."""
    bench.away = NodeAway("login1:22 is away")
    for _ in range(10):
        await bench.in_vain(NodeAway)
        with pytest.raises(NodeAway, match="login1:22 is away"):
            async with bench.pool.with_token(ALICE, bench.certify):
                pass
    assert (bench.asked, bench.tried) == (0, 0)


async def test_one_user_takes_few_of_the_nodes_places(bench: Bench):
    """Many sealed jobs of one user log in a few at a time."""
    kept = bench.pool._kept
    async with bench.pool.without_token(ALICE, bench.certify):
        assert kept[ALICE].logins._value == LOGINS
