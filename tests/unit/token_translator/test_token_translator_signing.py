"""What the signer does when it cannot write its ledger, or is asked for nonsense."""

import asyncio
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
import structlog
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from headgate.clock import HeldClock
from tests.unit.token_translator.ledger_books import Books
from token_translator import keys, wire
from token_translator.grants import Grant
from token_translator.signer import authority
from token_translator.signer.authorities import Authorities
from token_translator.signer.ceilings import Ceilings
from token_translator.signer.entries import Head
from token_translator.signer.ledger import Ledger
from token_translator.signer.signing import Signing


class FullDisk:
    """A place for the position that cannot be written until there is room again."""

    def __init__(self) -> None:
        self.full = True
        self.path = Path("position")

    def read(self) -> Head:
        """Nothing was written."""
        return Head()

    def write(self, _: Head) -> None:
        """Fail, or do nothing."""
        if self.full:
            raise OSError(28, "No space left on device")


class LockedToken:
    """An authority that does not sign until its PIN is typed."""

    comment = "locked"

    def __init__(self, key: authority.FileAuthority) -> None:
        self.blob = key.blob
        self.key = key
        self.locked = True

    async def sign(self, data: bytes) -> bytes:
        """Fail, or sign."""
        if self.locked:
            raise authority.AuthorityError("locked")
        return await self.key.sign(data)

    async def close(self) -> None:
        """Nothing."""


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


@pytest.fixture
def key(tmp_path: Path) -> authority.FileAuthority:
    """An authority."""
    authority.create(tmp_path / "ca")
    return authority.FileAuthority.load(tmp_path / "ca")


def signing(
    key: authority.Authority, ledger: Ledger, books: Books, clock: HeldClock, **ceilings: Any
) -> Signing:
    """What answers, with one authority for everything."""
    return Signing(
        authorities=Authorities(user=[key], host=[key]),
        ceilings=Ceilings(**ceilings),
        ledger=ledger,
        persons=books.persons,
        clock=clock,
    )


def kinds(books: Books) -> list[str]:
    """The kinds of the entries, in order."""
    return [json.loads(entry.entry)["kind"] for entry in books.ledger().entries()]


async def test_nothing_is_signed_that_is_not_written(
    sqlite_books: Books, key: authority.FileAuthority, clock: HeldClock
) -> None:
    """With a ledger that cannot be written there are no certificates; with room again there are."""
    disk: Any = FullDisk()
    ledger = Ledger(engine=sqlite_books.engine, persons=sqlite_books.persons, position=disk)
    one = signing(key, ledger, sqlite_books, clock)
    with structlog.testing.capture_logs() as logged:
        answer = await one.answer(request(clock))
    assert isinstance(answer, wire.Refused)
    assert answer.code == "failed"
    assert logged[0]["event"] == "not_answered"
    disk.full = False
    assert isinstance(await one.answer(request(clock)), wire.Signed)
    await one.close()


async def test_an_authority_that_is_away(
    sqlite_books: Books, key: authority.FileAuthority, clock: HeldClock
) -> None:
    """A key that does not sign gives a refusal that may be retried, and a serial nobody has."""
    locked = LockedToken(key)
    one = signing(locked, sqlite_books.ledger(), sqlite_books, clock)
    answer = await one.answer(request(clock))
    assert isinstance(answer, wire.Refused)
    assert answer.code == "failed"
    locked.locked = False
    answer = await one.answer(request(clock))
    assert isinstance(answer, wire.Signed)
    assert answer.serial == 2
    await one.close()


async def test_a_group_that_holds_a_refusal(
    sqlite_books: Books, key: authority.FileAuthority, clock: HeldClock
) -> None:
    """Requests that are committed together do not share their fate: one is declined alone."""
    one = signing(key, sqlite_books.ledger(), sqlite_books, clock, hostnames=("*.site.example",))
    host = request(clock)
    answer = await one.answer(host_request(clock, host.public_key))
    assert isinstance(answer, wire.Signed)
    answers = await asyncio.gather(*(one.answer(each) for each in (request(clock), host)))
    assert isinstance(answers[0], wire.Signed)
    assert isinstance(answers[1], wire.Refused)
    assert answers[1].code == "key_refused"
    assert "host" in answers[1].detail
    assert sorted(kinds(sqlite_books)) == ["issued", "issued", "refused"]
    await one.close()


def host_request(clock: HeldClock, public_key: str, **changes: Any) -> wire.SignHost:
    """A request for a host certificate within the ceilings."""
    now = clock.now()
    usual = wire.SignHost(
        id=7,
        hostnames=("login1.site.example",),
        valid_after=now,
        valid_before=now + timedelta(days=30),
        public_key=public_key,
        key_id="v1;host=login1.site.example",
        subject=wire.Subject("https://iam.example/", "admin", "", "", "host"),
    )
    return msgspec.structs.replace(usual, **changes)


REVOKED = "this key was revoked; make a new one"


