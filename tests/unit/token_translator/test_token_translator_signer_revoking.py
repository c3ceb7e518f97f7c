"""Revoking in the ledger: what is revoked, for how long, and that it is written first."""

import base64
import json
from dataclasses import replace
from datetime import datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete, insert, update

from headgate.identity import Identity
from tests.unit.token_translator.ledger_books import ALICE, BOB, NOW, Books, issued, refused
from token_translator.keys import fingerprint
from token_translator.signer import arguments, commands, live, restore, revocations
from token_translator.signer.issuance import keep_host_key
from token_translator.signer.ledger import DeclinedError
from token_translator.signer.revocations import Outcome, Wanted, merged, orderer
from token_translator.signer.tables import (
    AUTHORITIES,
    HOST_KEYS,
    LEDGER,
    REVOKED_KEYS,
    REVOKED_SERIALS,
)

ADMIN = orderer("admin:https://iam.example/#carol")
KEY = "SHA256:" + "A" * 43
AUTHORITY = fingerprint(bytes(3))
"""Of the line that `add_authority` registers."""


def revoke(books: Books, *, at: datetime = NOW, **wanted: Any) -> Outcome:
    """Revoke in a transaction of its own."""
    ordered = Wanted(reason="lost laptop", by=ADMIN, **wanted)
    with books.ledger().writing(at) as writing:
        return revocations.revoke(writing, books.persons, ordered)


def now_revoked(books: Books, at: datetime = NOW) -> revocations.Now:
    """What a revocation list would hold."""
    return live.revoked(books.ledger(), at)


def last_entry(books: Books) -> dict[str, Any]:
    """The newest entry."""
    document: dict[str, Any] = json.loads(list(books.ledger().entries())[-1].entry)
    return document


def test_nothing_is_revoked_at_first(books: Books) -> None:
    """An empty ledger revokes nothing, in version 0."""
    assert now_revoked(books) == revocations.Now(0, (), (), ())


def test_by_serial(books: Books) -> None:
    """Named serials are revoked, in an entry; one that was never issued is none."""
    books.ledger().append([issued(), issued(BOB), issued(), refused()], NOW)
    assert revoke(books, serials=[1, 2, 7]) == Outcome(5, (1, 2))
    assert now_revoked(books) == revocations.Now(5, ((1, 2),), (), ())
    entry = last_entry(books)
    assert (entry["kind"], entry["seq"], entry["serials"]) == ("revoked", 5, [[1, 2]])
    assert books.ledger().append([issued()] * 4, NOW)[3].serial == 7
    assert now_revoked(books).serials == ((1, 2),)
    assert books.ledger().verify().seq == 9


def test_by_identity(books: Books) -> None:
    """All unexpired certificates of a person, and of nobody else; later ones are not."""
    books.ledger().append([issued(minutes=-10), issued(), issued(BOB), issued()], NOW)
    assert revoke(books, identity=ALICE).serials == (2, 4)
    books.ledger().append([issued()], NOW)
    assert now_revoked(books).serials == ((2, 2), (4, 4))
    assert revoke(books, identity=Identity("https://iam.example/", "nobody")).serials == ()


def test_those_of_the_same_transaction(books: Books) -> None:
    """A certificate that is committed together with its revocation is revoked."""
    with books.ledger().writing(NOW) as writing:
        writing.append(issued())
        wanted = Wanted(reason="suspended", by=ADMIN, identity=ALICE)
        assert revocations.revoke(writing, books.persons, wanted).serials == (1,)


def test_again_changes_nothing(books: Books) -> None:
    """A repeated request has the same answer, and adds no entry."""
    books.ledger().append([issued()], NOW)
    first = revoke(books, identity=ALICE, keys=[KEY])
    again = revoke(books, identity=ALICE, keys=[KEY])
    assert (again.version, again.serials) == (first.version, first.serials)
    assert (first.effect, again.effect) == ("revoked", "already")
    assert last_entry(books)["seq"] == first.version == 2


