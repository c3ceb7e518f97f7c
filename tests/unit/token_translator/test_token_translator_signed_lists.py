"""The revocation list is the signer's word: OpenSSH verifies it with what nodes trust anyway."""

import asyncio
import base64
import hashlib
import subprocess
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from sqlalchemy import delete

from headgate.clock import HeldClock
from tests.unit.token_translator.ledger_books import ALICE, Books, issued
from token_translator import wire
from token_translator.keys import fingerprint
from token_translator.signer import authorities, authority, live, revocations
from token_translator.signer.authorities import Authorities
from token_translator.signer.ceilings import Ceilings
from token_translator.signer.lists import NAMESPACE, SIGN_AGAIN_SECONDS
from token_translator.signer.revocations import Wanted, orderer
from token_translator.signer.signing import Signing
from token_translator.signer.tables import LEDGER

ROOT = orderer("local:root")


@dataclass
class Counting:
    """An authority that counts what it signs, and may be locked."""

    key: authority.FileAuthority
    locked: bool = False
    signed: list[bytes] = field(default_factory=list)
    blob: bytes = b""
    comment: str = ""

    def __post_init__(self) -> None:
        """With the name and the public key of the one within."""
        self.blob, self.comment = self.key.blob, self.key.comment

    async def sign(self, data: bytes) -> bytes:
        """Fail, or sign."""
        if self.locked:
            raise authority.AuthorityError("locked")
        self.signed.append(data)
        return await self.key.sign(data)

    async def close(self) -> None:
        """Nothing."""


def make_key(path: Path, kind: str) -> Counting:
    """A key of a kind in a file."""
    if kind == "ed25519":
        authority.create(path)
        return Counting(authority.FileAuthority.load(path))
    made = {
        "rsa": partial(rsa.generate_private_key, 65537, 3072),
        "ecdsa": partial(ec.generate_private_key, ec.SECP384R1()),
    }[kind]()
    private = made.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.OpenSSH,
        serialization.NoEncryption(),
    )
    path.write_bytes(private)
    path.chmod(0o600)
    return Counting(authority.FileAuthority.load(path))


@dataclass
class World:
    """A ledger, its clock, and what answers."""

    books: Books
    clock: HeldClock
    keys: Sequence[Counting]
    signing: Signing
    folder: Path

    async def now(self, known: str = "") -> wire.RevokedNow:
        """The list of now."""
        answer = await self.signing.answer(wire.ListRevoked(1, known))
        assert isinstance(answer, wire.RevokedNow), answer
        return answer

    def revoke(self, **wanted: object) -> int:
        """Revoke; the version."""
        order = Wanted(reason="lost", by=ROOT, **wanted)  # type: ignore[arg-type] # a test's own
        with self.books.ledger().writing(self.clock.now()) as writing:
            return revocations.revoke(writing, self.books.persons, order).version

    def sign(self, key: Counting, minutes: int) -> None:
        """A certificate by that key."""
        at = self.clock.now()
        record = issued(minutes=minutes, at=at)
        ca = fingerprint(key.blob)
        self.books.ledger().append([replace(record, public={**record.public, "ca": ca})], at)

    def register(self, *keys: Counting) -> None:
        """Start with these keys for users."""
        with self.books.ledger().writing(self.clock.now()) as writing:
            authorities.register(writing, Authorities(user=keys, host=[]), by=ROOT)

    def verifies(self, now: wire.RevokedNow, key: Counting, signature: bytes) -> bool:
        """Whether ssh-keygen verifies it with that key alone."""
        allowed, signed = self.folder / "allowed", self.folder / "signed"
        line = " ".join(authority.public_line(key.key).split()[:2])
        allowed.write_text(f'headgate namespaces="{NAMESPACE}" {line}\n')
        body = base64.b64encode(signature).decode()
        signed.write_text(f"-----BEGIN SSH SIGNATURE-----\n{body}\n-----END SSH SIGNATURE-----\n")
        argv = ["ssh-keygen", "-Y", "verify", "-f", str(allowed), "-I", "headgate", "-n", NAMESPACE]
        done = subprocess.run(
            [*argv, "-s", str(signed)],
            input=now.statement.encode(),
            capture_output=True,
            check=False,
        )
        return done.returncode == 0


@pytest.fixture
def make_world(sqlite_books: Books, tmp_path: Path) -> Callable[..., World]:
    """Makes one with keys of these kinds for users."""

    def make(*kinds: str) -> World:
        clock = HeldClock()
        keys = [make_key(tmp_path / f"ca_{n}", kind) for n, kind in enumerate(kinds)]
        signing = Signing(
            authorities=Authorities(user=keys, host=[]),
            ceilings=Ceilings(),
            ledger=sqlite_books.ledger(),
            persons=sqlite_books.persons,
            clock=clock,
        )
        world = World(sqlite_books, clock, keys, signing, tmp_path)
        world.register(*keys)
        return world

    return make


@pytest.mark.parametrize("kind", ["ed25519", "ecdsa", "rsa"])
async def test_openssh_verifies_the_statement(make_world: Callable[..., World], kind: str) -> None:
    """Of keys of every kind; and nothing else than what was said."""
    world = make_world(kind)
    now = await world.now()
    (signature,) = now.signatures
    assert now.body is not None
    digest = hashlib.sha256(now.body).hexdigest()
    at = int(world.clock.now().timestamp())
    assert now.statement == f"v1;version={now.version};sha256={digest};at={at}"
    assert world.verifies(now, world.keys[0], signature)
    other = wire.RevokedNow(1, 9, "", b"", now.statement.replace(";at=", ";at=9"), now.signatures)
    assert not world.verifies(other, world.keys[0], signature)
    await world.signing.close()


