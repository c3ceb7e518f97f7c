"""A captured HTTP process cannot write entries that are too long to leave the host, or that lie."""

import json
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from headgate.clock import HeldClock
from headgate.identity import Principal
from tests.unit.token_translator.ledger_books import ALICE, BOB, NOW, Books, issued
from token_translator import issuing, wire
from token_translator.grants import Grant
from token_translator.signer import authority, commands, live, revocations, search, syslog
from token_translator.signer.authorities import Authorities
from token_translator.signer.ceilings import Ceilings
from token_translator.signer.signing import Signing

LONG = "x" * 30_000
KEY = "SHA256:" + "A" * 43
PROGRAM = "/usr/libexec/headgate-session"


@pytest.fixture
def clock() -> HeldClock:
    """A clock that stands still."""
    return HeldClock()


@pytest.fixture
async def signing(sqlite_books: Books, clock: HeldClock, tmp_path: Path) -> AsyncIterator[Signing]:
    """What answers."""
    authority.create(tmp_path / "ca")
    key = authority.FileAuthority.load(tmp_path / "ca")
    one = Signing(
        authorities=Authorities(user=[key], host=[key]),
        ceilings=Ceilings(hostnames=("*.site.example",), session_programs=(PROGRAM,)),
        ledger=sqlite_books.ledger(),
        persons=sqlite_books.persons,
        clock=clock,
    )
    yield one
    await one.close()


def subject(profile: str = "person", **changes: str) -> wire.Subject:
    """Whom it is for."""
    usual = wire.Subject("https://iam.example/", "alice", "alice", "site1", profile)
    return msgspec.structs.replace(usual, **changes)


def new_key() -> str:
    """A fresh public key, as a line."""
    key = Ed25519PrivateKey.generate().public_key()
    return key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()


def sign(clock: HeldClock, profile: str = "person", key_id: str = "v1;a=b", **grant: Any) -> Any:
    """A request for a user certificate, within the ceilings but for what is said."""
    now = clock.now()
    usual = Grant(("hg:site1:alice",), now, now + timedelta(minutes=1))
    wanted = msgspec.structs.replace(usual, **grant)
    return wire.Sign(1, wanted, new_key(), key_id, subject(profile))


def sign_host(clock: HeldClock, profile: str = "host", **changes: Any) -> Any:
    """A request for a host certificate, likewise."""
    now = clock.now()
    until = now + timedelta(days=1)
    names = ("login1.site.example",)
    usual = wire.SignHost(1, names, now, until, new_key(), "v1;a=b", subject(profile))
    return msgspec.structs.replace(usual, **changes)


@pytest.mark.parametrize("profile", ["host", "pam", "", "PERSON", "person "])
async def test_a_user_certificate_is_of_a_user_profile(
    signing: Signing, clock: HeldClock, profile: str
) -> None:
    """What the ledger says of a certificate is what it is: a user certificate is no host's."""
    answer = await signing.answer(sign(clock, profile))
    assert isinstance(answer, wire.Refused)
    assert answer.code == "ceiling"
    assert isinstance(await signing.answer(sign(clock, "person")), wire.Signed)


SEALED = f"{PROGRAM} --only status:00000000-0000-0000-0000-000000000000"


@pytest.mark.parametrize(
    ("profile", "command"),
    [("person", ""), ("person", "internal-sftp"), ("session", PROGRAM), ("sealed", SEALED)],
)
async def test_a_profile_says_what_a_certificate_does(
    signing: Signing, sqlite_books: Books, clock: HeldClock, profile: str, command: str
) -> None:
    """A sealed certificate is none of a person's own logins, or the ledger would lie."""
    for said in ("person", "session", "sealed"):
        answer = await signing.answer(sign(clock, said, force_command=command))
        assert isinstance(answer, wire.Signed if said == profile else wire.Refused)
    kinds = [json.loads(entry.entry)["kind"] for entry in sqlite_books.ledger().entries()]
    assert sorted(kinds) == ["issued", "refused", "refused"]


@pytest.mark.parametrize("profile", ["person", "session", ""])
async def test_a_host_certificate_is_of_the_profile_host(
    signing: Signing, clock: HeldClock, profile: str
) -> None:
    """Nor does a host's pass for anything else."""
    answer = await signing.answer(sign_host(clock, profile))
    assert isinstance(answer, wire.Refused)
    assert isinstance(await signing.answer(sign_host(clock)), wire.Signed)


BEYOND: dict[str, dict[str, Any]] = {
    "many principals": {"principals": ("hg:site1:alice",) * 3000},
    "a long principal": {"principals": (LONG,)},
    "many addresses": {"source_addresses": ("192.0.2.0/24",) * 3000},
    "a long address": {"source_addresses": (LONG,)},
    "a long command": {"force_command": LONG},
    "many extensions": {"extensions": ("permit-pty",) * 3000},
    "a long key-id": {"key_id": LONG},
}