def revocation(public_key: str) -> wire.Revoke:
    """An order to revoke a key."""
    name = keys.accept(public_key).fingerprint
    return wire.Revoke(9, "stolen", "local:root", keys=(name,))


async def test_a_revoked_key_is_not_certified(
    books: Books, key: authority.FileAuthority, clock: HeldClock
) -> None:
    """Neither for a person nor for a host, by any signer on the database; it is recorded."""
    names = {"hostnames": ("*.site.example",)}
    one = signing(key, books.ledger(), books, clock, **names)
    other = signing(key, books.ledger(), books, clock, **names)
    stolen = request(clock)
    assert isinstance(await other.answer(stolen), wire.Signed)
    assert isinstance(await one.answer(revocation(stolen.public_key)), wire.Revoked)
    for signer in (one, other):
        assert await signer.answer(stolen) == wire.Refused(1, "key_refused", REVOKED)
        host = host_request(clock, stolen.public_key)
        assert await signer.answer(host) == wire.Refused(7, "key_refused", REVOKED)
        assert isinstance(await signer.answer(request(clock)), wire.Signed)
    assert kinds(books) == ["issued", "revoked"] + ["refused", "refused", "issued"] * 2
    refusal = json.loads(list(books.ledger().entries())[2].entry)
    assert (refusal["code"], refusal["detail"]) == ("key_refused", REVOKED)
    await one.close()
    await other.close()


async def test_a_key_that_is_revoked_at_the_same_moment(
    sqlite_books: Books, key: authority.FileAuthority, clock: HeldClock
) -> None:
    """A revocation counts for what is committed together with it, and asked for later."""
    one = signing(key, sqlite_books.ledger(), sqlite_books, clock)
    stolen, first = request(clock), request(clock)
    asked = (first, revocation(stolen.public_key), stolen)
    answers = await asyncio.gather(*(one.answer(each) for each in asked))
    assert answers[2] == wire.Refused(1, "key_refused", REVOKED)
    assert kinds(sqlite_books) == ["issued", "revoked", "refused"]
    await one.close()


@pytest.mark.parametrize(
    "changes",
    [
        {"hostnames": ()},
        {"hostnames": ("login1.site.example",) * 17},
        {"hostnames": ("login1.elsewhere.example",)},
        {"hostnames": ("login1.site.example", "github.com")},
        {"hostnames": ("*.site.example",)},
        {"hostnames": ("LOGIN1.site.example",)},
        {"hostnames": ("a,b.site.example",)},
        {"hostnames": ("a\nb.site.example",)},
        {"hostnames": ("-x.site.example",)},
        {"hostnames": ("[login1.site.example",)},
        {"hostnames": ("",)},
        {"key_id": "v1;host=a\nb"},
    ],
)
async def test_host_names_beyond_the_ceilings(
    sqlite_books: Books, key: authority.FileAuthority, clock: HeldClock, changes: dict[str, Any]
) -> None:
    """A host certificate is for names that a pattern allows, spelt as DNS has them."""
    one = signing(key, sqlite_books.ledger(), sqlite_books, clock, hostnames=("*.site.example",))
    answer = await one.answer(host_request(clock, request(clock).public_key, **changes))
    assert isinstance(answer, wire.Refused)
    assert answer.code == "ceiling"
    assert kinds(sqlite_books) == ["refused"]
    await one.close()


async def test_no_host_certificates_unless_allowed(
    sqlite_books: Books, key: authority.FileAuthority, clock: HeldClock
) -> None:
    """Without a pattern in the ceilings file there are none; nor longer ones than it says."""
    one = signing(key, sqlite_books.ledger(), sqlite_books, clock)
    line = request(clock).public_key
    assert isinstance(await one.answer(host_request(clock, line)), wire.Refused)
    await one.close()
    one = signing(key, sqlite_books.ledger(), sqlite_books, clock, hostnames=("*.site.example",))
    longer = clock.now() + timedelta(days=91)
    assert isinstance(
        await one.answer(host_request(clock, line, valid_before=longer)), wire.Refused
    )
    await one.close()


async def test_refusals_by_policy_are_bounded(
    sqlite_books: Books, key: authority.FileAuthority, clock: HeldClock
) -> None:
    """A person's flood of refusals is ten entries a minute; the next one says how many more."""
    one = signing(key, sqlite_books.ledger(), sqlite_books, clock)
    subject = wire.Subject("https://iam.example/", "alice", "", "site1", "person")
    for number in range(25):
        assert await one.answer(wire.Refuse(number, subject, "no_rule")) == wire.Recorded(number)
    bob = wire.Subject("https://iam.example/", "bob", "", "site1", "person")
    await one.answer(wire.Refuse(1, bob, "no_rule"))
    assert len(kinds(sqlite_books)) == 11
    clock.advance(61)
    await one.answer(wire.Refuse(1, subject, "no_rule"))
    last = list(sqlite_books.ledger().entries())[-1]
    assert json.loads(last.entry)["suppressed"] == 15
    await one.close()