def test_nothing_to_revoke(books: Books) -> None:
    """Of what expired or never was, nothing is revoked, and that is said; unless it was before."""
    books.ledger().append([issued(minutes=-10), issued(minutes=5), issued(BOB)], NOW)
    assert revoke(books, serials=[1, 7]).effect == "nothing"
    assert revoke(books, identity=Identity("https://iam.example/", "nobody")).effect == "nothing"
    assert revoke(books, serials=[2, 7]).effect == "revoked"
    assert revoke(books, serials=[2, 7]).effect == "already"
    later = NOW + timedelta(minutes=11)
    assert revoke(books, serials=[2], at=later).effect == "already"
    assert revoke(books, identity=ALICE, at=later).effect == "nothing"
    assert revoke(books, identity=ALICE, keys=[KEY], at=later).effect == "revoked"
    assert revoke(books, identity=ALICE, keys=[KEY], at=later).effect == "already"


def test_what_the_command_says(books: Books) -> None:
    """Status 1 where there is nothing to revoke, 0 where it is or was revoked."""
    books.ledger().append([issued()], NOW)

    def said(**wanted: Any) -> tuple[int, dict[str, Any]]:
        ordered = Wanted(reason="lost laptop", by=ADMIN, **wanted)
        return commands.revoke(books.ledger(), books.persons, ordered, NOW)

    status, found = said(serials=[7], identity=BOB)
    assert (status, found["revoked"]) == (1, False)
    assert found["why"].startswith("nothing to revoke: ")
    assert said(serials=[1]) == (0, {"revoked": True, "version": 2, "serials": (1,)})
    status, found = said(serials=[1])
    assert (status, found["revoked"], found["note"]) == (0, True, "was revoked already")


def test_a_command_that_names_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """It is a mistake in the words of the command, and told with its usage."""
    words = ["revoke", "--config", "signer.toml", "--reason", "lost"]
    with pytest.raises(SystemExit) as ended:
        arguments.parse(words)
    told = capsys.readouterr().err
    assert (ended.value.code, "usage: headgate-signer revoke" in told) == (2, True)
    assert "name a serial, a key, a user or an authority" in told
    assert arguments.parse([*words, "--serial", "1"]).serial == [1]


@pytest.mark.parametrize("taken_out", ["serials", "key", "authority"])
def test_what_was_taken_off_the_list(books: Books, taken_out: str) -> None:
    """Whoever takes something off the list, not out of the chain, is found out."""
    add_authority(books, "retired")
    books.ledger().append([issued(), issued(BOB)], NOW)
    revoke(books, serials=[1, 2], keys=[KEY], authority=AUTHORITY)
    assert commands.verify(books.ledger(), None, NOW)[0] == 0
    change = {
        "serials": delete(REVOKED_SERIALS).where(REVOKED_SERIALS.c.first == 2),
        "key": delete(REVOKED_KEYS),
        "authority": update(AUTHORITIES).values(revoked=None),
    }[taken_out]
    with books.engine.begin() as connection:
        connection.execute(change)
    status, said = commands.verify(books.ledger(), None, NOW)
    assert (status, taken_out in said["broken"]) == (1, True)


def shorten(books: Books, *, to: datetime) -> None:
    """Have everything leave the list at that moment."""
    with books.engine.begin() as connection:
        connection.execute(update(REVOKED_SERIALS).values(valid_before=int(to.timestamp())))


def test_what_would_leave_the_list_too_early(books: Books) -> None:
    """Whoever has a revoked serial expire before its certificate is found out."""
    books.ledger().append([issued(minutes=60), issued(BOB, minutes=90)], NOW)
    revoke(books, serials=[1, 2])
    shorten(books, to=NOW + timedelta(minutes=89))
    status, said = commands.verify(books.ledger(), None, NOW)
    assert (status, "serials" in said["broken"]) == (1, True)
    shorten(books, to=NOW + timedelta(minutes=90))
    assert commands.verify(books.ledger(), None, NOW)[0] == 0