async def test_each_of_two_keys_vouches(make_world: Callable[..., World]) -> None:
    """During a rotation a node has one or the other; a key that is locked holds nothing up."""
    world = make_world("ed25519", "ed25519")
    now = await world.now()
    for key, signature in zip(world.keys, now.signatures, strict=True):
        assert world.verifies(now, key, signature)
    world.keys[0].locked = True
    world.clock.advance(SIGN_AGAIN_SECONDS)
    later = await world.now()
    assert [world.verifies(later, key, later.signatures[0]) for key in world.keys] == [False, True]
    world.keys[1].locked = True
    world.clock.advance(SIGN_AGAIN_SECONDS)
    assert isinstance(await world.signing.answer(wire.ListRevoked(1)), wire.Refused)
    await world.signing.close()


async def test_it_is_signed_once_a_minute(make_world: Callable[..., World]) -> None:
    """Not once a question: however many nodes ask, and whether it is in a file or a token."""
    world = make_world("ed25519")
    first = await world.now()
    for _ in range(20):
        assert await world.now() == first
    assert len(world.keys[0].signed) == 1
    assert (await world.now(first.digest)).body is None
    world.clock.advance(SIGN_AGAIN_SECONDS)
    later = await world.now(first.digest)
    assert (later.body, later.digest, len(world.keys[0].signed)) == (None, first.digest, 2)
    assert later.statement != first.statement
    await world.signing.close()


async def test_a_revocation_is_in_the_next_list(make_world: Callable[..., World]) -> None:
    """By this process or by a command beside it: it is listed and signed at once."""
    world = make_world("ed25519")
    before = await world.now()
    world.books.ledger().append([issued()], world.clock.now())
    version = world.revoke(keys=["SHA256:" + "A" * 43])
    after = await world.now(before.digest)
    assert (after.version, after.body is None) == (version, False)
    assert f"version={version};" in after.statement
    await world.signing.close()


async def test_a_ledger_that_went_back_tells_nothing(make_world: Callable[..., World]) -> None:
    """What it does not know of would look as if it were well: there is no list of it."""
    world = make_world("ed25519")
    world.books.ledger().append([issued(at=world.clock.now())] * 3, world.clock.now())
    await world.now()
    live_ones = await world.signing.answer(wire.ListLive(1, (ALICE.iss, ALICE.sub)))
    assert isinstance(live_ones, wire.Live)
    with world.books.engine.begin() as connection:
        connection.execute(delete(LEDGER).where(LEDGER.c.seq > 2))
    for request in (
        wire.ListRevoked(1),
        wire.ListLive(2, (ALICE.iss, ALICE.sub)),
        wire.ListMarks(3),
    ):
        answer = await world.signing.answer(request)
        assert isinstance(answer, wire.Refused), request
        assert answer.code == "failed"
    await world.signing.close()


async def test_a_retired_authoritys_serials_stay(make_world: Callable[..., World]) -> None:
    """As long as a certificate of it may live, what was revoked of it is listed under its key."""
    world = make_world("ed25519", "ed25519")
    start = world.clock.now()
    world.sign(world.keys[0], 60)
    world.sign(world.keys[1], 600)
    world.revoke(serials=[1])
    world.register(world.keys[1])
    blob = world.keys[0].blob
    for minutes, kept in ((0, True), (59, True), (64, True), (71, False)):
        with world.books.ledger().reading() as connection:
            then = start + timedelta(minutes=minutes)
            lines = authorities.certifying(connection, then, {})
        assert (authority.public_line(world.keys[0].key) in lines) is kept, minutes
    now = await world.now()
    assert now.body is not None
    assert blob in now.body
    assert world.keys[1].blob in now.body
    await world.signing.close()


async def test_an_authority_that_another_signer_still_had(
    make_world: Callable[..., World],
) -> None:
    """Retired here, it may sign at another signer until that one restarts, and counts as long."""
    world = make_world("ed25519", "ed25519")
    start = world.clock.now()
    world.sign(world.keys[0], 60)
    world.sign(world.keys[1], 600)
    world.register(world.keys[1])
    world.sign(world.keys[0], 90)
    world.register(world.keys[1])
    line = authority.public_line(world.keys[0].key)
    for minutes, kept in ((94, True), (96, False)):
        with world.books.ledger().reading() as connection:
            then = start + timedelta(minutes=minutes)
            lines = authorities.certifying(connection, then, {})
        assert (line in lines) is kept
    world.clock.advance(96 * 60)
    world.sign(world.keys[1], 60)
    world.register(world.keys[1])
    with world.books.ledger().reading() as connection:
        assert line not in authorities.certifying(connection, world.clock.now(), {})
    await world.signing.close()


async def test_no_other_question_keeps_the_list(
    make_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    """While somebody's own certificates take long to find, nodes get their list."""
    world = make_world("ed25519")
    going_on, asked = threading.Event(), threading.Event()

    def slow(*_: object) -> list[wire.LiveCertificate]:
        asked.set()
        going_on.wait(10)
        return []

    monkeypatch.setattr(live, "of", slow)
    loop = asyncio.get_running_loop()
    waiting = loop.create_task(world.signing.answer(wire.ListLive(1, ("https://x/", "alice"))))
    await loop.run_in_executor(None, asked.wait, 10)
    assert (await world.now()).signatures
    assert not waiting.done()
    going_on.set()
    await waiting
    await world.signing.close()


def test_a_serial_is_found_in_many_ranges() -> None:
    """As in each of them, on both ends, and nowhere between."""
    ranges = [(first, first + 2) for first in range(1, 4_000_000, 10)]
    found = [serial for serial in range(40_000) if revocations.within(ranges, serial)]
    assert found == [n for n in range(40_000) if n % 10 in {1, 2, 3}]
    assert not revocations.within([], 1)