@pytest.mark.parametrize("beyond", BEYOND)
async def test_an_entry_fits_into_a_datagram(
    signing: Signing, sqlite_books: Books, clock: HeldClock, beyond: str
) -> None:
    """However much is asked for, it is refused, and its entry leaves the host."""
    assert isinstance(await signing.answer(sign(clock, **BEYOND[beyond])), wire.Refused)
    (entry,) = sqlite_books.ledger().entries()
    assert len(syslog.message(entry, facility=10, host="h" * 64, process=1)) < 16_000


@pytest.mark.parametrize(
    "changes", [{"hostnames": ("a.site.example",) * 3000}, {"hostnames": (LONG,)}, {"key_id": LONG}]
)
async def test_a_hosts_entry_fits_too(
    signing: Signing, sqlite_books: Books, clock: HeldClock, changes: dict[str, Any]
) -> None:
    """So for hosts."""
    assert isinstance(await signing.answer(sign_host(clock, **changes)), wire.Refused)
    (entry,) = sqlite_books.ledger().entries()
    assert len(syslog.message(entry, facility=10, host="h" * 64, process=1)) < 16_000


@pytest.mark.parametrize(
    ("field", "most"), [("iss", 1024), ("sub", 255), ("actor", 255), ("profile", 255)]
)
def test_a_subject_is_short(field: str, most: int) -> None:
    """No field of a subject is longer than an identity can be."""
    for length, well in ((most, True), (most + 1, False)):
        body = msgspec.json.encode(wire.Refuse(1, subject(**{field: "é" * length}), "no_rule"))
        if well:
            assert msgspec.json.decode(body, type=wire.Request)
        else:
            with pytest.raises(msgspec.ValidationError):
                msgspec.json.decode(body, type=wire.Request)


async def test_what_cannot_be_recorded_is_not_done(
    signing: Signing, sqlite_books: Books, clock: HeldClock
) -> None:
    """Where no datagram takes its entry no certificate is made; that this was asked for stays."""
    others = {"iss": "\U0001f600" * 1024, "profile": "person"}
    fields = dict.fromkeys(wire.Subject.__struct_fields__, "\U0001f600" * 255)
    widest = wire.Subject(**{**fields, **others})
    request = msgspec.structs.replace(sign(clock), subject=widest)
    grant = msgspec.structs.replace(request.grant, principals=("\U0001f600" * 255,) * 7)
    asked: list[wire.Request] = [
        request,
        msgspec.structs.replace(request, grant=grant),
        wire.Refuse(1, widest, "no_rule"),
        wire.Note(1, widest, "hold_placed", "\U0001f600" * 255, ("changes", 7)),
    ]
    answers = [await signing.answer(one) for one in asked]
    assert [type(one) for one in answers] == [wire.Refused] * 2 + [wire.Recorded] * 2
    entries = list(sqlite_books.ledger().entries())
    assert [json.loads(one.entry)["kind"] for one in entries] == ["refused"] * 3 + ["noted"]
    assert max(len(one.entry) for one in entries) < 16_000
    found = list(search.search(sqlite_books.ledger(), sqlite_books.persons, search.Sought()))
    assert [one["personal"].get("cut") for one in found] == [True] * 4
    assert isinstance(await signing.answer(sign(clock)), wire.Signed)


def test_a_long_revocation_is_several_entries(sqlite_books: Books) -> None:
    """However many certificates somebody has, all are revoked, by entries that leave the host."""
    ledger = sqlite_books.ledger()
    for _ in range(6):
        ledger.append([issued(one) for _ in range(100) for one in (ALICE, BOB)], NOW)
    with ledger.writing(NOW) as writing:
        wanted = revocations.Wanted(reason="lost", by=ALICE, identity=ALICE, keys=[KEY])
        outcome = revocations.revoke(writing, sqlite_books.persons, wanted)
    assert (outcome.version, len(outcome.serials)) == (1202, 600)
    assert len(live.revoked(ledger, NOW).serials) == 600
    entries = list(ledger.entries(after=1200))
    assert [json.loads(entry.entry)["keys"] for entry in entries] == [[KEY], []]
    assert max(len(entry.entry) for entry in entries) < 16_000
    assert commands.verify(ledger, None, NOW)[0] == 0


def test_what_a_token_says_is_cut() -> None:
    """A token whose client or actor has a long name gets its certificate all the same."""
    principal = Principal(
        identity=ALICE,
        audience=frozenset(),
        expires_at=NOW,
        client_id=LONG,
        actor=LONG,
    )
    made = issuing._subject(principal, "person", "", "r")
    assert (len(made.client_id), len(made.actor)) == (255, 255)
    assert msgspec.json.decode(msgspec.json.encode(made), type=wire.Subject) == made