def test_a_lost_range_that_was_taken_off(books: Books) -> None:
    """So is who takes off the serials that a reconciliation revoked, of which nobody knows more."""
    books.ledger().append([issued()], NOW)
    lost = restore.Lost(books.position.read(), 500)
    restore.reconcile(books.ledger(), books.persons, lost, by=ADMIN, now=NOW)
    assert commands.verify(books.ledger(), None, NOW)[0] == 0
    shorten(books, to=NOW + timedelta(hours=11))
    assert commands.verify(books.ledger(), None, NOW)[0] == 1
    with books.engine.begin() as connection:
        connection.execute(delete(REVOKED_SERIALS))
    assert commands.verify(books.ledger(), None, NOW)[0] == 1
    assert commands.verify(books.ledger(), None, NOW + timedelta(days=31))[0] == 0


def test_a_moment_that_was_changed(books: Books) -> None:
    """The column by which entries are sought and deleted says what the entry says."""
    books.ledger().append([issued()], NOW)
    with books.engine.begin() as connection:
        connection.execute(update(LEDGER).values(at=1))
    status, said = commands.verify(books.ledger(), None, NOW)
    assert (status, "entry 1" in said["broken"]) == (1, True)


def test_a_hosts_key_that_was_forgotten(books: Books) -> None:
    """Whoever takes a host's key out of the table, to have a user certificate of it, is found."""
    host = issued()
    host = replace(host, public={**host.public, "profile": "host", "key": KEY})
    with books.ledger().writing(NOW) as writing:
        keep_host_key(writing, writing.append(host).seq, KEY)
    assert commands.verify(books.ledger(), None, NOW)[0] == 0
    with books.engine.begin() as connection:
        connection.execute(delete(HOST_KEYS))
    status, said = commands.verify(books.ledger(), None, NOW)
    assert (status, "host" in said["broken"]) == (1, True)


def test_so_many_keys_and_no_more(books: Books, monkeypatch: pytest.MonkeyPatch) -> None:
    """A captured process cannot make the list grow until nobody can fetch it; the host may more."""
    monkeypatch.setattr(revocations, "MAX_KEYS", 3)
    names = ["SHA256:" + letter * 42 + "A" for letter in "abcdefgh"]
    assert revoke(books, keys=names[:3]).effect == "revoked"
    assert revoke(books, keys=names[:3]).effect == "already"
    with pytest.raises(DeclinedError, match="3 keys"):
        revoke(books, keys=names[2:4])
    assert revoke(books, keys=names[2:4], here=True).effect == "revoked"
    with pytest.raises(DeclinedError):
        revoke(books, keys=names, here=True)
    assert set(now_revoked(books).keys) == set(names[:4])


