"""What the signer does when it cannot write its ledger, or is asked for nonsense."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import structlog
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from headgate.clock import HeldClock
from token_translator import wire
from token_translator.grants import Grant
from token_translator.signer import authority
from token_translator.signer.ceilings import Ceilings
from token_translator.signer.signing import Signing


class FullDisk:
    """A ledger that cannot be written until there is room again."""

    def __init__(self) -> None:
        self.full = True
        self.written: list[Any] = []

    def append(self, records: Any, _: Any) -> list[int]:
        """Fail, or write."""
        if self.full:
            raise OSError(28, "No space left on device")
        self.written += records
        return list(range(1, len(records) + 1))


@pytest.fixture
def clock() -> HeldClock:
    """A clock that stands still."""
    return HeldClock()


def request(clock: HeldClock) -> wire.Sign:
    """A request within the ceilings."""
    key = Ed25519PrivateKey.generate().public_key()
    now = clock.now()
    return wire.Sign(
        id=1,
        grant=Grant(("hg:site1:alice",), now, now + timedelta(minutes=1)),
        public_key=key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode(),
        key_id="v1;sub=alice",
        subject=wire.Subject("https://iam.example/", "alice", "alice", "site1", "person"),
    )


async def test_nothing_is_signed_that_is_not_written(tmp_path: Path, clock: HeldClock) -> None:
    """With a ledger that cannot be written there are no certificates; with room again there are."""
    authority.create(tmp_path / "ca")
    ledger: Any = FullDisk()
    signing = Signing(
        user_ca=[authority.FileAuthority.load(tmp_path / "ca")],
        host_ca=[],
        ceilings=Ceilings(),
        ledger=ledger,
        clock=clock,
    )
    with structlog.testing.capture_logs() as logged:
        answer = await signing.answer(request(clock))
    assert isinstance(answer, wire.Refused)
    assert answer.code == "failed"
    assert logged[0]["event"] == "not_signed"
    ledger.full = False
    assert isinstance(await signing.answer(request(clock)), wire.Signed)
    assert ledger.written[0].personal["sub"] == "alice"
    await signing.close()