def test_the_keys_of_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A fingerprint, a line or a file; what is none of them is said, and no list is made of it."""
    line = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIPJvcT9YopMz4mLpzG4FFAMAT0e1iig5fPivZ0TEqpo/"
    (tmp_path / "key.pub").write_text(f"{line} somebody\n")
    (tmp_path / "key").write_text("-----BEGIN OPENSSH PRIVATE KEY-----\n")
    words = ["revoke", "--config", "signer.toml", "--reason", "lost", "--key"]
    name = "SHA256:" + base64.b64encode(sha256(base64.b64decode(line.split()[1])).digest()).decode()
    for good in (name[:-1], line, str(tmp_path / "key.pub")):
        assert arguments.parse([*words, good]).key == [name[:-1]]
    for bad in ("MD5:aa", "", "SHA256:short", f"{name[:-2]}=", str(tmp_path / "key"), "ssh-rsa AA"):
        with pytest.raises(SystemExit) as ended:
            arguments.parse([*words, bad])
        told = capsys.readouterr().err
        assert ended.value.code == 2
        assert "public key" in told, bad
    more: tuple[tuple[str, ...], ...] = (
        ("--serial", "0"), ("--serial", "x"), ("--authority", "all"), ("--reason", ""),
        ("--reason", "x" * 1001),
    )  # fmt: skip
    for other in more:
        with pytest.raises(SystemExit):
            arguments.parse([*words, name[:-1], *other])


def test_expired_ones_leave(books: Books) -> None:
    """A serial leaves the list five minutes after its certificate; the version never goes back."""
    books.ledger().append([issued(minutes=5), issued(minutes=60)], NOW)
    version = revoke(books, identity=ALICE).version
    assert now_revoked(books, NOW + timedelta(minutes=9)).serials == ((1, 2),)
    later = NOW + timedelta(minutes=11)
    assert now_revoked(books, later).serials == ((2, 2),)
    latest = NOW + timedelta(minutes=66)
    with books.ledger().writing(latest) as writing:
        revocations.forget_expired(writing.connection, latest)
    assert now_revoked(books, latest) == revocations.Now(version, (), (), ())


def test_by_key(books: Books) -> None:
    """A key stays revoked: nobody knows what else it is used for."""
    assert revoke(books, keys=[KEY]).version == 1
    assert now_revoked(books, NOW + timedelta(days=400)).keys == (KEY,)


@pytest.mark.parametrize(
    ("state", "active", "allowed"), [("retired", False, True), ("signs", True, True)]
)
def test_an_authority(books: Books, state: str, active: bool, allowed: bool) -> None:  # noqa: FBT001 - a table of cases
    """One that is out of use can be revoked; one in use on the signer's host only."""
    add_authority(books, state)
    if allowed:
        assert revoke(books, authority=AUTHORITY, active_too=active).version == 1
        assert now_revoked(books).authorities == ("ssh-ed25519 AAAA old",)


@pytest.mark.parametrize("state", ["signs", "trusted", None])
def test_an_authority_that_is_needed(books: Books, state: str | None) -> None:
    """One that signs or is trusted, or never was one, is not revoked by who asks over the wire."""
    if state is not None:
        add_authority(books, state)
    with pytest.raises(DeclinedError):
        revoke(books, authority=AUTHORITY)
    assert now_revoked(books).authorities == ()


def add_authority(books: Books, state: str) -> None:
    """Register an authority."""
    with books.engine.begin() as connection:
        connection.execute(
            insert(AUTHORITIES).values(
                fingerprint=AUTHORITY, role="user", line="ssh-ed25519 AAAA old", state=state
            )
        )


def test_who_ordered_it() -> None:
    """An administrator is the person that their own certificates are of; others are themselves."""
    assert Identity("https://iam.example/", "carol") == ADMIN
    assert orderer("admin:https://iam.example/#a#b") == Identity("https://iam.example/", "a#b")
    assert orderer("peer:accounts") == Identity("", "peer:accounts")
    assert orderer("local:root") == Identity("", "local:root")


def test_ranges() -> None:
    """Ranges that touch or overlap become one."""
    assert merged([(1, 3), (2, 5), (6, 6), (8, 9)]) == ((1, 6), (8, 9))


def test_one_identitys_own(books: Books) -> None:
    """A person sees what they have, whether it is revoked, and nothing of others."""
    records = [
        issued(minutes=-10),
        issued(instance="gateway", row="r-1", verb="submit"),
        issued(BOB),
        issued(),
    ]
    books.ledger().append(records, NOW)
    revoke(books, serials=[4])
    newest, older = live.of(books.ledger(), books.persons, ALICE, NOW)
    assert (newest.serial, newest.revoked, newest.instance) == (4, True, "")
    assert (older.serial, older.revoked) == (2, False)
    assert (older.instance, older.row, older.verb) == ("gateway", "r-1", "submit")
    assert older.valid_before == NOW + timedelta(hours=1)
    assert live.of(books.ledger(), books.persons, Identity("x", "y"), NOW) == []
